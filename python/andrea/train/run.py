"""One run: the engine, the tokenizer, the policy and a display put together."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.train.display import Display, QuietDisplay, SteadyDisplay

if TYPE_CHECKING:
    from andrea._core import Engine, Experiment
    from andrea.tokenizer import Tokenizer


@dataclass(frozen=True)
class RunOptions:
    """How to run; what to train stands in the experiment."""

    resume: bool = False
    steps: int | None = None  # end the process after this step of the run
    device: str = "auto"
    precision: str | None = None
    threads: int | None = None
    seed: int | None = None
    memory: str | int | None = None
    from_bin: str | os.PathLike[str] | None = None
    allow_data_change: bool = False
    allow_config_change: bool = False
    polish: bool = False
    past_gate: bool = False


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return the effective experiment as plain values, every default written out."""
    settings: dict[str, Any] = json.loads(experiment.effective_json())
    return settings


def load_tokenizer(experiment: Experiment) -> Tokenizer | None:
    """Load the experiment's tokenizer; None if it names none."""
    from andrea.tokenizer import Tokenizer

    path = settings_of(experiment)["data"].get("tokenizer")
    return Tokenizer.load(path) if path else None


def make_engine(experiment: Experiment, options: RunOptions, display: Display) -> Engine:
    """Make the engine; the plan is shown before it is allocated."""
    from andrea._core import Engine

    engine = Engine(
        experiment,
        options.device,
        options.threads,
        options.memory,
        precision=options.precision,
        seed=options.seed,
        on_plan=display.say,
    )
    if engine.note:
        display.say(engine.note)
    return engine


def train(
    config: str | os.PathLike[str] | Experiment,
    out: str | os.PathLike[str],
    options: RunOptions | None = None,
    display: Display | None = None,
) -> int:
    """Train in this process until the end, a signal or the coherence gate; returns the exit code.

    Installs no signal handlers: Ctrl-C raises KeyboardInterrupt. `andrea.SignalHandlers` around the call
    makes SIGTERM and SIGINT save and stop, and SIGUSR1 save and go on.
    """
    from andrea._core import load_experiment, run_training
    from andrea.curriculum.experiment import refuse_missing_files
    from andrea.train.policy import make_policy, make_scorer

    options = options or RunOptions()
    display = SteadyDisplay(display or QuietDisplay())
    experiment = load_experiment(os.fspath(config)) if isinstance(config, (str, os.PathLike)) else config
    refuse_missing_files(experiment.effective_json())
    tokenizer = load_tokenizer(experiment)
    engine = make_engine(experiment, options, display)
    with display.running():
        return run_training(
            engine,
            str(Path(out)),
            tokenizer,
            resume=options.resume,
            steps=options.steps,
            from_bin=None if options.from_bin is None else os.fspath(options.from_bin),
            allow_data_change=options.allow_data_change,
            allow_config_change=options.allow_config_change,
            polish=options.polish,
            past_gate=options.past_gate,
            on_progress=display.progress,
            on_event=display.event,
            policy=make_policy,
            score=make_scorer(engine.experiment),
        )
