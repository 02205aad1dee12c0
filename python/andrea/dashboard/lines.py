"""Lines of JSON as they may stand in a run's files: whole, torn, damaged, or written by somebody else."""

from __future__ import annotations

import math
from typing import Any

import msgspec

MAX_STEP = 2**53  # a double, and so JavaScript, counts no further
MAX_TIME = 1e11  # Unix seconds, far beyond any run; a calendar has it


def decode(line: bytes) -> Any:
    """Return the value of a line; raises one of `runs.DAMAGED`. Numbers are finite: JSON knows no others."""
    return msgspec.json.decode(line.strip().removesuffix(b","))


def number(value: Any) -> float | None:
    """Return a number of JSON as a float; None for anything else, or beyond what a float holds."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """Return a count or step; None for anything else, below 0 or above MAX_STEP."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_STEP:
        return value
    return None


def left_out(lines: bytes, taken: int) -> int:
    """Return how many of whole lines hold something beside an array's brackets and gave none of `taken`."""
    if lines.count(b"\n") == taken + lines.startswith(b"[\n"):
        return 0
    return sum(line.strip() not in (b"", b"[", b"]") for line in lines.split(b"\n")) - taken
