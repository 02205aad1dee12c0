"""From the chunks of a source to its `.btok` files: duplicates out, held-out documents apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from andrea.data.btok import BtokHeader, BtokWriter, TokenizerLike, load_tokenizer
from andrea.data.files import sha256_of
from andrea.data.inspect import length_histogram
from andrea.data.similar import exact_duplicates, near_duplicates
from andrea.data.tally import EXAMPLES_KEPT, Tally
from andrea.data.units import Done, open_chunk
from andrea.errors import DataError

Arrays = dict[str, npt.NDArray[Any]]
SLAB_DOCUMENTS = 1 << 14  # documents written at a time


class MergeJob(msgspec.Struct, frozen=True):
    """All that a worker needs to write the files of one source."""

    source: str
    marks: tuple[str, ...]
    folder: str
    out: str
    tokenizer: str
    holdout: float
    exact: bool
    near: float | None
    near_cap: float


class Packed(msgspec.Struct, frozen=True):
    """One `.btok` that was written."""

    file: str
    sha256: str
    n_docs: int
    n_tokens: int
    n_bytes: int
    content_hash: str
    lengths: list[tuple[int, int, int]]


class Merged(msgspec.Struct, frozen=True):
    """What came of a source."""

    source: str
    train: Packed
    eval: Packed | None
    tally: dict[str, Any]


class _Texts:
    """The text of a document by its number in the source, decoded from its ids."""

    def __init__(self, chunks: list[Arrays], tokenizer: TokenizerLike) -> None:
        self.chunks, self.tokenizer = chunks, tokenizer
        counts = [len(chunk["lengths"]) for chunk in chunks]
        self.first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self.offsets = [np.concatenate(([0], np.cumsum(c["lengths"], dtype=np.int64))) for c in chunks]

    def __call__(self, doc: int) -> bytes:
        chunk = int(np.searchsorted(self.first, doc, side="right")) - 1
        local = doc - int(self.first[chunk])
        begin, end = self.offsets[chunk][local], self.offsets[chunk][local + 1]
        return self.tokenizer.decode_bytes(self.chunks[chunk]["ids"][begin:end].astype(np.int32))


def run_merge(job: MergeJob) -> Merged:
    """Write `NAME.btok` and `NAME.eval.btok`. Runs in a worker process."""
    folder = Path(job.folder)
    done = [msgspec.json.decode(Path(mark).read_bytes(), type=Done) for mark in job.marks]
    tally = Tally()
    for part in done:
        tally.add(Tally.from_json(part.tally))
    chunks = [open_chunk(folder, chunk) for part in done for chunk in part.chunks]
    if not chunks:
        raise DataError(
            f"source {job.source!r}: no document is left; what was dropped:\n"
            + "\n".join(f"  {line}" for line in tally.lines(explain=True))
        )
    tokenizer = load_tokenizer(job.tokenizer)
    keep = _without_duplicates(job, chunks, _Texts(chunks, tokenizer), tally)
    train, held = _write(job, chunks, keep, tokenizer)
    tally.kept = train.n_docs + (held.n_docs if held else 0)
    return Merged(job.source, train, held, tally.to_json())


def _without_duplicates(
    job: MergeJob, chunks: list[Arrays], texts: _Texts, tally: Tally
) -> npt.NDArray[np.bool_]:
    count = int(texts.first[-1])
    keep = np.ones(count, dtype=np.bool_)
    if job.exact:
        repeated = exact_duplicates(np.concatenate([c["hashes"] for c in chunks]))
        _count(tally, "exact duplicate", job.source, repeated, texts)
        keep &= ~repeated
    if job.near is not None:
        signs = np.concatenate([c["signatures"] for c in chunks])
        most = int(job.near_cap * int(keep.sum()))
        removed, pairs, spared = near_duplicates(signs, keep, texts, job.near, most)
        _count(tally, "near duplicate", job.source, removed, texts, pairs)
        keep &= ~removed
        if spared:
            place = f"source {job.source!r}: the cap of {job.near_cap:.0%} of the documents was reached"
            tally.mend("near duplicates kept because of the cap", place, count=spared)
    return keep


def _count(
    tally: Tally,
    reason: str,
    source: str,
    which: npt.NDArray[np.bool_],
    texts: _Texts,
    pairs: dict[int, int] | None = None,
) -> None:
    found = np.flatnonzero(which)
    for doc in found[:EXAMPLES_KEPT].tolist():
        of = f" of document {pairs[doc]}" if pairs else ""
        tally.drop(reason, f"{source}: document {doc}{of}", texts(doc).decode("utf-8", "replace"))
    if found.size > EXAMPLES_KEPT:
        tally.dropped[reason] += int(found.size) - EXAMPLES_KEPT


def _slabs(
    chunks: list[Arrays], keep: npt.NDArray[np.bool_]
) -> Iterator[tuple[Arrays, npt.NDArray[np.bool_]]]:
    at = 0
    for chunk in chunks:
        ends = np.concatenate(([0], np.cumsum(chunk["lengths"], dtype=np.int64)))
        for begin in range(0, len(chunk["lengths"]), SLAB_DOCUMENTS):
            end = min(begin + SLAB_DOCUMENTS, len(chunk["lengths"]))
            slab = {name: chunk[name][begin:end] for name in ("lengths", "sizes", "order")}
            slab["ids"] = chunk["ids"][ends[begin] : ends[end]]
            yield slab, keep[at + begin : at + end]
        at += len(chunk["lengths"])


def _write(
    job: MergeJob, chunks: list[Arrays], keep: npt.NDArray[np.bool_], tokenizer: TokenizerLike
) -> tuple[Packed, Packed | None]:
    out = Path(job.out)
    names = (out / f"{job.source}.btok", out / f"{job.source}.eval.btok")
    writers = [BtokWriter(name, tokenizer.vocab_size, tokenizer.hash) for name in names]
    counts: list[list[npt.NDArray[Any]]] = [[], []]
    limit = np.uint64(int(job.holdout * 2.0**64))
    try:
        for slab, kept in _slabs(chunks, keep):
            held = slab["order"] < limit
            for writer, lengths, wanted in zip(writers, counts, (kept & ~held, kept & held), strict=True):
                chosen = slab["lengths"][wanted].astype(np.int64)
                ids = slab["ids"][np.repeat(wanted, slab["lengths"])]
                offsets = np.concatenate(([0], np.cumsum(chosen)))
                writer.add_batch(ids, offsets, int(slab["sizes"][wanted].sum(dtype=np.int64)))
                lengths.append(chosen)
        if writers[0].n_docs == 0:
            raise DataError(
                f"source {job.source!r}: no document is left for training (holdout {job.holdout}); "
                "give more data or a smaller holdout"
            )
        train = _packed(names[0], writers[0].close(), counts[0])
        if writers[1].n_docs == 0:
            names[1].unlink(missing_ok=True)
            return train, None
        return train, _packed(names[1], writers[1].close(), counts[1])
    finally:
        for writer in writers:
            writer.discard()


def _packed(path: Path, header: BtokHeader, lengths: list[npt.NDArray[Any]]) -> Packed:
    return Packed(
        path.name,
        sha256_of(path),
        header.n_docs,
        header.n_tokens,
        header.n_bytes,
        f"{header.content_hash:016x}",
        length_histogram(np.concatenate(lengths)),
    )
