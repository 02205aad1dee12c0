"""Duplicates: exact ones by hash, near ones only when the shingle sets really agree, and capped."""

from __future__ import annotations

import random
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.data.similar import document_hash, exact_duplicates, near_duplicates, shingles, signatures

WORDS = [f"word{i}" for i in range(400)]


def prose(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def hashes(texts: list[str]) -> np.ndarray:
    return np.frombuffer(b"".join(document_hash(t.encode()) for t in texts), "<u8").reshape(len(texts), 2)


def near(texts: list[str], threshold: float = 0.8, most: int = 10**9) -> tuple[list[int], int]:
    raw = [t.encode() for t in texts]
    alive = np.ones(len(raw), dtype=np.bool_)
    removed, _, spared = near_duplicates(signatures(raw), alive, raw.__getitem__, threshold, most)
    return np.flatnonzero(removed).tolist(), spared


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_exact_duplicates_keep_the_first(texts: list[str]) -> None:
    seen: set[str] = set()
    expected = [t in seen or seen.add(t) is not None for t in texts]
    if texts:
        assert exact_duplicates(hashes(texts)).tolist() == expected


def plain_shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(alphabet="aB1 .\n", max_size=60), min_size=1, max_size=6))
def test_shingles_are_those_of_the_words(texts: list[str]) -> None:
    found, owner = shingles([t.encode() for t in texts])
    names: dict[tuple[str, ...], int] = {}
    for index, text in enumerate(texts):
        mine = {int(h) for h in found[owner == index]}
        assert len(mine) == len(plain_shingles(text))
        alone = {int(h) for h in shingles([text.encode()])[0]}
        assert mine == alone
        for shingle in plain_shingles(text):
            names.setdefault(shingle, 1)
    assert len({int(h) for h in found}) == len(names)


def test_signatures_estimate_the_similarity() -> None:
    rng = random.Random(1)
    errors = []
    for share in (0.2, 0.5, 0.8, 0.95):
        for _ in range(20):
            words = rng.choices(WORDS, k=300)
            other = list(words)
            other[: int(300 * (1 - share))] = rng.choices(WORDS, k=int(300 * (1 - share)))
            a, b = " ".join(words), " ".join(other)
            true = len(plain_shingles(a) & plain_shingles(b)) / len(plain_shingles(a) | plain_shingles(b))
            signs = signatures([a.encode(), b.encode()])
            errors.append(float((signs[0] == signs[1]).mean()) - true)
    assert abs(float(np.mean(errors))) < 0.03
    assert float(np.std(errors)) < 0.09


def test_near_duplicates_are_found_and_others_stay() -> None:
    rng = random.Random(2)
    first = [prose(rng, 200) for _ in range(60)]
    changed = [t.replace(t.split()[100], "Changed", 1).upper() for t in first[:20]]
    half = [" ".join(t.split()[:100]) + " " + prose(rng, 100) for t in first[20:40]]
    removed, spared = near([*first, *changed, *half])
    assert removed == list(range(60, 80))
    assert spared == 0


def test_a_book_in_one_style_stays() -> None:
    rng = random.Random(3)
    frame = "and it came to pass that {} went unto {} and spake and said {} and it was so"
    passages = [" ".join(frame.format(*rng.choices(WORDS, k=3)) for _ in range(8)) for _ in range(200)]
    assert near(passages)[0] == []


def test_the_cap_spares_the_rest() -> None:
    text = prose(random.Random(4), 50)
    removed, spared = near([text + f" end{i}" for i in range(20)], most=5)
    assert len(removed) == 5
    assert spared == 14


def test_short_texts_have_no_near_duplicates() -> None:
    assert near(["one two three four"] * 3)[0] == []


def test_text_without_spaces() -> None:
    text = "\u5929\u5730\u7384\u9ec4\u3002" * 30
    assert near([text, text + "\u5b87"])[0] == []
