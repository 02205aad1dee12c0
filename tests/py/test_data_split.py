"""Long documents: nothing lost, nothing over the context, ends where a reader would end."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.data.pack import DocumentEncoder
from andrea.data.readers.prose import passages
from andrea.data.split import split_by_tokens, trim
from data_doubles import small_tokenizer

PROSE = st.lists(
    st.sampled_from(
        [
            "The cat sat.",
            " ",
            "\n\n",
            "\n",
            "Alice and the",
            "word",
            "\u3002",
            "\U0001f468\u200d\U0001f469",
            "\t",
            "  ",
        ]
    ),
    max_size=120,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(PROSE, st.text(max_size=200)), context=st.integers(8, 40))
def test_pieces_joined_are_the_text(text: str, context: int) -> None:
    raw = text.encode("utf-8")
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(raw)
    ends = np.cumsum([len(tokenizer.decode_bytes([i])) for i in ids.tolist()], dtype=np.int64)
    pieces = split_by_tokens(raw, ends, context)
    assert b"".join(pieces) == raw
    for piece in pieces:
        piece.decode("utf-8")


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(PROSE.filter(lambda t: bool(t.strip())), min_size=1, max_size=5),
    context=st.integers(8, 40),
)
def test_documents_fit_and_lose_only_white_space(texts: list[str], context: int) -> None:
    tokenizer = small_tokenizer()
    batch = DocumentEncoder(tokenizer, context).encode([t.encode() for t in texts])
    lengths = np.diff(batch.offsets)
    assert int(lengths.max()) <= context
    assert int(lengths.min()) >= 1
    for index, text in enumerate(batch.texts):
        ids = batch.ids[batch.offsets[index] : batch.offsets[index + 1]]
        assert tokenizer.decode_bytes(ids) == text
        assert tokenizer.encode(text).tolist() == ids.tolist()
    assert b"".join(b"".join(batch.texts).split()) == b"".join("".join(texts).encode().split())


def encode(text: str, context: int) -> list[str]:
    return [t.decode() for t in DocumentEncoder(small_tokenizer(), context).encode([text.encode()]).texts]


def test_ends_in_order_of_preference() -> None:
    assert encode("One is here. Two\n\nThree is a longer line. Four", 30) == [
        "One is here. Two",
        "Three is a longer line. Four",
    ]
    assert encode("Hello there, all of you. Then some more words", 32) == [
        "Hello there, all of you.",
        "Then some more words",
    ]
    assert encode("> ask\n< reply number one\n> again\n< reply number two", 34) == [
        "> ask\n< reply number one",
        "> again\n< reply number two",
    ]
    assert encode("\u5929\u5730\u3002\u7384\u9ec4\u3002", 12) == ["\u5929\u5730\u3002", "\u7384\u9ec4\u3002"]
    assert "".join(encode("x" * 100, 30)) == "x" * 100


def test_indentation_stays() -> None:
    assert trim(b"\n \n    code\n\n") == b"    code"


def test_a_long_word_takes_linear_time() -> None:
    encoder = DocumentEncoder(small_tokenizer(), 64)
    begin = time.perf_counter()
    batch = encoder.encode([b"a" * 1_000_000])
    assert time.perf_counter() - begin < 20
    assert sum(map(len, batch.texts)) == 1_000_000


@pytest.mark.parametrize("unit", ["word ", "Sentence one. ", "para\n\n", "x", "\u00e9"])
def test_passages_regroup_a_stream(unit: str) -> None:
    text = unit * 3000
    chunks = [text[i : i + 777] for i in range(0, len(text), 777)]
    found = list(passages(chunks, 1000))
    assert "".join(found) == text
    assert max(map(len, found)) <= 1000
    assert all(p.endswith(unit) for p in found) or len(unit) == 1
