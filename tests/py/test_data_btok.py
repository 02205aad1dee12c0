"""The `.btok` format: written, read, and every damage named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea._core import BtokFile
from andrea.data.btok import BOS, Btok, BtokWriter
from andrea.data.pack import held_out_path, pack_documents, pack_files
from andrea.errors import ConfigError, DataError, IoError
from data_doubles import small_tokenizer, texts_in


def write(path: Path, documents: list[list[int]], vocab: int = 300) -> Path:
    with BtokWriter(path, vocab, 0xABCDEF) as out:
        for document in documents:
            out.add(document, 3 * len(document))
    return path


def test_layout_is_that_of_the_format(tmp_path: Path) -> None:
    path = write(tmp_path / "a.btok", [[1, 2, 299], [7]])
    raw = path.read_bytes()
    body = struct.pack("<3Q", 0, 3, 4) + struct.pack("<4H", 1, 2, 299, 7)
    head = b"BTOK" + struct.pack("<IIIQQQQQ", 1, 300, 2, 2, 4, 12, 0xABCDEF, xxhash.xxh64_intdigest(body))
    assert raw == head + bytes(8) + body
    assert [p.name for p in tmp_path.iterdir()] == ["a.btok"]


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.integers(0, 99_999).filter(lambda i: i != BOS), min_size=1, max_size=40), max_size=20
    ),
    wide=st.booleans(),
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], wide: bool) -> None:
    vocab = 100_000 if wide else 65_536
    documents = [[i % 65_536 for i in d] if not wide else d for d in documents]
    documents = [[0 if i == BOS else i for i in d] for d in documents]
    path = write(tmp_path_factory.mktemp("b") / "x.btok", documents, vocab)
    packed = Btok(path)
    assert packed.header.width == (4 if wide else 2)
    assert [packed[i].tolist() for i in range(len(packed))] == documents


@pytest.mark.parametrize("document", [[], [300], [-1], [BOS]])
def test_writer_refuses(tmp_path: Path, document: list[int]) -> None:
    with pytest.raises(DataError, match="document 1"):
        write(tmp_path / "a.btok", [[5], document])
    assert list(tmp_path.iterdir()) == []


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.btok", [[1, 2, 299], [7]])
    raw = path.read_bytes()
    # The vocabulary, n_bytes and tokenizer hash cannot be checked in the file alone: check_tokenizer does.
    free = {*range(8, 12), *range(32, 48)}
    for at in set(range(len(raw))) - free:
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x41]) + raw[at + 1 :])
        with pytest.raises(DataError, match=r"a\.btok"):
            Btok(path)


@pytest.mark.parametrize(
    ("mend", "message"),
    [
        (lambda r: r[:-1], "truncated: 95 bytes"),
        (lambda r: r + b"x", "too long"),
        (lambda r: r[:40], "too few"),
        (lambda r: b"GGUF" + r[4:], "not a .btok"),
        (lambda r: r[:4] + b"\x09" + r[5:], "version 9"),
        (lambda r: r[:72] + struct.pack("<Q", 0) + r[80:], "document 0 goes from id 0 to 0"),
        (lambda r: r[:-2] + struct.pack("<H", 300), "document 1, position 0: id 300 is out of range"),
        (lambda r: r[:-4] + struct.pack("<H", BOS) + r[-2:], "document 0, position 2: id 256 is BOS"),
        (lambda r: r[:-2] + struct.pack("<H", 8), "content hash"),
    ],
)
def test_damage_is_named(tmp_path: Path, mend: object, message: str) -> None:
    path = write(tmp_path / "a.btok", [[1, 2, 299], [7]])
    path.write_bytes(mend(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        Btok(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="nothing"):
        Btok(tmp_path / "nothing.btok")


def test_wrong_tokenizer(tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    pack_documents([b"the end"], tokenizer, tmp_path / "a.btok")
    Btok(tmp_path / "a.btok").check_tokenizer(tokenizer)
    with pytest.raises(DataError, match="packed with tokenizer"):
        Btok(tmp_path / "a.btok").check_tokenizer(small_tokenizer([b"xy"]))


def test_pack_files_holds_out_by_hash(tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    source = tmp_path / "rows.jsonl"
    rows = [f"row {i} of the source" for i in range(400)]
    source.write_text("".join(f'{{"text": "{row}"}}\n' for row in rows))
    whole = pack_files([source], tokenizer, tmp_path / "all.btok")
    assert whole.train.n_docs == 400
    assert whole.eval is None
    packed = pack_files([source], tokenizer, tmp_path / "x.btok", holdout=0.1)
    assert packed.eval is not None
    train, held = (texts_in(p, tokenizer) for p in (tmp_path / "x.btok", held_out_path(tmp_path / "x.btok")))
    assert sorted(train + held) == sorted(rows)
    assert 20 <= len(held) <= 65
    half = rows[:200]
    source.write_text("".join(f'{{"text": "{row}"}}\n' for row in half))
    pack_files([source], tokenizer, tmp_path / "y.btok", holdout=0.1)
    assert set(texts_in(tmp_path / "y.eval.btok", tokenizer)) == set(held) & set(half)


def test_pack_cuts_to_the_context(tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    source = tmp_path / "a.txt"
    source.write_text("\n\n".join(f"Paragraph {i}. It has two sentences." for i in range(50)))
    pack_files([source], tokenizer, tmp_path / "a.btok", context=64)
    found = texts_in(tmp_path / "a.btok", tokenizer)
    assert all(len(tokenizer.encode(text)) <= 64 for text in found)
    assert all(text.endswith("sentences.") for text in found)
    with pytest.raises(ConfigError):
        pack_files([source], tokenizer, tmp_path / "b.btok", context=2)
    with pytest.raises(ConfigError):
        pack_files([source], tokenizer, tmp_path / "b.btok", holdout=1.0)


def test_nothing_to_pack(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(DataError, match="no document"):
        pack_files([tmp_path / "a.txt"], small_tokenizer(), tmp_path / "a.btok")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("vocab", [300, 65_536, 65_537])
def test_the_engine_reads_the_same(tmp_path: Path, vocab: int) -> None:
    documents = [[1, 2, 299], [7], [vocab - 1, 0] * 50]
    path = write(tmp_path / "a.btok", documents, vocab)
    native, ours = BtokFile(path), Btok(path)
    native.verify(vocab)
    head = ours.header
    assert (native.n_docs, native.n_tokens, native.n_bytes) == (head.n_docs, head.n_tokens, head.n_bytes)
    assert (native.tokenizer_hash, native.content_hash) == (head.tokenizer_hash, head.content_hash)
    assert [list(native.document(i)) for i in range(3)] == documents


def test_the_engine_refuses_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a.btok", [[1, 2, 299], [7]])
    raw = path.read_bytes()
    for at in [0, 4, 12, 16, 24, 50, 57, 64, 72, 80, 88, 90, 95]:
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x41]) + raw[at + 1 :])
        with pytest.raises(DataError):
            BtokFile(path).verify(300)
        with pytest.raises(DataError):
            Btok(path)
