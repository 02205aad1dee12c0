"""Numbers from lines of JSON arrays, fast; and what is done with a long curve: smooth it, thin it out."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.curriculum.runs import DAMAGED
from andrea.dashboard.lines import decode, number

Floats = npt.NDArray[np.float64]
_SPACES = bytes.maketrans(b",[]\n\r", b"     ")


def parse_rows(lines: bytes, width: int) -> Floats:
    """Return `[n, width]` numbers of lines such as `[1, 2.5],`; null is NaN. Other lines are left out."""
    rows = _parse_quickly(lines, width)
    return rows if rows is not None else _parse_slowly(lines, width)


def _parse_quickly(lines: bytes, width: int) -> Floats | None:
    """All at once, if every line is an array of `width` numbers."""
    opening = lines.startswith(b"[\n")  # of the whole file
    text = lines.replace(b"null", b"nan").translate(_SPACES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it warns where it meets something else than a number
            values = np.fromstring(text.decode("ascii"), sep=" ") if text.strip() else np.empty(0)
    except (ValueError, DeprecationWarning):
        return None
    if values.size != width * (lines.count(b"[") - opening):
        return None
    return values.reshape(-1, width)


def _parse_slowly(lines: bytes, width: int) -> Floats:
    rows = []
    for line in lines.split(b"\n"):
        try:
            value = decode(line)
        except DAMAGED:
            continue
        if isinstance(value, list) and len(value) == width:
            row = [np.nan if x is None else number(x) for x in value]
            if None not in row:
                rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(-1, width)


def smma(values: Floats, n: float, before: float = math.nan) -> Floats:
    """Return S_t = (S_{t-1} (n-1) + x_t) / n with S_0 = x_0; where x is NaN, S stays as it was.

    `before` is S before the first value, where a longer curve goes on; NaN: there is none. The recurrence
    is taken by blocks as one matrix product, so a million values take milliseconds.
    """
    finite = np.isfinite(values)
    x = values[finite]
    if n <= 1:
        return values.copy()
    if x.size == 0:
        return np.full(values.shape, before)
    block, keep = 128, (n - 1) / n
    powers = keep ** np.arange(block + 1)
    lags = np.arange(block)[None, :] - np.arange(block)[:, None]
    kernel = np.where(lags >= 0, powers[np.maximum(lags, 0)] / n, 0.0)
    count = -(-x.size // block)
    padded = np.zeros(count * block)
    padded[: x.size] = x
    inside = padded.reshape(count, block) @ kernel
    entering = np.empty(count)
    state = float(x[0]) if math.isnan(before) else before
    for k, last in enumerate(inside[:, -1].tolist()):
        entering[k] = state
        state = state * powers[block] + last
    smooth = (inside + entering[:, None] * powers[None, 1:]).reshape(-1)[: x.size]
    place = np.cumsum(finite) - 1
    result = np.full(values.shape, before)
    seen = place >= 0
    result[seen] = smooth[place[seen]]
    return result


def bucket_starts(x: npt.NDArray[Any], buckets: int, log: bool) -> npt.NDArray[np.int64]:
    """Return the index at which each non-empty bucket of the sorted `x` begins; buckets are equally wide."""
    if x.size == 0:
        return np.empty(0, dtype=np.int64)
    low, high = float(x[0]), float(x[-1])
    if log:
        edges = np.geomspace(max(low, 0.0) + 1.0, high + 1.0, buckets + 1)[:-1] - 1.0
    else:
        edges = np.linspace(low, high, buckets + 1)[:-1]
    return np.unique(np.concatenate([[0], np.searchsorted(x, edges[1:])])).astype(np.int64)


def thin_out(
    x: npt.NDArray[Any], y: Floats, buckets: int, log: bool = False
) -> tuple[npt.NDArray[Any], Floats]:
    """Return at most about 2 `buckets` points: the lowest and the highest of each bucket, in order.

    What is drawn at `buckets` pixels is then the same as with every point. Short curves stay whole; a NaN
    stays only where a bucket holds nothing else, as a gap.
    """
    if x.size <= 2 * buckets:
        return x, y
    starts = bucket_starts(x, buckets, log)
    ends = np.append(starts[1:], x.size)
    low, high = np.where(np.isnan(y), np.inf, y), np.where(np.isnan(y), -np.inf, y)
    chosen = [
        (begin + int(low[begin:end].argmin()), begin + int(high[begin:end].argmax()))
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if end > begin
    ]
    index = np.unique(np.array([*chosen, (0, x.size - 1)], dtype=np.int64))
    return x[index], y[index]
