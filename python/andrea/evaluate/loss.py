"""Loss, perplexity and bits per byte of packed text, with standard errors over windows.

The measure is that of training (docs/EVALUATION.md): the documents of a source stand one after the other,
each behind its BOS, and are cut into windows of `context` targets. Every window begins with an empty memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from andrea.errors import DataError, Error

if TYPE_CHECKING:
    from andrea._core import BtokFile
    from andrea.generate.model import TrainedModel


@dataclass(frozen=True)
class Figure:
    """A value and its standard error; None where one window alone cannot tell."""

    value: float
    standard_error: float | None


@dataclass(frozen=True)
class SourceLoss:
    """What one source gave."""

    source: str
    path: str
    windows: int  # read
    windows_in_file: int
    window_tokens: int  # targets a window
    loss: Figure  # nats a token
    perplexity: Figure
    bits_per_byte: Figure


def evaluate_source(
    model: TrainedModel,
    name: str,
    path: Path,
    max_windows: int | None = None,
    rows: int = 1,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> SourceLoss:
    """Measure one .btok: all of it, or `max_windows` spread evenly over it; `rows` are read at once.

    A file shorter than the context is one window as long as it. Raises DataError for a file of another
    tokenizer, a damaged one, or one without two ids.
    """
    from andrea._core import BtokFile

    file = BtokFile(str(path))
    if file.tokenizer_hash != model.tokenizer.hash or file.vocab_size != model.tokenizer.vocab_size:
        raise DataError(
            f"{path}: packed with another tokenizer (hash {file.tokenizer_hash:016x}) than the model's "
            f"({model.tokenizer.hash:016x}): the losses would mean nothing; pack it again with that one"
        )
    file.verify(file.vocab_size)
    stream = file.n_tokens + file.n_docs
    if stream < 2:
        raise DataError(f"{path}: holds {stream} ids, too few to evaluate on; pack more text")
    targets = min(model.engine.context, stream - 1)
    available = (stream - 1) // targets
    wanted = min(max_windows or available, available)
    losses: list[float] = []
    while len(losses) < wanted:
        firsts = [k * available // wanted for k in range(len(losses), min(len(losses) + rows, wanted))]
        losses += model.engine.row_losses(_windows(file, targets, firsts)).tolist()
        on_progress(len(losses), wanted)

    loss = statistics.fmean(losses)
    if not math.isfinite(loss):
        raise Error(f"{model.checkpoint}: its losses on {path} are not numbers; its weights have diverged")
    error = statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else None
    # Exact for the whole file; of a part it takes the file's own ratio of tokens to bytes.
    bits = stream / file.n_bytes / math.log(2) if file.n_bytes else math.nan
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return SourceLoss(
        source=name,
        path=str(path),
        windows=len(losses),
        windows_in_file=available,
        window_tokens=targets,
        loss=Figure(loss, error),
        perplexity=Figure(perplexity, None if error is None else perplexity * error),  # first order
        bits_per_byte=Figure(loss * bits, None if error is None else error * bits),
    )


def _windows(file: BtokFile, targets: int, firsts: list[int]) -> npt.NDArray[np.int32]:
    """Return the windows of these numbers, `[len(firsts), targets + 1]`."""
    if firsts[-1] - firsts[0] == len(firsts) - 1:
        return np.asarray(file.eval_rows(targets, firsts[0], len(firsts)), np.int32)
    return np.concatenate([file.eval_rows(targets, first, 1) for first in firsts])
