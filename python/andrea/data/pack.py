"""Documents to ids: batches through the tokenizer, long documents cut, some held out by their hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from andrea.data.btok import BtokHeader, BtokWriter, TokenizerLike
from andrea.data.split import split_by_tokens, trim
from andrea.data.tally import Tally
from andrea.errors import ConfigError, DataError

DEFAULT_CONTEXT = 1024
SMALLEST_CONTEXT = 8
BATCH_BYTES = 2 << 20
HOLDOUT_SEED = 0x5EED


def check_context(context: int | None) -> int:
    """Return the context to use (default 1024); ConfigError if it is too small to hold a character."""
    if context is None:
        return DEFAULT_CONTEXT
    if context < SMALLEST_CONTEXT:
        raise ConfigError(f"context {context}: documents need at least {SMALLEST_CONTEXT} tokens")
    return context


def check_holdout(holdout: float) -> float:
    """Return the share to hold out, or raise ConfigError unless 0 <= holdout < 1."""
    if not 0.0 <= holdout < 1.0:
        raise ConfigError(f"holdout {holdout}: a share from 0 up to, but not, 1 is needed")
    return holdout


def place_of(document: bytes) -> int:
    """Return where a document stands among all, from 0 to 2^64: what is held out are the first places."""
    return xxhash.xxh64_intdigest(document, HOLDOUT_SEED)


def is_held_out(document: bytes, holdout: float) -> bool:
    """Whether a document belongs to the evaluation part: decided by its text alone (XXH64, seeded)."""
    return place_of(document) < int(holdout * 2.0**64)


@dataclass
class Batch:
    """Packed documents end to end: `ids[offsets[i]:offsets[i+1]]` encodes `texts[i]`."""

    texts: list[bytes]
    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def select(self, wanted: npt.NDArray[np.bool_]) -> Batch:
        """Return the documents where `wanted` is true."""
        lengths = np.diff(self.offsets)
        keep = np.repeat(wanted, lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths[wanted])))
        return Batch([t for t, w in zip(self.texts, wanted, strict=True) if w], self.ids[keep], offsets)


class DocumentEncoder:
    """Encodes documents in batches; those over `context` tokens are cut at their best ends."""

    def __init__(self, tokenizer: TokenizerLike, context: int | None = None, threads: int = 0) -> None:
        self.tokenizer = tokenizer
        self.threads = threads  # 0: all
        self.context = check_context(context)
        one = np.zeros(1, dtype=np.int32)
        self._token_bytes = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        for token in range(tokenizer.vocab_size):
            if token != 256:
                one[0] = token
                self._token_bytes[token] = len(tokenizer.decode_bytes(one))

    def encode(self, texts: Sequence[bytes]) -> Batch:
        """Encode non-empty documents; each becomes one packed document, or several if it is long."""
        given = list(texts)
        ids, offsets = self.tokenizer.encode_batch(given, self.threads)
        ids, offsets = np.asarray(ids, dtype=np.int32), np.asarray(offsets, dtype=np.int64)
        lengths = np.diff(offsets)
        long = np.flatnonzero(lengths > self.context)
        if long.size == 0:
            return Batch(given, ids, offsets)
        texts_out: list[bytes] = []
        ids_out: list[npt.NDArray[np.int32]] = []
        lengths_out: list[npt.NDArray[np.int64]] = []
        done = 0
        for index in [*long.tolist(), len(given)]:
            texts_out += given[done:index]
            ids_out.append(ids[offsets[done] : offsets[index]])
            lengths_out.append(lengths[done:index])
            if index < len(given):
                part = self._encode_long(given[index], ids[offsets[index] : offsets[index + 1]])
                texts_out += part.texts
                ids_out.append(part.ids)
                lengths_out.append(np.diff(part.offsets))
            done = index + 1
        ends = np.cumsum(np.concatenate(lengths_out))
        return Batch(texts_out, np.concatenate(ids_out), np.concatenate(([0], ends)))

    def _encode_long(self, text: bytes, ids: npt.NDArray[np.int32]) -> Batch:
        ends = np.cumsum(self._token_bytes[ids])
        if int(ends[-1]) != len(text):
            raise DataError("the tokenizer does not give back the bytes it was given; train it again")
        pieces = [piece for piece in map(trim, split_by_tokens(text, ends, self.context)) if piece]
        return self.encode(pieces)

    def stream(self, documents: Iterable[bytes]) -> Iterator[Batch]:
        """Encode a stream of non-empty documents in batches of about 2 MiB."""
        batch: list[bytes] = []
        size = 0
        for document in documents:
            batch.append(document)
            size += len(document)
            if size >= BATCH_BYTES:
                yield self.encode(batch)
                batch, size = [], 0
        if batch:
            yield self.encode(batch)


def held_out_path(out: Path) -> Path:
    """Return `X.eval.btok` for `X.btok`."""
    return out.with_name(f"{out.name.removesuffix('.btok')}.eval.btok")


@dataclass
class Packed:
    """What `pack_files` did."""

    train: BtokHeader
    eval: BtokHeader | None
    tally: Tally = field(default_factory=Tally)


def pack_documents(
    documents: Iterable[bytes],
    tokenizer: TokenizerLike,
    out: Path,
    holdout: float = 0.0,
    context: int | None = None,
) -> tuple[BtokHeader, BtokHeader | None]:
    """Pack non-empty documents into `out` and, with a holdout, `X.eval.btok`; returns both headers.

    An `X.eval.btok` of an earlier packing goes, if nothing is held out any more: its documents are trained
    on now. Without a holdout it may be somebody's own, and ConfigError asks for it to be removed.
    Raises DataError if there is no document at all, or none is left for training.
    """
    holdout = check_holdout(holdout)
    stale = held_out_path(out)
    if holdout == 0 and stale.exists():
        raise ConfigError(
            f"{stale} holds documents that an earlier packing set aside, and without a holdout they would be "
            "trained on; remove it, give --holdout, or choose another --out"
        )
    encoder = DocumentEncoder(tokenizer, context)
    shape: tuple[Any, ...] = (tokenizer.vocab_size, tokenizer.hash)
    train = BtokWriter(out, *shape)
    held = BtokWriter(held_out_path(out), *shape) if holdout > 0 else None
    try:
        for batch in encoder.stream(documents):
            for writer, part in split_holdout(batch, holdout, train, held):
                writer.add_batch(part.ids, part.offsets, sum(map(len, part.texts)))
        if train.n_docs == 0:
            raise DataError(f"{out}: no document to pack; the input is empty or everything was left out")
        eval_header = held.close() if held is not None and held.n_docs else None
        train_header = train.close()
        if eval_header is None:
            stale.unlink(missing_ok=True)
        return train_header, eval_header
    finally:
        train.discard()
        if held is not None:
            held.discard()


def split_holdout(
    batch: Batch, holdout: float, train: BtokWriter, held: BtokWriter | None
) -> Iterator[tuple[BtokWriter, Batch]]:
    """Yield (writer, documents) for the training and the held-out part of a batch."""
    if held is None:
        yield train, batch
        return
    out = np.fromiter((is_held_out(t, holdout) for t in batch.texts), np.bool_, len(batch.texts))
    yield train, batch.select(~out)
    yield held, batch.select(out)


def pack_files(
    files: Sequence[str | Path],
    tokenizer: TokenizerLike,
    out: str | Path,
    holdout: float = 0.0,
    context: int | None = None,
) -> Packed:
    """Pack text files into one `.btok`; the reader goes by each file's name (`readers.for_path`).

    Plain text is cut into passages of at most `context` tokens (default 1024) at paragraph or sentence
    ends; `.jsonl` takes the text or the conversation of each row; `.py` its docstrings.
    """
    from andrea.data.readers import documents_of

    if not files:
        raise ConfigError("no files to pack; name at least one text, .jsonl or .py file")
    tally = Tally()
    paths = list(dict.fromkeys(Path(name) for name in files))
    train, held = pack_documents(
        (text.encode("utf-8") for path in paths for text in documents_of(path, tally)),
        tokenizer,
        Path(out),
        holdout,
        context,
    )
    tally.kept = train.n_docs + (held.n_docs if held else 0)
    return Packed(train, held, tally)
