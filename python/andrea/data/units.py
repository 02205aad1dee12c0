"""Units of work: a part of a source that one process reads, filters, encodes and writes as chunks.

What a unit is depends on the files alone (never on the number of processes), so the result does not
either. A unit is finished when its `.json` is there; its chunks hold ids, lengths, hashes and signatures.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from andrea.data.btok import load_tokenizer, token_width
from andrea.data.files import atomic_write, write_bytes
from andrea.data.pack import HOLDOUT_SEED, Batch, DocumentEncoder
from andrea.data.readers import ROW_READERS, Options, bare_name, read
from andrea.data.readers.jsonl import raw_lines
from andrea.data.recipe import Plan, fingerprint
from andrea.data.shape import has_system_prompt_shape
from andrea.data.similar import document_hash, signatures
from andrea.data.tally import Tally
from andrea.errors import IoError

UNIT_BYTES = 32 << 20
CHUNK_BYTES = 32 << 20  # of text; a unit of one huge file becomes several chunks, so memory is bounded
FORMAT = 1
ARRAYS = ("ids", "lengths", "sizes", "hashes", "order", "signatures")


class Piece(msgspec.Struct, frozen=True):
    """A file, or the rows of a part of it, with what tells whether it has changed."""

    path: str
    size: int
    mtime: int
    span: tuple[int, int, int] | None = None


class Unit(msgspec.Struct, frozen=True):
    """One unit of one source."""

    source: str
    index: int
    reader: str
    options: Options
    filters: dict[str, Any]
    pieces: tuple[Piece, ...]
    context: int
    tokenizer: str
    tokenizer_hash: int
    folder: str

    def key(self) -> str:
        """Return what must be the same for finished work to be used again."""
        return fingerprint(
            FORMAT,
            self.reader,
            msgspec.structs.asdict(self.options),
            self.filters,
            [msgspec.structs.asdict(p) for p in self.pieces],
            self.context,
            self.tokenizer_hash,
        )

    def name(self) -> str:
        """Return the stem of the unit's files."""
        return f"{self.source}-{self.index:06d}"


class Chunk(msgspec.Struct, frozen=True):
    """A file of arrays one behind the other; (dtype, shape) of each stand here."""

    name: str
    n_bytes: int
    arrays: dict[str, tuple[str, tuple[int, ...]]]


class Done(msgspec.Struct, frozen=True):
    """The result of a unit."""

    key: str
    chunks: list[Chunk]
    tally: dict[str, Any]


def units_of(plan: Plan, context: int, tokenizer: Path, tokenizer_hash: int, folder: Path) -> list[Unit]:
    """Cut a source into units of about 32 MiB: parts of large files of rows, groups of small files."""
    groups: list[list[Piece]] = []
    held: list[Piece] = []
    size = 0
    for piece in (p for path in plan.files for p in _pieces(path, plan.reader)):
        if held and size + piece.size > UNIT_BYTES:
            groups.append(held)
            held, size = [], 0
        held.append(piece)
        size += piece.size if piece.span is None else UNIT_BYTES
    if held:
        groups.append(held)
    filters = plan.filters.model_dump()
    work = {name: filters[name] for name in ("min_bytes", "max_bytes", "system_prompt_shape")}
    work["signatures"] = filters["near_duplicates"] is not None
    return [
        Unit(
            plan.name,
            index,
            plan.reader,
            plan.options,
            work,
            tuple(group),
            context,
            str(tokenizer),
            tokenizer_hash,
            str(folder),
        )
        for index, group in enumerate(groups)
    ]


def _pieces(path: Path, reader: str) -> Iterator[Piece]:
    try:
        found = path.stat()
    except OSError as error:
        raise IoError(f"{path}: cannot read: {error.strerror}; check the path") from error
    if path.is_dir():
        head = path / ".git" / "logs" / "HEAD"
        yield Piece(str(path), 0, head.stat().st_mtime_ns if head.exists() else found.st_mtime_ns)
        return
    size, mtime = found.st_size, found.st_mtime_ns
    if reader in ROW_READERS and size > UNIT_BYTES and _is_rows(path):
        for begin, before in _line_counts(path, size):
            yield Piece(str(path), size, mtime, (begin, min(size, begin + UNIT_BYTES), before))
    elif reader in ROW_READERS and size > UNIT_BYTES and bare_name(path).endswith(".parquet"):
        from andrea.data.readers.table import row_groups

        for group in range(row_groups(path)):
            yield Piece(str(path), size, mtime, (group, group + 1, 0))
    else:
        yield Piece(str(path), size, mtime)


def _line_counts(path: Path, size: int) -> Iterator[tuple[int, int]]:
    """Yield (first byte of a part, lines that begin before it), so that messages name true lines."""
    yield 0, 0
    ends = 0
    with open(path, "rb") as source:
        for begin in range(UNIT_BYTES, size, UNIT_BYTES):
            # The line that holds the byte before `begin` belongs to the part before.
            while (left := begin - 1 - source.tell()) > 0:
                ends += source.read(min(left, 1 << 20)).count(b"\n")
            yield begin, ends + 1


