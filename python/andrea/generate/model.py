"""A trained model to read: from a run directory, or from one checkpoint of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.curriculum.runs import newest_states
from andrea.errors import CheckpointError, ConfigError, IoError
from andrea.state_file import read_state, state_of

if TYPE_CHECKING:
    from andrea._core import Engine, Experiment
    from andrea.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """A model with weights from a checkpoint, and its tokenizer. `notes`: newer ones that are damaged."""

    engine: Engine
    tokenizer: Tokenizer
    checkpoint: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """What a model is loaded for: where it runs, and how much it does at once."""

    device: str = "auto"
    threads: int | None = None  # None: all cores
    sequences: int = 1  # texts written at once
    rows: int = 1  # rows read at once, for losses


def load_model(path: Path, config: Path | None = None, reader: Reader | None = None) -> TrainedModel:
    """Load the newest readable checkpoint of a run directory, or the .bin that `path` names.

    The experiment comes from the state beside it, or from `config`. The engine holds weights only. Raises
    CheckpointError, ConfigError, DataError or IoError.
    """
    reader = reader or Reader()
    if not path.exists():
        raise IoError(f"{path}: there is no such run directory or checkpoint")
    if path.is_dir():
        return _newest_of_run(path, config, reader)
    return _load(path, config, config or path, reader)


def idle_cores() -> int:
    """Return the cores that others leave free, at least 1.

    Decoding is many short loops: a thread that must wait for a core holds up all. Threads never change the
    text, so the choice may depend on the moment.
    """
    from andrea._core import device_info

    cores = int(device_info("cpu")["threads"])  # knows the limits of this process and its control group
    return max(1, min(cores, round(cores - os.getloadavg()[0])))


def _newest_of_run(run: Path, config: Path | None, reader: Reader) -> TrainedModel:
    """Try the checkpoints from the newest on; one that cannot be read is passed over."""
    faults: list[str] = []
    for state in newest_states(run):
        path = state.with_name(state.name.removesuffix(".state.json") + ".bin")
        try:
            model = _load(path, config, config or state, reader)
            return replace(model, notes=tuple(f"passed over: {fault}" for fault in faults))
        except (CheckpointError, IoError) as fault:
            faults.append(str(fault))
    if faults:
        raise CheckpointError(f"{run}: no checkpoint can be read:\n  " + "\n  ".join(faults))
    raise CheckpointError(
        f"{run}: no checkpoint is in it; a run directory has step_*.bin and step_*.state.json"
    )


def _settings(checkpoint: Path, config: Path | None) -> tuple[dict[str, Any], str | None]:
    """Return the effective experiment of `checkpoint`, and the hash of its tokenizer if known."""
    state = state_of(checkpoint)
    if config is not None:
        from andrea._core import load_experiment

        settings: dict[str, Any] = json.loads(load_experiment(str(config)).effective_json())
        return settings, None
    if state is not None:
        return state["config"], state["tokenizer_hash"]
    for path in newest_states(checkpoint.parent):  # a .bin of another name in a run's directory
        try:
            state = read_state(path)
        except (CheckpointError, IoError):
            continue  # the next one may tell
        return state["config"], state["tokenizer_hash"]
    raise ConfigError(f"{checkpoint}: no state file beside it says its model; give --config FILE")


def _load(checkpoint: Path, config: Path | None, origin: Path, reader: Reader) -> TrainedModel:
    from andrea._core import Engine, backends_present
    from andrea.tokenizer.of_model import load_for_model

    settings, tokenizer_hash = _settings(checkpoint, config)
    experiment = _for_reading(settings, origin, reader.rows)
    settings = json.loads(experiment.effective_json())  # checked, every key there
    tokenizer_path = settings["data"].get("tokenizer")
    if not tokenizer_path:
        raise ConfigError(f"{origin}: the experiment names no tokenizer, so there is no text to show")
    tokenizer = load_for_model(tokenizer_path, settings["model"]["vocab_size"], tokenizer_hash)
    on_cpu = reader.device == "cpu" or "cuda" not in backends_present()
    engine = Engine(
        experiment,
        reader.device,
        reader.threads,
        precision="fp32" if on_cpu else None,
        training=False,
        sequences=reader.sequences,
    )
    engine.load(str(checkpoint))
    return TrainedModel(engine, tokenizer, checkpoint)


def _for_reading(settings: dict[str, Any], origin: Path, rows: int) -> Experiment:
    """Return the experiment with a batch of `rows`: nothing is trained."""
    from andrea._core import parse_experiment

    train = settings.get("train")
    batch = {"batch_size": rows, "micro_batches": 1}
    small = settings | {"train": train | batch if isinstance(train, dict) else train}
    return parse_experiment(json.dumps(small), str(origin.parent), str(origin))
