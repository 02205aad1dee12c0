"""`.btok`: the packed documents of one source, written as a stream and read through a memory map.

Layout (little-endian): a header of 64 bytes (magic `BTOK`, u32 version, u32 vocabulary size, u32 token
width, u64 n_docs, u64 n_tokens, u64 n_bytes of the text, u64 tokenizer hash, u64 content hash, zeros),
u64 offsets[n_docs + 1] counted in ids, then the ids (u16 if the vocabulary has at most 65,536 ids, else
u32). The content hash is XXH64 of everything after the header. No document is empty and none holds BOS
(256): the loader puts it in front of each.
"""

from __future__ import annotations

import atexit
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from andrea.data.files import fsync_directory, replace, temporary_beside, writing
from andrea.errors import DataError, IoError

MAGIC = b"BTOK"
VERSION = 1
BOS = 256
HEADER_BYTES = 64
_HEADER = struct.Struct("<4sIIIQQQQQ8s")
_BLOCK_IDS = 1 << 20  # ids looked at or copied at a time: bounds the memory of writing and verifying

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


class TokenizerLike(Protocol):
    """What packing and inspecting need of a tokenizer; `andrea.tokenizer.Tokenizer` has it."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""

    @property
    def hash(self) -> int:
        """XXH64 over length and bytes of each segment in id order."""

    def encode_batch(self, texts: list[bytes], threads: int = 0) -> tuple[Ids, Offsets]:
        """Return the ids of all texts end to end and offsets `[len(texts) + 1]`."""

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the bytes of `ids`."""


class BtokHeader(NamedTuple):
    """The fields of the header, as numbers."""

    vocab_size: int
    width: int
    n_docs: int
    n_tokens: int
    n_bytes: int
    tokenizer_hash: int
    content_hash: int


_loaded: dict[tuple[str, int, int], TokenizerLike] = {}
atexit.register(_loaded.clear)  # native objects go before the interpreter does


def load_tokenizer(path: str | Path) -> TokenizerLike:
    """Load a trained tokenizer (`harris_segments.json`)."""
    from andrea.tokenizer import Tokenizer

    try:
        facts = os.stat(path)
    except OSError as error:
        raise IoError(
            f"{path}: cannot read the tokenizer: {error.strerror}; train one or check the path"
        ) from error
    key = (str(path), facts.st_mtime_ns, facts.st_size)
    if key not in _loaded:
        _loaded[key] = Tokenizer.load(str(path))
    return _loaded[key]


def token_width(vocab_size: int) -> int:
    """Return the bytes an id takes in the file: 2 up to a vocabulary of 65,536, else 4."""
    return 2 if vocab_size <= 65536 else 4


def _dtype(width: int) -> np.dtype[Any]:
    return np.dtype("<u2" if width == 2 else "<u4")