def _is_rows(path: Path) -> bool:
    """Whether a file is uncompressed UTF-8 of one row a line, so that it can be read from the middle."""
    if path.name.lower().endswith(".parquet"):
        return False
    with open(path, "rb") as source:
        head = source.read(4)
    if head[:2] in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff") or head == b"\x28\xb5\x2f\xfd":
        return False
    first = next(raw_lines(path, Tally(), (0, 1, 0)), (0, b""))[1].strip()
    return first.startswith(b"{")


_tokenizers: dict[tuple[str, int], DocumentEncoder] = {}
atexit.register(_tokenizers.clear)  # native objects go before the interpreter does


def _encoder(unit: Unit) -> DocumentEncoder:
    key = (unit.tokenizer, unit.context)
    if key not in _tokenizers:
        tokenizer = load_tokenizer(unit.tokenizer)
        _tokenizers[key] = DocumentEncoder(tokenizer, unit.context, threads=1)
    return _tokenizers[key]


def documents(unit: Unit, tally: Tally) -> Iterator[bytes]:
    """Yield the documents of a unit that pass its filters."""
    low, high = unit.filters["min_bytes"], unit.filters["max_bytes"]
    shape = unit.filters["system_prompt_shape"]
    for piece in unit.pieces:
        path = Path(piece.path)
        for number, text in enumerate(read(unit.reader, path, tally, unit.options, piece.span), start=1):
            if shape and has_system_prompt_shape(text):
                tally.drop("system prompt shape", f"{path}: document {number}", text)
                continue
            raw = text.encode("utf-8")
            if not text.strip():
                tally.drop("empty document", f"{path}: document {number}")
            elif len(raw) < low:
                tally.drop("shorter than min_bytes", f"{path}: document {number}", text)
            elif high is not None and len(raw) > high:
                tally.drop("longer than max_bytes", f"{path}: document {number}", text)
            else:
                yield raw


def run_unit(unit: Unit) -> str:
    """Do a unit unless it is done already; returns the path of its `.json`. Runs in a worker process."""
    folder = Path(unit.folder)
    mark = folder / f"{unit.name()}.json"
    if finished(unit) is not None:
        return str(mark)
    tally = Tally()
    encoder = _encoder(unit)
    chunks: list[Chunk] = []
    held: list[dict[str, npt.NDArray[Any]]] = []
    size = 0
    for batch in encoder.stream(documents(unit, tally)):
        held.append(_arrays(batch, encoder, unit.filters["signatures"]))
        size += int(held[-1]["sizes"].sum())
        if size >= CHUNK_BYTES:
            chunks.append(_write_chunk(folder / f"{unit.name()}.{len(chunks):04d}.part", held))
            held, size = [], 0
    if held:
        chunks.append(_write_chunk(folder / f"{unit.name()}.{len(chunks):04d}.part", held))
    write_bytes(mark, msgspec.json.encode(Done(unit.key(), chunks, tally.to_json())))
    return str(mark)


def _arrays(batch: Batch, encoder: DocumentEncoder, signed: bool) -> dict[str, npt.NDArray[Any]]:
    width = np.dtype("<u2" if token_width(encoder.tokenizer.vocab_size) == 2 else "<u4")
    hashes = b"".join(map(document_hash, batch.texts))
    order = [xxhash.xxh64_intdigest(text, HOLDOUT_SEED) for text in batch.texts]
    count = len(batch.texts)
    return {
        "ids": batch.ids.astype(width),
        "lengths": np.diff(batch.offsets).astype("<u4"),
        "sizes": np.fromiter(map(len, batch.texts), "<u4", count),
        "hashes": np.frombuffer(hashes, "<u8").reshape(count, 2),
        "order": np.array(order, "<u8"),
        "signatures": signatures(batch.texts) if signed else np.zeros((count, 0), "<u4"),
    }


def _write_chunk(path: Path, held: list[dict[str, npt.NDArray[Any]]]) -> Chunk:
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    with atomic_write(path) as out:
        for name in ARRAYS:
            whole = np.concatenate([arrays[name] for arrays in held])
            shapes[name] = (whole.dtype.str, whole.shape)
            out.write(whole.tobytes())
            out.write(bytes(-out.tell() % 8))
        size = out.tell()
    return Chunk(path.name, size, shapes)


def open_chunk(folder: Path, chunk: Chunk) -> dict[str, npt.NDArray[Any]]:
    """Map the arrays of a chunk."""
    raw = np.memmap(folder / chunk.name, dtype=np.uint8, mode="r") if chunk.n_bytes else np.zeros(0, np.uint8)
    arrays, at = {}, 0
    for name in ARRAYS:
        kind, shape = chunk.arrays[name]
        n_bytes = int(np.dtype(kind).itemsize * np.prod(shape, dtype=np.int64))
        arrays[name] = raw[at : at + n_bytes].view(kind).reshape(shape)
        at += n_bytes + -n_bytes % 8
    return arrays


def finished(unit: Unit) -> Done | None:
    """Return the result of a unit if it is there, whole, and of the same input; else None."""
    folder = Path(unit.folder)
    try:
        done = msgspec.json.decode((folder / f"{unit.name()}.json").read_bytes(), type=Done)
        sizes = [os.path.getsize(folder / chunk.name) for chunk in done.chunks]
    except (OSError, msgspec.DecodeError):
        return None
    whole = done.key == unit.key() and sizes == [chunk.n_bytes for chunk in done.chunks]
    return done if whole else None
