"""From a file's bytes to clean text: compression, encodings, line ends, control characters.

UTF-8 comes first. A byte order mark names UTF-8, UTF-16 or UTF-32. What is not UTF-8 is read as Latin-1 only
if it looks like Latin-1 prose (counted), or as the encoding that the caller names; otherwise the file is
decoded as UTF-8 with U+FFFD for the bad bytes when they are few (counted, with the offset), or left out.
Nothing is replaced without being counted. No Unicode normal form is applied.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from andrea.data.tally import Tally
from andrea.errors import DataError, IoError

BLOCK_BYTES = 1 << 20
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")
_C0 = bytes([*range(9), *range(11, 32), 127])
_AS_SPACE = re.compile("[\x0b\x0c\x85]")
_BAD_SHARE = 0.02  # more bad bytes than this and the file is no UTF-8 with a few accidents
_NUL_SHARE = 0.02


def clean(text: str) -> str:
    """Return `text` with LF line ends and without terminal escapes, control characters and U+FEFF.

    CRLF and CR become LF; VT, FF and NEL a space; tab, U+2028, U+2029 and all format characters
    (joiners, bidi marks, variation selectors) stay.
    """
    # Deleting from bytes finds out ten times faster than an expression that there is nothing to do.
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw.translate(None, _C0)) == len(raw) and (text.isascii() or _CONTROL.search(text) is None):
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", _AS_SPACE.sub(" ", text))


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, gzip and Zstandard looked through by their magic bytes, whatever the name says."""
    try:
        raw = open(path, "rb")  # noqa: SIM115 (the caller closes it)
        magic = raw.read(4)
        raw.seek(0)
    except OSError as error:
        raise IoError(f"{path}: cannot read: {error.strerror}; check the path") from error
    if magic[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if magic == b"\x28\xb5\x2f\xfd":
        try:
            zstandard: Any = import_module("zstandard")
        except ImportError as error:
            raw.close()
            raise DataError(
                f"{path}: Zstandard data needs the package zstandard: pip install zstandard"
            ) from error
        unpacked = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=True)
        return cast(IO[bytes], unpacked)
    return raw


def blocks(path: Path, tally: Tally) -> Iterator[bytes]:
    """Yield the (decompressed) bytes of a file; a broken archive ends early and is counted."""
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    with suppress(ImportError):
        errors = (*errors, import_module("zstandard").ZstdError)
    with open_bytes(path) as source:
        # read1 of an archive gives what was unpacked before the place where it breaks off.
        step = source.read if isinstance(source, io.BufferedReader) else cast(Any, source).read1
        while True:
            try:
                block = step(BLOCK_BYTES)
            except errors as error:
                tally.mend("compressed data breaks off", str(path), str(error))
                return
            if not block:
                return
            yield block


def _looks_latin1(sample: bytes) -> bool:
    """Whether bytes that are not UTF-8 look like western prose in ISO-8859-1."""
    high = re.findall(rb"[\x80-\xff]", sample)
    if re.search(rb"[\x80-\x9f]", sample) or len(high) > 0.2 * max(1, len(sample)):
        return False
    usual = re.findall(rb"[\xc0-\xff\xa1\xa3\xa7\xa9\xab\xb0\xb7\xbb-\xbf]", sample)
    inside = re.findall(rb"[A-Za-z][\xa1-\xbf][A-Za-z]", sample)  # other one-byte codes have letters there
    return not inside and not re.search(rb"[\xa1-\xff]{4}", sample) and len(usual) >= 0.9 * len(high)


def detect(path: Path, tally: Tally, encoding: str | None = None) -> tuple[str, str] | None:
    """Return (codec, error handler) for a file, or None when it is left out (then it is counted).

    Reads the file once in blocks.
    """
    total = nuls = bad = multibyte = 0
    first_bad = -1
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    sample = bytearray()
    for block in blocks(path, tally):
        if total == 0:
            for mark, codec in _BOMS:
                if block.startswith(mark):
                    if codec != "utf-8":
                        tally.mend(f"read as {codec} by its byte order mark", str(path))
                        return codec, "replace"
                    break
        nuls += block.count(0)
        if not block.isascii() or decoder.getstate()[0]:
            text = decoder.decode(block)
            escapes = [m.start() for m in re.finditer("[\udc80-\udcff]", text)]
            if escapes and first_bad < 0:
                first_bad = total + len(text[: escapes[0]].encode("utf-8"))
            bad += len(escapes)
            multibyte += len(re.findall("[^\x00-\x7f\udc80-\udcff]", text))
            if len(sample) < 4 * BLOCK_BYTES:
                sample += block
        total += len(block)
    tail = decoder.decode(b"", True)
    if tail:
        first_bad = total - len(tail) if first_bad < 0 else first_bad
        bad += len(tail)
    if total == 0:
        tally.drop("empty file", str(path))
        return None
    if encoding is not None:
        return encoding, "replace"
    if nuls > _NUL_SHARE * total:
        tally.drop("binary file (NUL bytes)", f"{path}: {nuls} NUL bytes in {total}; name its encoding")
        return None
    if nuls:
        tally.mend("NUL bytes removed", f"{path}: {nuls}", count=nuls)
    if bad == 0:
        return "utf-8", "strict"
    if multibyte == 0 and tail == "" and _looks_latin1(bytes(sample)):
        tally.mend("file read as Latin-1", f"{path}: first byte that is not UTF-8 at {first_bad}")
        return "latin-1", "strict"
    if bad > max(16, _BAD_SHARE * total):
        tally.drop(
            "file in an unknown encoding",
            f"{path}: {bad} of {total} bytes are not UTF-8, the first at {first_bad}; name its encoding",
        )
        return None
    tally.mend("bytes that are not UTF-8 became U+FFFD", f"{path}: first at byte {first_bad}", count=bad)
    return "utf-8", "replace"


def text_blocks(path: Path, tally: Tally, encoding: str | None = None) -> Iterator[str]:
    """Yield the clean text of a file in blocks of about 1 MiB that end at line ends where they can."""
    found = detect(path, tally, encoding)
    if found is None:
        return
    codec, errors = found
    try:
        decoder = codecs.getincrementaldecoder(codec)(errors)
    except LookupError as error:
        raise DataError(f"{path}: no encoding named {codec!r}; see Python's list of codecs") from error
    held = ""
    for block in blocks(path, Tally()):
        tally.read_bytes += len(block)
        more = decoder.decode(block)
        if codec != "utf-8" and "\ufffd" in more:
            tally.mend(f"bytes that are not {codec} became U+FFFD", str(path), count=more.count("\ufffd"))
        held += more
        # A CR at the end may be half of a CRLF, an escape sequence may be cut: keep the last line back.
        cut = max(held.rfind("\n"), held[:-1].rfind("\r")) + 1
        if cut == 0 and len(held) > 8 * BLOCK_BYTES:
            cut = len(held) - 64
        if cut:
            yield clean(held[:cut])
            held = held[cut:]
    held += decoder.decode(b"", True)
    if held:
        yield clean(held)
