"""The loader, from the definition: permuted documents, BOS before each, rows without gaps or overlap."""

import json
import struct
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea._core import BtokFile, Experiment, Loader, config_differences, parse_experiment, permuted, philox
from andrea.errors import ConfigError, DataError

BOS = 256
Documents = list[list[int]]

documents = st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=12), min_size=1, max_size=9)


def write_btok(path: Path, docs: Documents, vocab: int = 300) -> Path:
    """Write a .btok from the layout."""
    lengths = [len(doc) for doc in docs]
    content = np.array([0, *np.cumsum(lengths)], dtype="<u8").tobytes()
    content += np.array([i for doc in docs for i in doc], dtype="<u2" if vocab <= 65536 else "<u4").tobytes()
    width = 2 if vocab <= 65536 else 4
    digest = xxhash.xxh64_intdigest(content)
    counts = (len(docs), sum(lengths), 2 * sum(lengths))
    header = struct.pack("<4sIIIQQQQQ8x", b"BTOK", 1, vocab, width, *counts, 0, digest)
    path.write_bytes(header + content)
    return path


def stream(docs: Documents, name: str, seed: int) -> Iterator[int]:
    """Yield the endless stream of a source."""
    for epoch in count():
        for position in range(len(docs)):
            yield BOS
            yield from docs[permuted(seed, name, epoch, position, len(docs))]


def opened(directory: str, sources: list[Documents], seed: int, context: int) -> Loader:
    paths = [write_btok(Path(directory, f"s{k}.btok"), docs) for k, docs in enumerate(sources)]
    return Loader([(f"s{k}", str(path)) for k, path in enumerate(paths)], seed, context)


def test_philox_known_answers() -> None:
    """Vectors published with the paper (Random123, kat_vectors)."""
    assert philox(0, 0, [0, 0, 0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(0xA4093822, 0x299F31D0, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
    ]  # fmt: skip


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.text(max_size=8),
    epoch=st.integers(0, 2**40),
    n=st.integers(1, 80),
)
def test_each_epoch_is_a_permutation(seed: int, name: str, epoch: int, n: int) -> None:
    assert sorted(permuted(seed, name, epoch, i, n) for i in range(n)) == list(range(n))


@settings(deadline=None)
@given(
    sources=st.lists(documents, min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    context=st.integers(1, 9),
    rows=st.integers(1, 4),
    steps=st.integers(1, 12),
)
def test_rows_are_the_streams_cut_into_pieces(
    sources: list[Documents], seed: int, context: int, rows: int, steps: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        loader = opened(directory, sources, seed, context)
        streams = [stream(docs, f"s{k}", seed) for k, docs in enumerate(sources)]
        consumed = [0] * len(sources)
        for step in range(steps):
            ids, report = loader.next(step, rows)
            assert ids.shape == (rows, context + 1)
            assert ids.dtype == np.int32
            for index, (row, got) in enumerate(zip(report, ids.tolist(), strict=True)):
                assert (row.step, row.row) == (step, index)
                assert got == [next(streams[row.source]) for _ in range(context + 1)]
                assert row.documents == got.count(BOS)
                consumed[row.source] += row.documents
            assert consumed == [loader.documents_consumed(k) for k in range(len(sources))]


@settings(deadline=None)
@given(
    sources=st.lists(documents, min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    context=st.integers(1, 9),
    stops=st.lists(st.integers(0, 20), min_size=1, max_size=3),
)
def test_resumes_in_a_row_change_nothing(
    sources: list[Documents], seed: int, context: int, stops: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        unbroken = opened(directory, sources, seed, context)
        resumed = opened(directory, sources, seed, context)
        for step in range(21):
            if step in stops:
                cursors = resumed.cursors
                resumed = opened(directory, sources, seed, context)
                resumed.cursors = cursors
            assert resumed.cursors == unbroken.cursors
            for epoch, position, offset in resumed.cursors:
                assert (epoch >= 0, position >= 0, offset >= 0) == (True, True, True)
            assert np.array_equal(resumed.next(step, 2)[0], unbroken.next(step, 2)[0])


@given(docs=documents, context=st.integers(1, 9), first=st.integers(0, 5), rows=st.integers(0, 5))
def test_eval_windows(docs: Documents, context: int, first: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = BtokFile(write_btok(Path(directory, "e.btok"), docs))
        flat = [i for doc in docs for i in [BOS, *doc]]
        windows = [flat[at : at + context + 1] for at in range(0, len(flat) - context, context)]
        assert file.eval_rows(context, first, rows).tolist() == windows[first : first + rows]


def test_btok_as_the_packer_writes_it(tmp_path: Path) -> None:
    """The writer in Python and the reader in C++ agree on every field."""
    from andrea.data.btok import BtokWriter

    for vocab in (257, 70000):
        with BtokWriter(tmp_path / "x.btok", vocab, 2**64 - 1) as writer:
            writer.add([1, 2, 3], 5)
            writer.add([vocab - 1 if vocab > 257 else 9], 1)
        file = BtokFile(tmp_path / "x.btok")
        file.verify(vocab)
        assert (file.vocab_size, file.n_docs, file.n_tokens, file.n_bytes) == (vocab, 2, 4, 6)
        assert file.tokenizer_hash == 2**64 - 1
        assert file.document(0).tolist() == [1, 2, 3]
        with pytest.raises(IndexError):
            file.document(2)


def test_an_id_outside_the_vocabulary_names_file_document_and_id(tmp_path: Path) -> None:
    path = write_btok(tmp_path / "bad.btok", [[1], [2, 300]])
    with pytest.raises(DataError, match=r"bad\.btok: document 1 holds id 300 at place 1"):
        BtokFile(path).verify(300)


def test_weights_that_cannot_be_are_refused(tmp_path: Path) -> None:
    loader = opened(str(tmp_path), [[[1]], [[2]]], 1, 2)
    for weights in ([1.0], [0.0, 0.0], [-1.0, 1.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        with pytest.raises(ConfigError):
            loader.set_weights(weights)
    loader.set_weights([0.0, 2.0])
    assert loader.weights == [0.0, 2.0]
    assert {row.source for row in loader.next(0, 50)[1]} == {1}


def nano(**changes: object) -> Experiment:
    config = {
        "name": "n",
        "model": {"d_model": 8, "n_head": 2, "n_layer": 1, "context": 4, "vocab_size": 300},
        "train": {"steps": 10, "batch_size": 1, "lr": {"peak": 1e-5, "min": 0}},
        "samples": {"prompts": ["é\n\x01\U0001f642"]},
    }
    return parse_experiment(json.dumps(config | changes), "/d", "n.json")


def test_the_effective_config_is_what_json_dumps_would_write() -> None:
    text = nano().effective_json()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert parse_experiment(text).effective_json() == text


def test_differences_and_faults_reach_python() -> None:
    assert config_differences(nano().effective_json(), nano(name="o").effective_json()) == [
        'name: "n" -> "o"'
    ]
    with pytest.raises(
        ConfigError, match=r'(?s)2 faults.*name: is "a/b".*smaples: unknown key; did you mean "samples"'
    ):
        nano(name="a/b", smaples={})
