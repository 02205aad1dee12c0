"""`step_NNNNNN.state.json`, read only if it is whole (docs/CHECKPOINT.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
