"""JSON lines: one row at a time, split on LF only, every bad row named by file and line and counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from andrea.data.tally import Tally, shown
from andrea.data.text import BLOCK_BYTES, blocks
from andrea.errors import DataError

ROW_BYTES_MAX = 64 << 20  # a longer row is dropped, so memory is bounded whatever the file holds
T = TypeVar("T")
Span = tuple[int, int, int] | None  # first and last byte (or row group), lines before it
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def raw_lines(path: Path, tally: Tally, span: Span = None) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, bytes without LF) of non-blank lines; rows over 64 MiB are dropped.

    With `span` = (begin, end, lines before) only the lines that begin in these bytes of an uncompressed
    file are given.
    """
    held: list[bytes] = []
    size, number, skipping = 0, span[2] if span else 0, False
    for block in _span_blocks(path, span) if span else _decoded(path, tally):
        tally.read_bytes += len(block)
        lines = block.split(b"\n")
        if len(lines) == 1:
            size += len(block)
            if not skipping:
                held.append(block)
                if size > ROW_BYTES_MAX:
                    skipping, held = True, []
            continue
        held.append(lines[0])
        size += len(lines[0])
        number += 1
        if skipping or size > ROW_BYTES_MAX:
            tally.drop(f"row longer than {ROW_BYTES_MAX >> 20} MiB", f"{path}:{number}")
        else:
            first = b"".join(held)
            if first and not first.isspace():
                yield number, first
        for line in lines[1:-1]:
            number += 1
            if line and not line.isspace():
                yield number, line
        held, size, skipping = [lines[-1]], len(lines[-1]), False
    number += 1
    if skipping:
        tally.drop(f"row longer than {ROW_BYTES_MAX >> 20} MiB", f"{path}:{number}")
    elif (last := b"".join(held)) and not last.isspace():
        yield number, last


def _decoded(path: Path, tally: Tally) -> Iterator[bytes]:
    """Yield UTF-8 bytes: a mark is taken off, UTF-16 is decoded by its mark."""
    import codecs

    decoder: codecs.IncrementalDecoder | None = None
    first = True
    for block in blocks(path, tally):
        if first:
            first = False
            if block.startswith(codecs.BOM_UTF8):
                block = block[3:]
            elif block[:2] in _UTF16:
                codec = _UTF16[block[:2]]
                tally.mend(f"read as {codec} by its byte order mark", str(path))
                decoder = codecs.getincrementaldecoder(codec)("replace")
                block = block[2:]
        yield block if decoder is None else decoder.decode(block).encode("utf-8", "replace")


def _span_blocks(path: Path, span: tuple[int, int, int]) -> Iterator[bytes]:
    """Yield the bytes of the lines that begin in [begin, end)."""
    begin, end, _ = span
    with open(path, "rb") as source:
        if begin > 0:
            source.seek(begin - 1)
            while (part := source.readline(BLOCK_BYTES)) and not part.endswith(b"\n"):
                pass
        else:
            end = max(end, 3)
            if source.read(3) == b"\xef\xbb\xbf":
                while (part := source.readline(BLOCK_BYTES)) and not part.endswith(b"\n"):
                    yield part
                yield part
            else:
                source.seek(0)
        while (at := source.tell()) < end:
            block = source.read(min(BLOCK_BYTES, end - at))
            if not block:
                return
            if at + len(block) >= end and not block.endswith(b"\n"):
                yield block
                while part := source.readline(BLOCK_BYTES):
                    yield part
                    if part.endswith(b"\n"):
                        break
                return
            yield block


def reason_of(error: Exception) -> str:
    """Return the reason to count for a row that the decoder refused."""
    if isinstance(error, msgspec.ValidationError):
        return "row of a wrong type"
    return "bad JSON"


def rows(path: Path, tally: Tally, row_type: type[T], span: Span = None) -> Iterator[tuple[int, T]]:
    """Yield (line, row) decoded as `row_type`; bad rows are dropped and counted with their line.

    Raises DataError if the file is one JSON array of something else than rows or pretty-printed JSON.
    """
    decoder = msgspec.json.Decoder(row_type)
    decode = decoder.decode
    good = bad = 0
    for line, raw in raw_lines(path, tally, span):
        try:
            row = decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            stripped = raw.strip()
            if good == bad == 0 and (span is None or span[0] == 0):
                if stripped.startswith(b"[") and stripped.endswith(b"]"):
                    yield from _array(path, raw, row_type, line, tally)
                    good += 1
                    continue
                if stripped in (b"{", b"[", b"[{"):
                    raise DataError(
                        f"{path}:{line}: not JSON lines: the first row is only {stripped.decode()!r}, so "
                        "this is JSON spread over several lines; write one object a line "
                        "(python -m json.tool --json-lines, or jq -c)"
                    ) from error
            bad += 1
            message = "nested too deep" if isinstance(error, RecursionError) else str(error)
            tally.drop(
                reason_of(error), f"{path}:{line}: {message}", shown(raw[:200].decode("utf-8", "replace"))
            )
            continue
        good += 1
        yield line, row


def _array(path: Path, raw: bytes, row_type: type[T], line: int, tally: Tally) -> Iterator[tuple[int, T]]:
    """Yield the elements of a JSON array that stands on one line under a .jsonl name."""
    try:
        elements = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        tally.drop(reason_of(error), f"{path}:{line}: {error}")
        return
    tally.mend("JSON array read as rows", f"{path}:{line}")
    for index, element in enumerate(elements):
        try:
            yield line, msgspec.json.decode(element, type=row_type)
        except (msgspec.DecodeError, RecursionError) as error:
            tally.drop(reason_of(error), f"{path}:{line}, element {index}: {error}")


def keys_of(raw: Any) -> str:
    """Return the keys of a decoded object for a message."""
    return ", ".join(map(repr, raw)) if isinstance(raw, dict) and raw else "none"
