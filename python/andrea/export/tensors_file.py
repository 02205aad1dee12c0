"""A .safetensors file of float32 or float16 tensors: the engine's own names, or those of another program."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.checkpoint import Floats
from andrea.errors import DataError
from andrea.export.libraries import need
from andrea.export.placing import new_file
from andrea.export.source import Trained

MOST_HEADER = 100 << 20  # bytes, the limit of the format


def as_type(tensors: Mapping[str, Floats], dtype: str) -> dict[str, npt.NDArray[Any]]:
    """Return contiguous tensors as "f32" or "f16"; DataError if a value is beyond what f16 holds."""
    if dtype == "f32":
        return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    made: dict[str, npt.NDArray[Any]] = {}
    for name, tensor in tensors.items():
        with np.errstate(over="ignore"):
            made[name] = np.ascontiguousarray(tensor, dtype=np.float16)
        if not np.isfinite(made[name]).all():
            raise DataError(
                f"{name} holds {float(np.abs(tensor).max()):g}, float16 ends at 65504; export as f32"
            )
    return made


def write_tensors(path: Path, tensors: Mapping[str, npt.NDArray[Any]], about: Mapping[str, str]) -> None:
    """Write `path` itself; whoever calls gives a temporary name."""
    # Through bytes, not save_file: that makes the file readable for its owner alone, whatever the umask says.
    path.write_bytes(need("safetensors.numpy").save(dict(tensors), metadata=dict(about)))


def about(trained: Trained) -> dict[str, str]:
    """Return what the header of a file says about the model."""
    from andrea._core import VERSION

    told = {"version": VERSION, "name": trained.name, "step": trained.step, "model": vars(trained.shape)}
    # One key: the library writes several in no fixed order, and equal models shall give equal files.
    return {"andrea": json.dumps(told, sort_keys=True)}


def read_about(path: Path) -> dict[str, Any]:
    """Return what the header of a .safetensors file of ours says; {} if it is none."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length <= MOST_HEADER else {}
        told = json.loads(header["__metadata__"]["andrea"])
    except (OSError, ValueError, struct.error, KeyError, TypeError):
        return {}
    return dict(told) if isinstance(told, dict) else {}


def export_tensors(trained: Trained, path: Path, dtype: str, force: bool) -> Path:
    """Write the engine's tensors under the engine's names."""
    need("safetensors.numpy")
    with new_file(path, force, lambda old: read_about(old).get("name") == trained.name) as temporary:
        write_tensors(temporary, as_type(trained.tensors, dtype), about(trained))
    return path
