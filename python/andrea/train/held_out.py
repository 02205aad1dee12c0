"""How much of a small text is held out, so that there is something to evaluate on and enough to train on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from andrea.data.pack import DocumentEncoder, held_out_path, pack_files, place_of
from andrea.data.tally import Tally
from andrea.errors import DataError

if TYPE_CHECKING:
    from andrea.data.pack import Packed
    from andrea.tokenizer import Tokenizer

_MOST_FOR_A_WINDOW = 0.2  # of the ids; beyond it a part of a window does


class Counted(Protocol):
    """Packed documents: the header of a `.btok`, or its entry in a manifest."""

    @property
    def n_docs(self) -> int:
        """Documents."""

    @property
    def n_tokens(self) -> int:
        """Ids without BOS."""


def has_a_window(packed: Counted, context: int) -> bool:
    """Whether held-out data has one window of `context` targets at least: training measures no less."""
    return packed.n_tokens + packed.n_docs > context


def pack_source(
    files: Sequence[Path], tokenizer: Tokenizer, out: Path, holdout: float, context: int
) -> Packed:
    """Pack with a held-out part by `holdout`, or with none if chance took more than it left."""
    if 0 < holdout <= 0.5:
        try:
            packed = pack_files(files, tokenizer, out, holdout, context)
        except DataError:  # all of it was held out, or there is none: packing without a share will tell
            packed = None
        if packed is not None and (packed.eval is None or packed.eval.n_tokens < packed.train.n_tokens):
            return packed
        held_out_path(out).unlink(missing_ok=True)
        holdout = 0.0
    return pack_files(files, tokenizer, out, holdout, context)


def share_for_a_small_text(files: Sequence[Path], tokenizer: Tokenizer, context: int) -> float:
    """Return a share for a text of which the usual one holds out too little to evaluate on.

    The least that gives a window, if that is a fifth of the ids at most; else the least that gives anything
    and leaves more than it takes; else 0.
    """
    from andrea.data.readers import documents_of

    ids: Counter[int] = Counter()  # by place: equal passages stay together
    tally = Tally()
    texts = (text.encode("utf-8") for path in dict.fromkeys(files) for text in documents_of(path, tally))
    for batch in DocumentEncoder(tokenizer, context).stream(texts):
        for text, length in zip(batch.texts, np.diff(batch.offsets).tolist(), strict=True):
            ids[place_of(text)] += length + 1  # its BOS
    total, held, least = ids.total(), 0, 0.0
    for place, count in sorted(ids.items()):
        held += count
        if 2 * held >= total:
            break
        share = math.nextafter((place + 1) / 2.0**64, 1.0)
        if held > context and held <= _MOST_FOR_A_WINDOW * total:
            return share
        least = least or share
    return least
