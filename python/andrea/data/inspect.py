"""Looking into a `.btok`: figures, single documents, a sample."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt

from andrea.data.btok import Btok, TokenizerLike
from andrea.data.tally import printable


def length_histogram(lengths: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return (low, high, documents) for document lengths in powers of two, low <= length < high."""
    if lengths.size == 0:
        return []
    bins = np.floor(np.log2(lengths)).astype(np.int64)
    counts = np.bincount(bins)
    first = int(bins.min())
    return [(1 << b, 1 << (b + 1), int(counts[b])) for b in range(first, len(counts))]


def histogram_lines(lengths: npt.NDArray[np.int64]) -> list[str]:
    """Return the histogram as text, one line a power of two."""
    rows = length_histogram(lengths)
    most = max((count for _, _, count in rows), default=1)
    return [
        f"{low:>7,} - {high - 1:<7,} {count:>9,}  {'█' * round(40 * count / most)}"
        for low, high, count in rows
    ]


def stats_lines(packed: Btok) -> list[str]:
    """Return the figures of a file: header, lengths, ids in use."""
    head = packed.header
    lengths: npt.NDArray[np.int64] = np.diff(packed.offsets.astype(np.int64)).astype(np.int64)
    used = int(np.count_nonzero(np.bincount(packed.ids, minlength=head.vocab_size))) if head.n_tokens else 0
    lines = [
        f"documents       {head.n_docs:,}",
        f"tokens          {head.n_tokens:,}",
        f"bytes of text   {head.n_bytes:,}",
        f"bytes a token   {head.n_bytes / head.n_tokens:.3f}" if head.n_tokens else "bytes a token   n/a",
        f"vocabulary      {head.vocab_size:,} ({used:,} ids in use), {head.width} bytes an id",
        f"tokenizer hash  {head.tokenizer_hash:016x}",
        f"content hash    {head.content_hash:016x}",
    ]
    if head.n_docs:
        quartiles = np.percentile(lengths, [0, 25, 50, 75, 100]).astype(np.int64).tolist()
        lines.append("tokens a document (min, quartiles, max)  " + " ".join(f"{q:,}" for q in quartiles))
        lines += histogram_lines(lengths)
    return lines


def document_text(packed: Btok, tokenizer: TokenizerLike, doc: int) -> str:
    """Return the text of document `doc`, safe to print; bytes that are no UTF-8 show as U+FFFD."""
    return printable(tokenizer.decode_bytes(packed[doc].astype(np.int32)).decode("utf-8", "replace"))


def sample_documents(packed: Btok, count: int, seed: int = 0) -> list[int]:
    """Return `count` document numbers, evenly drawn, in order; the same for the same seed."""
    count = min(count, len(packed))
    return sorted(random.Random(seed).sample(range(len(packed)), count))


def find_tokenizer(path: Path) -> Path | None:
    """Return a `harris_segments.json` that lies beside the file or one folder up, if there is one."""
    for folder in (path.resolve().parent, path.resolve().parent.parent):
        found = folder / "harris_segments.json"
        if found.is_file():
            return found
    return None
