"""Duplicates: exact by XXH3-128, near by MinHash over word shingles with every pair verified.

Words are runs of letters and digits (ASCII folded to lower case, all other characters count as letters);
a shingle is five words. A signature is one-permutation MinHash, 64 bins of 32 bits, empty bins filled from
their neighbours; 16 bands of 4 bins propose pairs, the four most similar are compared, and a pair counts only
if the Jaccard similarity of the full shingle sets reaches the threshold. Documents of fewer than five words
have no near duplicates.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import xxhash

SHINGLE_WORDS = 5
BINS = 64
BANDS = 16
_ROWS = BINS // BANDS
_EMPTY = np.uint32(0xFFFFFFFF)
_GROUP_MEMBERS = 6  # kept documents a band's group remembers: bounds the pairs that are verified
_VERIFIED = 4  # pairs verified a document, the most similar first
_MARGIN = 0.2  # below the threshold by this much in the estimate is not worth verifying
_BLOCK = 256  # documents whose sets are made at a time
_KEPT_BYTES = 128 << 20  # of shingle sets held while verifying

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

_FOLD = np.zeros(256, dtype=np.uint64)
for _byte in range(256):
    _char = bytes([_byte])
    if _char.isalnum() or _byte >= 0x80:
        _FOLD[_byte] = _char.lower()[0] + 1

_BASE = 0x9E3779B97F4A7C15
_BASE_INVERSE = pow(_BASE, -1, 1 << 64)
_powers: dict[str, U64] = {}


def _power_table(name: str, base: int, length: int) -> U64:
    """Return base^0..base^(length-1) modulo 2^64, kept and grown as needed."""
    have = _powers.get(name)
    if have is None or have.size < length:
        size = 1 << max(16, (length - 1).bit_length())
        factors = np.full(size, base, dtype=np.uint64)
        factors[0] = 1
        have = _powers[name] = np.multiply.accumulate(factors)
    return have[:length]


def _mix(values: U64) -> U64:
    """Return a good 64-bit mixture of each value (the finaliser of MurmurHash3)."""
    values = values ^ (values >> np.uint64(33))
    values = values * np.uint64(0xFF51AFD7ED558CCD)
    values = values ^ (values >> np.uint64(33))
    values = values * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


def shingles(texts: list[bytes]) -> tuple[U64, npt.NDArray[np.int64]]:
    """Return (hash, document) of every shingle of a batch of texts."""
    lengths = np.fromiter((len(t) + 1 for t in texts), np.int64, len(texts))
    ends = np.cumsum(lengths)
    folded = _FOLD[np.frombuffer(b"\n".join(texts) + b"\n", dtype=np.uint8)]
    inside = np.concatenate(([False], folded > 0, [False]))
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, stops = edges[0::2], edges[1::2]
    if starts.size < SHINGLE_WORDS:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    # Hash of a word: sum of byte_i * base^(i - start), from prefix sums over the whole batch.
    sums = np.concatenate(([np.uint64(0)], np.cumsum(folded * _power_table("up", _BASE, folded.size))))
    down = _power_table("down", _BASE_INVERSE, folded.size)
    words = _mix((sums[stops] - sums[starts]) * down[starts])
    owner = np.searchsorted(ends, starts, side="right")
    count = words.size - SHINGLE_WORDS + 1
    total = np.zeros(count, dtype=np.uint64)
    for offset in range(SHINGLE_WORDS):
        total = total * np.uint64(_BASE) + words[offset : offset + count]
    whole = owner[:count] == owner[SHINGLE_WORDS - 1 :]
    return _mix(total[whole]), owner[:count][whole]


def signatures(texts: list[bytes]) -> U32:
    """Return the MinHash signatures `[len(texts), 64]`; a text without a shingle has all bits set."""
    hashes, owner = shingles(texts)
    bins = (hashes >> np.uint64(58)).astype(np.int64)
    values = ((hashes >> np.uint64(20)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    values = np.minimum(values, _EMPTY - np.uint32(1))
    first = np.full(len(texts) * BINS, _EMPTY, dtype=np.uint32)
    np.minimum.at(first, owner * BINS + bins, values)
    table = first.reshape(len(texts), BINS)
    filled = table.copy()
    for distance in range(1, BINS):
        open_bins = filled == _EMPTY
        if not open_bins[~open_bins.all(axis=1)].any():
            break
        beside = np.roll(table, -distance, axis=1)
        usable = open_bins & (beside != _EMPTY)
        filled[usable] = beside[usable] + np.uint32(distance * 0x9E3779B1 & 0xFFFFFFFF)
    return filled


def document_hash(text: bytes) -> bytes:
    """Return the XXH3-128 of a document, 16 bytes."""
    return xxhash.xxh3_128_digest(text)


def exact_duplicates(hashes: U64) -> npt.NDArray[np.bool_]:
    """Return which documents repeat an earlier one; `hashes` is `[n, 2]` (the halves of XXH3-128)."""
    order = np.lexsort((np.arange(len(hashes)), hashes[:, 1], hashes[:, 0]))
    same = np.zeros(len(hashes), dtype=np.bool_)
    if len(hashes) > 1:
        equal = (hashes[order[1:]] == hashes[order[:-1]]).all(axis=1)
        same[order[1:]] = equal
    return same


def near_duplicates(
    found: U32,
    alive: npt.NDArray[np.bool_],
    text_of: Callable[[int], bytes],
    threshold: float,
    most: int,
) -> tuple[npt.NDArray[np.bool_], dict[int, int], int]:
    """Find documents that nearly repeat an earlier, kept one.

    `found` are the signatures `[n, 64]`, `alive` the documents still in, `text_of(i)` the text of one.
    Returns (which to remove, examples removed -> the one it repeats, how many were spared because `most`
    had been removed). Documents are taken in order, so the first of its kind stays.
    """
    count = len(found)
    usable = alive & (found[:, 0] != _EMPTY)
    groups = np.full((count, BANDS), -1, dtype=np.int64)
    for band in range(BANDS):
        part = np.ascontiguousarray(found[:, band * _ROWS : (band + 1) * _ROWS]).view("<u8")
        key = _mix(part[:, 0] * np.uint64(_BASE) + part[:, 1])
        _, inverse, sizes = np.unique(key[usable], return_inverse=True, return_counts=True)
        column = np.full(count, -1, dtype=np.int64)
        column[usable] = np.where(sizes[inverse] > 1, inverse, -1)
        groups[:, band] = column
    removed = np.zeros(count, dtype=np.bool_)
    pairs: dict[int, int] = {}
    members: dict[tuple[int, int], list[int]] = {}
    sets = _Sets(text_of)
    taken = spared = 0
    order = np.flatnonzero((groups >= 0).any(axis=1)).tolist()
    for turn, doc in enumerate(order):
        if turn % _BLOCK == 0:
            sets.prepare(order[turn : turn + _BLOCK])
        mine = [(band, int(g)) for band, g in enumerate(groups[doc]) if g >= 0]
        candidates = sorted({other for group in mine for other in members.get(group, ())})
        twin = None
        if candidates:
            # The signatures' own estimate (standard error about 0.05) picks the few worth a full comparison.
            guess = (found[candidates] == found[doc]).mean(axis=1)
            best = np.argsort(-guess, kind="stable")[:_VERIFIED]
            likely = [candidates[i] for i in best.tolist() if guess[i] >= threshold - _MARGIN]
            twin = next((c for c in likely if _jaccard(sets[doc], sets[c], threshold) >= threshold), None)
        if twin is not None and taken < most:
            removed[doc] = True
            taken += 1
            pairs[doc] = twin
            continue
        spared += twin is not None
        for group in mine:
            kept = members.setdefault(group, [])
            if len(kept) < _GROUP_MEMBERS:
                kept.append(doc)
    return removed, pairs, spared


class _Sets:
    """Shingle sets of documents, made a block at a time, the latest 128 MB kept."""

    def __init__(self, text_of: Callable[[int], bytes]) -> None:
        self.text_of = text_of
        self.kept: OrderedDict[int, U64] = OrderedDict()
        self.n_bytes = 0

    def prepare(self, docs: list[int]) -> None:
        """Make the sets of `docs` in one go."""
        hashes, owner = shingles([self.text_of(doc) for doc in docs])
        edges = np.searchsorted(owner, np.arange(len(docs) + 1))
        for doc, begin, end in zip(docs, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            found = np.unique(hashes[begin:end])
            self.kept[doc] = found
            self.n_bytes += found.nbytes
        while self.n_bytes > _KEPT_BYTES and len(self.kept) > len(docs):
            self.n_bytes -= self.kept.popitem(last=False)[1].nbytes

    def __getitem__(self, doc: int) -> U64:
        if doc not in self.kept:
            self.prepare([doc])
        return self.kept[doc]


def _jaccard(a: U64, b: U64, threshold: float) -> float:
    """Return the similarity of two sorted arrays of distinct values; 0 where sizes rule the threshold out."""
    if not a.size or not b.size or min(a.size, b.size) < threshold * max(a.size, b.size):
        return 0.0
    at = np.minimum(np.searchsorted(a, b), a.size - 1)
    common = int(np.count_nonzero(a[at] == b))
    return common / (a.size + b.size - common)
