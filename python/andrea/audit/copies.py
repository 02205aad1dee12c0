"""Which parts of texts stand in the training data word for word: shared runs of n ids.

The runs of all texts are hashed into one sorted array. Each .btok is then read once through its memory
map, in blocks: hash every run of the block, look it up (a bit table first, then the array), and compare the
ids of those that are found, so that no chance equality of hashes counts. Memory: about 30 bytes for each id
of the texts, which are taken in batches, and some 100 MB for block and table, however large the data is.

Texts and documents are both cut by greedy longest match, so the same words give the same ids but for a few
at the beginning of a copied passage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.data.btok import Btok

BLOCK = 1 << 20  # ids of a .btok at a time
BATCH = 1 << 22  # ids of texts at a time
_TABLE_BITS = 24
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: the golden ratio in 64 bits

Ids = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Place:
    """Where a run stands in the training data."""

    source: str
    document: int


@dataclass
class Copied:
    """Of one text: which ids lie in a run of the data, and where the first such run stands."""

    covered: npt.NDArray[np.bool_]
    place: Place | None = None

    @property
    def share(self) -> float:
        """Return the copied share of the ids."""
        return float(self.covered.mean()) if self.covered.size else 0.0


def find_copies(texts: Sequence[Ids], sources: Sequence[tuple[str, Path]], n: int) -> list[Copied]:
    """Find runs of `n` ids of `texts` in the .btok files of `sources` (name, path).

    Raises DataError or IoError for a file that cannot be read.
    """
    found = [Copied(np.zeros(len(text), dtype=bool)) for text in texts]
    for batch in _batches(texts):
        _find_batch(texts, batch, sources, n, found)
    return found


def _batches(texts: Sequence[Ids]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for k, text in enumerate(texts):
        if batch and size + len(text) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(k)
        size += len(text)
    if batch:
        yield batch


def run_hashes(ids: npt.NDArray[Any], n: int) -> Hashes:
    """Return a hash of each run ids[i:i+n]: [len(ids) - n + 1], by doubling: about 2 log2(n) passes."""
    have = (ids.astype(np.uint64) + np.uint64(1)) * _FACTOR
    have ^= have >> np.uint64(29)
    result: Hashes | None = None
    taken, width, factor = 0, 1, 0xBF58476D1CE4E5B9
    while True:
        if n & width:
            # What is taken so far goes in front of the next `width` ids.
            result = (
                have if result is None else result[: have.size - taken] * np.uint64(factor) + have[taken:]
            )
            taken += width
        if 2 * width > n:
            break
        have = have[:-width] * np.uint64(factor) + have[width:]
        width, factor = 2 * width, factor * factor % 2**64
    assert result is not None
    return result


def _find_batch(
    texts: Sequence[Ids],
    batch: list[int],
    sources: Sequence[tuple[str, Path]],
    n: int,
    found: list[Copied],
) -> None:
    long_enough = [k for k in batch if len(texts[k]) >= n]
    if not long_enough:
        return
    owners = np.concatenate([np.full(len(texts[k]) - n + 1, k, dtype=np.int64) for k in long_enough])
    begins = np.concatenate([np.arange(len(texts[k]) - n + 1, dtype=np.int64) for k in long_enough])
    hashes = np.concatenate([run_hashes(texts[k], n) for k in long_enough])
    order = np.argsort(hashes, kind="stable")
    owners, begins, hashes = owners[order], begins[order], hashes[order]
    table = np.zeros(1 << _TABLE_BITS, dtype=bool)
    shift = np.uint64(64 - _TABLE_BITS)
    table[hashes >> shift] = True
    matched = np.zeros(hashes.size, dtype=bool)
    for name, path in sources:
        source = Btok(path, verify=False)
        for first in range(0, max(0, source.header.n_tokens - n + 1), BLOCK):
            block = source.ids[first : first + BLOCK + n - 1]
            seen = run_hashes(block, n)
            hits = np.flatnonzero(table[seen >> shift])
            slots = np.searchsorted(hashes, seen[hits])
            slots[slots == hashes.size] = 0
            hits, slots = hits[hashes[slots] == seen[hits]], slots[hashes[slots] == seen[hits]]
            if not hits.size:
                continue
            # One place of each run is enough, and none that reaches over the end of its document.
            documents = np.searchsorted(source.offsets, (hits + first).astype(np.uint64), side="right") - 1
            inside = (hits + first + n) <= source.offsets[documents + 1].astype(np.int64)
            slots, at = np.unique(slots[inside], return_index=True)
            hits, documents = hits[inside][at], documents[inside][at]
            for slot, hit, document in zip(slots.tolist(), hits.tolist(), documents.tolist(), strict=True):
                run = block[hit : hit + n]
                _take(texts, owners, begins, hashes, matched, slot, run, found, Place(name, document))


def _take(
    texts: Sequence[Ids],
    owners: Ids,
    begins: Ids,
    hashes: Hashes,
    matched: npt.NDArray[np.bool_],
    slot: int,
    run: npt.NDArray[Any],
    found: list[Copied],
    place: Place,
) -> None:
    """Mark every text that has this run, after comparing the ids themselves."""
    end = slot
    while end < hashes.size and hashes[end] == hashes[slot]:
        owner, begin = int(owners[end]), int(begins[end])
        if not matched[end] and np.array_equal(texts[owner][begin : begin + run.size], run):
            matched[end] = True
            found[owner].covered[begin : begin + run.size] = True
            if found[owner].place is None:
                found[owner].place = place
        end += 1
