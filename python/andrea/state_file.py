"""`step_NNNNNN.state.json`, read only if it is whole, and matched to its .bin (docs/CHECKPOINT.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from andrea.checkpoint import hashed
from andrea.errors import CheckpointError, IoError


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of a state file.

    Raises CheckpointError if it is damaged, by the check of a resume, and IoError if it cannot be read.
    """
    from andrea._core import check_state

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise IoError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is no state file: not UTF-8 at byte {error.start}") from error
    check_state(text, str(path))
    return dict(json.loads(text))


def state_of(checkpoint: Path) -> dict[str, Any] | None:
    """Return the state that was written with this very .bin, None if none lies beside it.

    The whole .bin is read. Raises CheckpointError if it, or the state of its step, is damaged.
    """
    step, _, digest = hashed(checkpoint, xxhash.xxh64())
    stem = f"step_{step:06d}"
    path = checkpoint.with_name(f"{stem}.state.json")
    if not path.is_file():
        return None
    state = read_state(path)
    promised, found = state["bin_hash"], digest.hexdigest()
    if promised == found:
        return state
    if checkpoint.name == f"{stem}.bin":
        raise CheckpointError(
            f"{checkpoint} has hash {found}, its state says {promised}: one of them is damaged; "
            "use an older checkpoint"
        )
    return None
