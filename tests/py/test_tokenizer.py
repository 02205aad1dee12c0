"""The tokenizer: any bytes survive, the longest match is taken, its file refuses what is wrong."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import andrea
from andrea.tokenizer import Tokenizer
from tokenizer_cases import LANGUAGES, NASTY, random_texts, small_tokenizer

SEGMENTS = ["th", "the", " the", "ing", "été", "  ", "x\ny"]
text_with_surrogates = st.text(st.characters(exclude_categories=()))


def slow_encode(data: bytes, segments: list[str]) -> list[int]:
    """Longest match, written so that it cannot be wrong."""
    table = {segment.encode(): 257 + i for i, segment in enumerate(segments)}
    longest = max(map(len, table), default=1)
    ids, at = [], 0
    while at < len(data):
        length = next((n for n in range(longest, 1, -1) if data[at : at + n] in table), 1)
        ids.append(table[data[at : at + length]] if length > 1 else data[at])
        at += length
    return ids


@given(st.binary())
def test_bytes_round_trip(data: bytes) -> None:
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(data)
    assert ids.dtype == np.int32
    assert 256 not in ids
    assert tokenizer.decode_bytes(ids) == data


@given(text_with_surrogates)
def test_text_round_trip_with_surrogates(text: str) -> None:
    tokenizer = small_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.sampled_from(["t", "h", "e", " ", "the", "ing", "été", "x", "\n", "y", "é", "\x00"])))
@settings(max_examples=300)
def test_longest_match(parts: list[str]) -> None:
    data = "".join(parts).encode()
    assert Tokenizer.from_segments(SEGMENTS).encode(data).tolist() == slow_encode(data, SEGMENTS)


def test_longest_match_of_a_trained_vocabulary() -> None:
    tokenizer = small_tokenizer()
    for text in [*NASTY, *LANGUAGES.values(), *random_texts(300, seed=1)]:
        data = text.encode()
        assert tokenizer.encode(data).tolist() == slow_encode(data, tokenizer.segments)


def test_all_strings_of_one_and_two_bytes() -> None:
    tokenizer = small_tokenizer()
    strings = [bytes([a]) for a in range(256)] + [bytes([a, b]) for a in range(256) for b in range(256)]
    ids, offsets = tokenizer.encode_batch(strings)
    assert tokenizer.decode_bytes(ids) == b"".join(strings)
    lengths = np.diff(offsets)
    assert lengths.min() == 1
    assert lengths.max() == 2


def test_truncated_characters_survive() -> None:
    tokenizer = small_tokenizer()
    for text in LANGUAGES.values():
        data = text.encode()
        for cut in range(len(data)):
            assert tokenizer.decode_bytes(tokenizer.encode(data[:cut])) == data[:cut]


def test_files_of_a_folder_survive() -> None:
    """ANDREA_TEXT_DIR names a folder of texts, however nasty."""
    folder = os.environ.get("ANDREA_TEXT_DIR")
    if folder is None:
        pytest.skip("ANDREA_TEXT_DIR is not set")
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert small_tokenizer().decode_bytes(small_tokenizer().encode(data)) == data


@given(text_with_surrogates, st.data())
def test_streaming_gives_whole_characters(text: str, data: Any) -> None:
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(text).tolist()
    decoder = tokenizer.stream_decoder()
    pieces = []
    while ids:
        n = data.draw(st.integers(1, len(ids)))
        pieces.append(decoder.push(ids[:n]))
        ids = ids[n:]
    assert all("\ufffd" not in piece or "\ufffd" in text for piece in pieces)
    assert "".join(pieces) + decoder.finish() == text


@given(st.binary())
def test_streaming_equals_decoding_at_once(data: bytes) -> None:
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(data)
    decoder = tokenizer.stream_decoder()
    assert "".join(decoder.push(int(i)) for i in ids) + decoder.finish() == tokenizer.decode(ids)


def test_bos_decodes_to_nothing() -> None:
    tokenizer = Tokenizer.from_segments(SEGMENTS)
    assert tokenizer.bos == 256
    assert tokenizer.decode([256, 104, 256, 105]) == "hi"


@pytest.mark.parametrize("wrong", [[265], [-1], [2**40], np.array([2**63], dtype=np.uint64)])
def test_ids_out_of_range(wrong: Any) -> None:
    tokenizer = Tokenizer.from_segments(SEGMENTS)
    assert tokenizer.vocab_size == 264
    with pytest.raises(andrea.DataError, match="position 0"):
        tokenizer.decode(wrong)


def test_types() -> None:
    tokenizer = Tokenizer.from_segments(SEGMENTS)
    with pytest.raises(TypeError):
        tokenizer.encode(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tokenizer.encode_batch("text")
    with pytest.raises(TypeError):
        tokenizer.decode([1.5])
    assert tokenizer.decode(np.array([104, 105], dtype=np.uint16)) == "hi"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_batches_equal_single_texts(threads: int) -> None:
    tokenizer = small_tokenizer()
    texts: list[str | bytes] = [*NASTY, b"\xff\xfe", "\ud800", *random_texts(200, seed=2), "long " * 100_000]
    ids, offsets = tokenizer.encode_batch(texts, threads=threads)
    assert offsets.dtype == np.int64
    assert len(offsets) == len(texts) + 1
    for i, text in enumerate(texts):
        assert np.array_equal(ids[offsets[i] : offsets[i + 1]], tokenizer.encode(text))
    empty_ids, empty_offsets = tokenizer.encode_batch([])
    assert empty_ids.size == 0
    assert empty_offsets.tolist() == [0]


def test_hash_is_that_of_the_format() -> None:
    content = b"".join(len(s.encode()).to_bytes(4, "little") + s.encode() for s in SEGMENTS)
    assert Tokenizer.from_segments(SEGMENTS).hash == xxhash.xxh64_intdigest(content)


def test_pickle_and_equality() -> None:
    tokenizer = Tokenizer.from_segments(SEGMENTS)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert tokenizer != Tokenizer.from_segments(SEGMENTS[::-1])
    assert tokenizer != 5


def test_file_round_trip(tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    tokenizer.save(str(tmp_path / "t.json"))
    again = Tokenizer.load(str(tmp_path / "t.json"))
    assert again == tokenizer
    assert again.counts == tokenizer.counts
    assert json.loads(again.training_json) == json.loads(tokenizer.training_json)
    again.save(str(tmp_path / "u.json"))
    assert (tmp_path / "u.json").read_bytes() == (tmp_path / "t.json").read_bytes()


def _damage(document: dict[str, Any], what: str) -> Any:
    segments = document["segments"]
    match what:
        case "version":
            document["version"] = 2
        case "format":
            document["format"] = "other"
        case "N":
            document["N"] += 1
        case "duplicate":
            segments[1][0] = segments[0][0]
        case "hash":
            segments[0], segments[1] = segments[1], segments[0]
        case "short":
            segments[0][0] = "x"
        case "long":
            segments[0][0] = "x" * 256
        case "shape":
            segments[0] = "th"
        case "count":
            segments[0][1] = -1
        case "missing":
            del document["training"]
        case "list":
            return segments
    return document


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("version", "version 2"),
        ("format", "format"),
        ("N", "N is 8"),
        ("duplicate", 'segment 1 "th" is the same as segment 0'),
        ("hash", "hash"),
        ("short", "fewer than 2 bytes"),
        ("long", "256 bytes"),
        ("shape", r"segments\[0\]"),
        ("count", r"segments\[0\]"),
        ("missing", '"training" is missing'),
        ("list", "object"),
    ],
)
def test_file_refusals(tmp_path: Path, what: str, message: str) -> None:
    path = tmp_path / "t.json"
    Tokenizer.from_segments(SEGMENTS).save(str(path))
    path.write_text(json.dumps(_damage(json.loads(path.read_text()), what)))
    with pytest.raises(andrea.DataError, match=message) as caught:
        Tokenizer.load(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"format": "\\ud800"}', b"[" * 100_000])
def test_files_that_are_no_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(andrea.DataError):
        Tokenizer.load(str(path))


def test_io_errors(tmp_path: Path) -> None:
    with pytest.raises(andrea.IoError, match="cannot read"):
        Tokenizer.load(str(tmp_path / "absent.json"))
    with pytest.raises(andrea.IoError, match="cannot read"):
        Tokenizer.load(str(tmp_path))
    with pytest.raises(andrea.IoError, match="cannot write"):
        small_tokenizer().save(str(tmp_path / "no" / "t.json"))
    assert list(tmp_path.iterdir()) == []
