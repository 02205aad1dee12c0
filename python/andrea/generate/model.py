"""A trained model to read: from a run directory, or from one checkpoint of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.errors import ConfigError
from andrea.model_source import find_model

if TYPE_CHECKING:
    from andrea._core import Engine, Experiment
    from andrea.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """A model with weights from a checkpoint, and its tokenizer."""

    engine: Engine
    tokenizer: Tokenizer
    checkpoint: Path
    notes: tuple[str, ...] = ()  # newer checkpoints that were passed over, and why


@dataclass(frozen=True)
class Reader:
    """What a model is loaded for: where it runs, and how much it does at once."""

    device: str = "auto"
    threads: int | None = None  # None: all cores
    sequences: int = 1  # texts written at once
    rows: int = 1  # rows read at once, for losses


def load_model(path: Path, config: Path | None = None, reader: Reader | None = None) -> TrainedModel:
    """Load a .bin, or the newest pair of a run directory that verifies (andrea.model_source).

    The engine holds weights only. Raises CheckpointError, ConfigError, DataError or IoError.
    """
    from andrea._core import Engine, backends_present

    reader = reader or Reader()
    source = find_model(path, config)
    tokenizer = source.tokenizer()
    if tokenizer is None:
        raise ConfigError(
            f"{source.origin}: the experiment names no tokenizer, so there is no text to show; give one that "
            "does by --config FILE"
        )
    on_cpu = reader.device == "cpu" or "cuda" not in backends_present()
    engine = Engine(
        _for_reading(source.settings, source.origin, reader.rows),
        reader.device,
        reader.threads,
        precision="fp32" if on_cpu else None,
        training=False,
        sequences=reader.sequences,
    )
    engine.load(str(source.checkpoint))
    return TrainedModel(engine, tokenizer, source.checkpoint, source.notes)


def idle_cores() -> int:
    """Return the cores that others leave free, at least 1.

    Decoding is many short loops: a thread that must wait for a core holds up all. Threads never change the
    text, so the choice may depend on the moment.
    """
    from andrea._core import device_info

    cores = int(device_info("cpu")["threads"])  # knows the limits of this process and its control group
    return max(1, min(cores, round(cores - os.getloadavg()[0])))


def _for_reading(settings: dict[str, Any], origin: Path, rows: int) -> Experiment:
    """Return the experiment with a batch of `rows`: nothing is trained."""
    from andrea._core import parse_experiment

    train = settings.get("train")
    batch = {"batch_size": rows, "micro_batches": 1}
    small = settings | {"train": train | batch if isinstance(train, dict) else train}
    return parse_experiment(json.dumps(small), str(origin.parent), str(origin))