class BtokWriter:
    """Writes a `.btok` document by document; the final name appears only when `close` has succeeded.

    Ids and lengths are spooled to two temporary files beside `path`, then assembled, so memory does not
    grow with the source (disk needed while writing: twice the file). Used as a context manager, an
    exception leaves nothing behind.
    """

    def __init__(self, path: str | Path, vocab_size: int, tokenizer_hash: int) -> None:
        if vocab_size < 1 or vocab_size > 1 << 31:
            raise DataError(f"{path}: vocabulary size {vocab_size} is not in 1..2^31")
        self.path = Path(path)
        self.vocab_size = vocab_size
        self.tokenizer_hash = tokenizer_hash
        self.width = token_width(vocab_size)
        self.n_docs = 0
        self.n_tokens = 0
        self.n_bytes = 0
        self._open: list[IO[bytes]] = []
        self._names = [temporary_beside(self.path, part) for part in ("ids", "lengths", "whole")]
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._ids = self._spool(0)
            self._lengths = self._spool(1)

    def _spool(self, index: int) -> IO[bytes]:
        handle = open(self._names[index], "w+b")  # noqa: SIM115 (closed by _discard)
        self._open.append(handle)
        return handle

    def add(self, ids: npt.ArrayLike, n_bytes: int) -> None:
        """Append one document of `ids` whose text has `n_bytes` bytes."""
        row = np.asarray(ids, dtype=np.int64).reshape(-1)
        self.add_batch(row, np.array([0, row.size], dtype=np.int64), n_bytes)

    def add_batch(self, ids: npt.NDArray[Any], offsets: npt.NDArray[Any], n_bytes: int) -> None:
        """Append documents `ids[offsets[i]:offsets[i + 1]]`, whose texts have `n_bytes` bytes in all.

        Raises DataError for an empty document, an id outside the vocabulary, or a BOS.
        """
        lengths = np.diff(offsets.astype(np.int64))
        flat = ids[int(offsets[0]) : int(offsets[-1])]
        if lengths.size and int(lengths.min()) < 1:
            at = self.n_docs + int(np.argmin(lengths))
            raise DataError(f"{self.path}: document {at} has no token; leave empty documents out")
        if flat.size > n_bytes:
            raise DataError(
                f"{self.path}: {flat.size} ids for {n_bytes} bytes of text; an id is a byte or more"
            )
        if flat.size:
            bad = (flat < 0) | (flat >= self.vocab_size) | (flat == BOS)
            if bad.any():
                where = int(np.argmax(bad))
                at = self.n_docs + int(np.searchsorted(offsets, where + int(offsets[0]), side="right")) - 1
                raise DataError(self._id_message(at, int(flat[where])))
        with writing(self.path):
            self._ids.write(flat.astype(_dtype(self.width)).tobytes())
            self._lengths.write(lengths.astype("<u8").tobytes())
        self.n_docs += int(lengths.size)
        self.n_tokens += int(flat.size)
        self.n_bytes += n_bytes

    def _id_message(self, doc: int, token: int) -> str:
        if token == BOS:
            return f"{self.path}: document {doc} holds BOS (256), which only the loader sets"
        return f"{self.path}: document {doc} holds id {token}, the vocabulary has 0..{self.vocab_size - 1}"

    def close(self) -> BtokHeader:
        """Assemble, sync and rename; returns the header written."""
        try:
            with writing(self.path):
                header = self._assemble()
                replace(self._names[2], self.path)
                fsync_directory(self.path.parent)
            return header
        finally:
            self.discard()

    def _assemble(self) -> BtokHeader:
        digest = xxhash.xxh64()
        whole = self._spool(2)
        whole.write(bytes(HEADER_BYTES))

        def put(block: bytes) -> None:
            digest.update(block)
            whole.write(block)

        self._lengths.seek(0)
        self._ids.seek(0)
        put(bytes(8))
        last = 0
        while block := self._lengths.read(8 * _BLOCK_IDS):
            ends = np.cumsum(np.frombuffer(block, dtype="<u8")) + np.uint64(last)
            put(ends.astype("<u8").tobytes())
            last = int(ends[-1])
        while block := self._ids.read(4 * _BLOCK_IDS):
            put(block)
        header = BtokHeader(
            self.vocab_size,
            self.width,
            self.n_docs,
            self.n_tokens,
            self.n_bytes,
            self.tokenizer_hash,
            digest.intdigest(),
        )
        whole.seek(0)
        whole.write(_HEADER.pack(MAGIC, VERSION, *header, bytes(8)))
        whole.flush()
        os.fsync(whole.fileno())
        return header

    def discard(self) -> None:
        """Close and remove the temporary files; harmless after `close`."""
        for handle in self._open:
            handle.close()
        self._open.clear()
        for name in self._names:
            name.unlink(missing_ok=True)

    def __enter__(self) -> BtokWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._open:
            self.close()
        else:
            self.discard()


