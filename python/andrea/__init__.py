"""andrea grows small decoder-only language models on one GPU from open data.

    import andrea

    engine = andrea.Engine("experiments/ANDREA-NANO-TRAIN.json")
    print(engine.step())

Everything here is loaded when it is first used, so `import andrea` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from andrea._core import VERSION as __version__
    from andrea._core import Engine, Experiment, Row, SignalHandlers, StepReport, load_experiment
    from andrea.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
    from andrea.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        DeviceError,
        Error,
        IoError,
        OutOfMemory,
    )
    from andrea.tokenizer import Tokenizer

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DeviceError",
    "Engine",
    "Error",
    "Experiment",
    "IoError",
    "OutOfMemory",
    "Row",
    "SignalHandlers",
    "StepReport",
    "Tokenizer",
    "__version__",
    "load_experiment",
    "read_checkpoint",
    "write_checkpoint",
]

_HOME = dict.fromkeys(__all__, "andrea._core") | {
    "Checkpoint": "andrea.checkpoint",
    "read_checkpoint": "andrea.checkpoint",
    "write_checkpoint": "andrea.checkpoint",
    "Tokenizer": "andrea.tokenizer",
    "__version__": "andrea._core",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'andrea' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
