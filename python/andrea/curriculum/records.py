"""Rows that have been reported but not yet used by a decision, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from andrea.errors import ConfigError

Integers = npt.NDArray[np.int64]
Losses = npt.NDArray[np.float32]
_NO_INTEGERS: Integers = np.zeros(0, dtype=np.int64)
_NO_LOSSES: Losses = np.zeros(0, dtype=np.float32)

MAX_PENDING_ROWS = 1 << 24  # a policy that is never asked must not eat the machine


class Rows(NamedTuple):
    """Rows in row order, `[rows]` each; the losses are NaN where the step was skipped."""

    step: Integers
    source: Integers
    documents: Integers
    loss: Losses

    def part(self, begin: int, end: int) -> Rows:
        """Return rows begin..end-1 (views)."""
        return Rows(
            self.step[begin:end], self.source[begin:end], self.documents[begin:end], self.loss[begin:end]
        )


class PendingRecords:
    """Keeps records in row order and hands out those up to a step."""

    def __init__(self, n_sources: int) -> None:
        """Start empty; source indices lie in 0..n_sources-1."""
        self._n_sources = n_sources
        self._blocks: list[Rows] = []
        self._last_step = -1
        self.taken_through = -1  # records of steps up to this one have been used

    def __len__(self) -> int:
        """Return how many rows are waiting."""
        return sum(len(block.step) for block in self._blocks)

    def add(self, step: Any, source: Any, documents: Any, loss: Any) -> None:
        """Append rows: scalars or arrays of one length; `step` may be one number for all."""
        losses = _float32(loss)
        sources = _integers("source", source)
        counts = _integers("documents", documents)
        steps = _integers("step", step)
        if steps.size == 1 and losses.size != 1:
            steps = np.full(losses.size, steps[0], dtype=np.int64)
        if not steps.size == sources.size == counts.size == losses.size:
            raise ConfigError(
                f"records need one length: step {steps.size}, source {sources.size}, "
                f"documents {counts.size}, loss {losses.size}"
            )
        if losses.size == 0:
            return
        if sources.min() < 0 or sources.max() >= self._n_sources:
            raise ConfigError(
                f"a record's source must be an index in 0..{self._n_sources - 1}, "
                f"is {int(sources.min() if sources.min() < 0 else sources.max())}"
            )
        if counts.min() < 0:
            raise ConfigError(f"a record's documents cannot be {int(counts.min())}; they count from 0")
        low = int(steps[0])
        falls = bool((steps[1:] < steps[:-1]).any())
        if falls or low < self._last_step or low <= self.taken_through:
            raise ConfigError(
                f"records must come in row order, each once: step {int(steps.min())} came after step "
                f"{max(self._last_step, self.taken_through)}"
            )
        if len(self) + losses.size > MAX_PENDING_ROWS:
            raise ConfigError(f"more than {MAX_PENDING_ROWS} rows wait for a phase; ask for one more often")
        self._last_step = int(steps[-1])
        self._blocks.append(Rows(steps, sources, counts, losses))

    def take_through(self, step: int) -> Rows:
        """Remove and return the rows of steps <= `step`."""
        rows = self.rows()
        cut = int(np.searchsorted(rows.step, step, side="right"))
        self._blocks = [rows.part(cut, len(rows.step))] if cut < len(rows.step) else []
        self.taken_through = max(self.taken_through, step)
        return rows.part(0, cut)

    def rows(self) -> Rows:
        """Return the waiting rows without removing them."""
        if len(self._blocks) != 1:
            steps = [block.step for block in self._blocks] or [_NO_INTEGERS]
            sources = [block.source for block in self._blocks] or [_NO_INTEGERS]
            documents = [block.documents for block in self._blocks] or [_NO_INTEGERS]
            losses = [block.loss for block in self._blocks] or [_NO_LOSSES]
            self._blocks = [
                Rows(
                    np.concatenate(steps),
                    np.concatenate(sources),
                    np.concatenate(documents),
                    np.concatenate(losses),
                )
            ]
        return self._blocks[0]


def _integers(what: str, value: Any) -> Integers:
    array = np.asarray(value)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ConfigError(f"a record's {what} must be whole numbers, is {array.dtype}")
    return np.atleast_1d(array).astype(np.int64)


def _float32(value: Any) -> Losses:
    if isinstance(value, list) and None in value:
        value = [np.nan if x is None else x for x in value]
    array = np.asarray(np.nan if value is None else value)
    if array.size and array.dtype.kind not in "fiu":
        raise ConfigError(f"a record's loss must be numbers or null, is {array.dtype}")
    with np.errstate(over="ignore"):
        losses = np.atleast_1d(array).astype(np.float32)
    if not np.isfinite(losses).all():
        losses[~np.isfinite(losses)] = np.nan  # infinite, too, is a skipped row
    return losses