class Btok:
    """A verified, memory-mapped `.btok`. `len(b)` documents; `b[i]` is a view of the ids of document i.

    Opening checks the header; `verify` (done by default) checks the hash, every offset and every id and
    raises DataError naming file, document and id.
    """

    def __init__(self, path: str | Path, verify: bool = True) -> None:
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            with open(self.path, "rb") as source:
                head = source.read(HEADER_BYTES)
        except OSError as error:
            raise IoError(f"{path}: cannot read: {error.strerror}; check the path") from error
        self.header = self._parse(head, size)
        n_docs, n_tokens = self.header.n_docs, self.header.n_tokens
        raw = np.memmap(self.path, dtype=np.uint8, mode="r")
        start = HEADER_BYTES + 8 * (n_docs + 1)
        self._body = raw[HEADER_BYTES:]
        self.offsets: npt.NDArray[np.uint64] = raw[HEADER_BYTES:start].view("<u8")
        self.ids: npt.NDArray[Any] = raw[start : start + n_tokens * self.header.width].view(
            _dtype(self.header.width)
        )
        if verify:
            self.verify()

    def _fail(self, what: str) -> DataError:
        return DataError(f"{self.path}: {what}; pack the source again (andrea data pack)")

    def _parse(self, head: bytes, size: int) -> BtokHeader:
        if len(head) < HEADER_BYTES:
            raise self._fail(f"{size} bytes are too few for a .btok header of {HEADER_BYTES}")
        magic, version, vocab, width, docs, tokens, text, tokenizer, content, rest = _HEADER.unpack(head)
        if magic != MAGIC:
            raise self._fail(f"not a .btok file: it begins with {magic!r}, not {MAGIC!r}")
        if version != VERSION:
            raise self._fail(f"version {version} of the format, this program reads version {VERSION}")
        if not 1 <= vocab <= 1 << 31:
            raise self._fail(f"vocabulary size {vocab} is not in 1..2^31")
        if width != token_width(vocab):
            raise self._fail(f"token width {width}, a vocabulary of {vocab} needs {token_width(vocab)}")
        if rest != bytes(8):
            raise self._fail("the last 8 bytes of the header are not zero")
        wanted = HEADER_BYTES + 8 * (docs + 1) + width * tokens
        if size != wanted:
            kind = "truncated" if size < wanted else "too long"
            raise self._fail(
                f"{kind}: {size} bytes, but {docs} documents and {tokens} ids need {wanted} bytes"
            )
        if tokens > text:
            raise self._fail(f"{tokens} ids for {text} bytes of text, but each id is a byte or more")
        return BtokHeader(vocab, width, docs, tokens, text, tokenizer, content)

    def verify(self) -> None:
        """Check the content hash, all offsets and all ids (one sequential pass, blocks of 4 MiB)."""
        offsets, docs, tokens = self.offsets, self.header.n_docs, self.header.n_tokens
        if int(offsets[0]) != 0:
            raise self._fail(f"offsets[0] is {int(offsets[0])}, not 0")
        for begin in range(0, docs, _BLOCK_IDS):
            part = offsets[begin : min(begin + _BLOCK_IDS, docs) + 1]
            flat = part[1:] <= part[:-1]
            if flat.any():
                doc = begin + int(np.argmax(flat))
                low, high = int(offsets[doc]), int(offsets[doc + 1])
                raise self._fail(f"document {doc} goes from id {low} to {high}: offsets must rise")
        if int(offsets[-1]) != tokens:
            raise self._fail(f"the last offset is {int(offsets[-1])}, the header says {tokens} ids")
        for begin in range(0, tokens, _BLOCK_IDS):
            block = self.ids[begin : begin + _BLOCK_IDS]
            bad = (block >= self.header.vocab_size) | (block == BOS)
            if bad.any():
                at = begin + int(np.argmax(bad))
                doc = int(np.searchsorted(offsets, np.uint64(at), side="right")) - 1
                token = int(self.ids[at])
                why = "is BOS, which only the loader sets" if token == BOS else "is out of range"
                raise self._fail(
                    f"document {doc}, position {at - int(offsets[doc])}: id {token} {why} "
                    f"(vocabulary {self.header.vocab_size})"
                )
        digest = xxhash.xxh64()
        for begin in range(0, self._body.size, 4 * _BLOCK_IDS):
            digest.update(self._body[begin : begin + 4 * _BLOCK_IDS].tobytes())
        if digest.intdigest() != self.header.content_hash:
            raise self._fail(
                f"content hash {digest.intdigest():016x}, the header says {self.header.content_hash:016x}: "
                "the file was changed or damaged"
            )

    def check_tokenizer(self, tokenizer: TokenizerLike) -> None:
        """Raise DataError unless the file was packed with `tokenizer`."""
        if self.header.vocab_size != tokenizer.vocab_size or self.header.tokenizer_hash != tokenizer.hash:
            raise DataError(
                f"{self.path}: packed with tokenizer {self.header.tokenizer_hash:016x} "
                f"({self.header.vocab_size} ids), but the tokenizer given is {tokenizer.hash:016x} "
                f"({tokenizer.vocab_size} ids); give the tokenizer it was packed with, or pack again"
            )

    def __len__(self) -> int:
        return self.header.n_docs

    def __getitem__(self, doc: int) -> npt.NDArray[Any]:
        if not 0 <= doc < self.header.n_docs:
            raise IndexError(f"{self.path}: document {doc} is not in 0..{self.header.n_docs - 1}")
        return self.ids[int(self.offsets[doc]) : int(self.offsets[doc + 1])]
