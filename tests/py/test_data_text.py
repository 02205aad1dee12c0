"""Bytes to text: every encoding and line end either read or counted, nothing replaced without a word."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

import pytest

from andrea.data.readers import documents_of
from andrea.data.tally import Tally, shown
from andrea.data.text import clean, text_blocks
from andrea.errors import DataError, IoError


def read(tmp_path: Path, content: bytes, encoding: str | None = None) -> tuple[str, Tally]:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    tally = Tally()
    return "".join(text_blocks(path, tally, encoding)), tally


UTF16 = "read as utf-16-{} by its byte order mark"
REPLACED = "bytes that are not UTF-8 became U+FFFD"
RUSSIAN = "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 "
LATIN = "Un caf\u00e9 \u00e0 vingt degr\u00e9s, s'il vous pla\u00eet.\n" * 3


@pytest.mark.parametrize(
    ("content", "text", "mended"),
    [
        (b"plain\n", "plain\n", {}),
        (codecs.BOM_UTF8 + b"mark\n", "mark\n", {}),
        (
            codecs.BOM_UTF16_LE + "w\u00e9\n".encode("utf-16-le"),
            "w\u00e9\n",
            {UTF16.format("le"): 1},
        ),
        (
            codecs.BOM_UTF16_BE + "w\u00e9\n".encode("utf-16-be"),
            "w\u00e9\n",
            {UTF16.format("be"): 1},
        ),
        (LATIN.encode("latin-1"), LATIN, {"file read as Latin-1": 1}),
        (b"a\xff\n\xe4\xbd\xa0 b\n", "a\ufffd\n\u4f60 b\n", {REPLACED: 1}),
        (
            "\u4f60\u597d".encode() + b"\xe4\xbd",
            "\u4f60\u597d\ufffd",
            {REPLACED: 2},
        ),
        (b"null\0byte" * 9 + b"." * 400, "nullbyte" * 9 + "." * 400, {"NUL bytes removed": 9}),
        ("really \ufffd there".encode(), "really \ufffd there", {}),
    ],
)
def test_encodings(tmp_path: Path, content: bytes, text: str, mended: dict[str, int]) -> None:
    found, tally = read(tmp_path, content)
    assert found == text
    assert dict(tally.mended) == mended
    assert not tally.dropped


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty file"),
        ("zwei W\u00f6rter".encode("utf-16-be"), "binary file (NUL bytes)"),
        (
            RUSSIAN.encode("cp1251") * 20,
            "file in an unknown encoding",
        ),
    ],
)
def test_left_out_and_counted(tmp_path: Path, content: bytes, reason: str) -> None:
    found, tally = read(tmp_path, content)
    assert found == ""
    assert tally.dropped == {reason: 1}
    assert "a.txt" in tally.examples[reason][0]


def test_a_named_encoding_is_used(tmp_path: Path) -> None:
    text = "\u043f\u0440\u0438\u0432\u0435\u0442"
    assert read(tmp_path, text.encode("cp1251"), "cp1251")[0] == text
    with pytest.raises(DataError, match="no encoding named"):
        read(tmp_path, b"x", "klingon")


def test_line_ends_and_controls() -> None:
    assert clean("a\r\nb\rc\n\vd\fe\u0085f\u2028g\u2029h") == "a\nb\nc\n d e f\u2028g\u2029h"
    assert clean("\x1b[1;31mred\x1b[0m \x07bell\x08 \x7f\x9b0m\ufefftab\t") == "red bell tab\t"
    kept = "\u200d\u200c\u200b\u00ad\u202e\ue000\U0010ffff e\u0301 \u00e9"
    assert clean(kept) == kept


def test_crlf_across_blocks(tmp_path: Path) -> None:
    lines = [f"line {i} \u00e9" for i in range(200_000)]
    text, _ = read(tmp_path, "\r\n".join(lines).encode())
    assert text == "\n".join(lines)


def test_compressed(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    content = b"packed text\n" * 1000
    assert read(tmp_path, gzip.compress(content))[0].encode() == content
    assert read(tmp_path, zstandard.ZstdCompressor().compress(content))[0].encode() == content
    text, tally = read(tmp_path, gzip.compress(bytes(range(32, 127)) * 3000)[:-40])
    assert tally.mended["compressed data breaks off"] >= 1
    assert text


def test_a_missing_file_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="nowhere"):
        list(documents_of(tmp_path / "nowhere.txt", Tally()))


def test_examples_are_safe_on_a_terminal() -> None:
    assert shown("\x1b[31m\u202e\n") == "\\x1b[31m\\u202e\\n"


def test_names_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "name with spaces & [odd].txt"
    path.write_text("good")
    assert list(documents_of(path, Tally())) == ["good"]
