"""All samples of a run: those of its present history and of the archives that polishing left."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from andrea.curriculum.runs import Run, elements, find_runs, newest_states, way_to_a_run
from andrea.errors import CheckpointError, ConfigError, DataError, IoError
from andrea.state_file import read_state


@dataclass(frozen=True)
class Sample:
    """One sample; `text` begins with `prompt`. `score`: the coherence that the run saw, if it saw one."""

    step: int
    loss: float | None
    prompt: str
    text: str
    score: float | None
    file: str


@dataclass
class History:
    """What a run directory tells: samples by step, losses, and the settings of its newest state."""

    run: Run
    samples: list[Sample]
    losses: list[tuple[int, float | None]]
    settings: dict[str, Any] | None
    stopped_by_gate: bool
    notes: list[str] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        """Return the number of steps trained."""
        steps = [self.losses[-1][0] + 1] if self.losses else []
        return max(steps + [sample.step for sample in self.samples[-1:]], default=0)


def read_history(directory: Path) -> History:
    """Read a run directory. DataError if it holds no samples, ConfigError if more than one run."""
    if directory.exists() and not directory.is_dir():
        raise IoError(f"{directory} is no run directory; give the directory that the run is in")
    if not directory.is_dir():
        raise IoError(f"{directory}: there is no such run directory; check the path")
    runs = [run for run in find_runs(directory) if run.directory == directory]
    names = {run.name for run in runs} | {
        path.name.partition(".samples.")[0] for path in directory.glob("*.samples*.json")
    }
    if len(names) > 1:
        raise ConfigError(f"{directory} holds several runs ({', '.join(sorted(names))}); one is expected")
    if not names:
        raise DataError(f"{directory} holds no samples; {way_to_a_run(directory)}")
    run = Run(directory, names.pop())
    notes: list[str] = []
    samples = _all_samples(run, notes)
    if not samples:
        raise DataError(
            f"{directory}: {run.name} has no sample with text yet (samples.sample_every says when)"
        )
    losses = [(e[0], _number(e[1])) for e in elements(run.loss, notes) if _is_loss(e)]
    settings, stopped = _newest_state(directory, notes)
    return History(run, samples, losses, settings, stopped, notes)


def _all_samples(run: Run, notes: list[str]) -> list[Sample]:
    archives = run.sample_archives()
    # A later file wins: what a resume took back was sampled anew.
    found: dict[tuple[int, int], Sample] = {}
    taken_back = without_text = 0
    for path in [*archives, run.samples]:
        counts: dict[int, int] = {}
        for element in elements(path, notes):
            sample = _sample(element, path.name)
            if sample is None:
                without_text += 1
                continue
            key = (sample.step, counts.get(sample.step, 0))
            counts[sample.step] = key[1] + 1
            taken_back += key in found
            found[key] = sample
    if archives:
        notes.append(f"{len(archives)} archived sample files were read as well")
    if taken_back:
        notes.append(f"{taken_back} samples were taken back by a resume; the newest of each step counts")
    if without_text:
        notes.append(
            f"{without_text} samples hold no text or no step and were left out (no tokenizer, or damage)"
        )
    return [found[key] for key in sorted(found)]


def _sample(element: Any, file: str) -> Sample | None:
    if not isinstance(element, dict) or not _is_step(element.get("step")):
        return None
    text, loss, told = element.get("text"), element.get("loss"), element.get("coherence")
    if not isinstance(text, str):
        return None
    score = told.get("score") if isinstance(told, dict) else None
    return Sample(
        element["step"],
        _number(loss),
        str(element.get("prompt") or ""),
        text,
        _number(score),
        file,
    )


def _is_loss(element: Any) -> bool:
    return isinstance(element, list) and len(element) == 2 and _is_step(element[0])


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31  # of a damaged line, any number


def _number(value: Any) -> float | None:
    """Return a JSON number as a float, None for anything else or beyond what a float holds."""
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _newest_state(directory: Path, notes: list[str]) -> tuple[dict[str, Any] | None, bool]:
    for path in newest_states(directory):
        try:
            state = read_state(path)
        except (CheckpointError, IoError) as fault:
            notes.append(f"passed over: {fault}")
            continue
        return state["config"], state["stopped_by_gate"]
    return None, False
