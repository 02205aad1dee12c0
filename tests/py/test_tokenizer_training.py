"""Learning: N segments of the permitted form, the same bytes at any number of threads, weights that weigh."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

import andrea
from andrea import _core
from andrea.tokenizer import Settings, Source, train
from andrea.tokenizer.inputs import curriculum_weights, experiment_sources
from tokenizer_cases import LANGUAGES, small_tokenizer, source_text, topics

QUICK = Settings(rounds=3)


def kind(char: str) -> str:
    """The class of a character as the rule counts it."""
    if char.isspace():
        return "space"
    return {"L": "letter", "M": "letter", "N": "digit"}.get(unicodedata.category(char)[0], "sign")


def test_segments_follow_the_three_class_rule() -> None:
    for segment in small_tokenizer().segments:
        if segment.isspace():
            continue
        body = segment[1:] if segment[0] == " " else segment
        assert len({kind(char) for char in body}) == 1, segment
        assert kind(body[0]) != "space", segment
        assert sum(unicodedata.category(char)[0] != "M" for char in body) <= 16
        assert "\x00" not in segment


def test_marks_stay_with_their_base() -> None:
    for segment in small_tokenizer().segments:
        if len(segment) > 1:
            assert unicodedata.category(segment[0])[0] != "M", segment


def test_exactly_n_and_one_counts_in_the_file() -> None:
    tokenizer = small_tokenizer()
    assert len(tokenizer.segments) == 1500
    assert tokenizer.vocab_size == 1757
    training = json.loads(tokenizer.training_json)
    assert training["requested"] == 1500
    assert training["unicode"] == _core.UNICODE_VERSION
    assert sum(source["share"] for source in training["sources"]) == pytest.approx(1, abs=1e-5)


def test_counts_are_uses_of_the_encoder() -> None:
    tokenizer = train([[topics()]], 600, settings=QUICK)
    uses = Counter(i for i in tokenizer.encode(topics()).tolist() if i > 256)
    assert sum(tokenizer.counts) == pytest.approx(uses.total(), rel=0.005)
    # Training counts white space and the word after it apart, so a few segments differ a little.
    near = [abs(uses[257 + i] - n) <= max(3, 0.02 * n) for i, n in enumerate(tokenizer.counts)]
    assert sum(near) > 0.9 * len(near)


def test_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    texts = [topics()[i : i + 50_000] for i in range(0, 600_000, 50_000)]
    files = []
    for threads in (1, 2, 5):
        path = tmp_path / f"{threads}.json"
        train([texts, [source_text()]], 700, settings=QUICK, threads=threads).save(str(path))
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_files_and_documents_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "topics.txt"
    path.write_text(topics(), encoding="utf-8")
    assert train([path], 400, settings=QUICK) == train([[topics()]], 400, settings=QUICK)


def test_saturation_is_said() -> None:
    with pytest.raises(andrea.DataError, match=r"found \d+ < 500: saturated"):
        train([["just a few words, a few words"]], 500)
    few = train([["just a few words, a few words"]], 500, allow_fewer=True)
    assert 0 < len(few.segments) < 20
    assert train([[""]], 5, allow_fewer=True).segments == []


def test_weights_weigh() -> None:
    english, russian = [topics()], [LANGUAGES["Russian"] * 200]

    def cyrillic(weights: tuple[float, float]) -> int:
        tokenizer = train([english, russian], 300, weights, settings=QUICK, allow_fewer=True)
        return len(tokenizer.encode(LANGUAGES["Russian"]))

    assert cyrillic((1, 0)) > 2 * cyrillic((1, 1))
    with pytest.raises(andrea.ConfigError, match="weights for"):
        train([english], 10, (1, 2))
    with pytest.raises(andrea.ConfigError, match="weight -1"):
        train([english], 10, (-1,))
    with pytest.raises(andrea.ConfigError, match="all source weights are 0"):
        train([english], 10, (0,))
    with pytest.raises(andrea.DataError, match="no text"):
        train([english, []], 10, (1, 1))


def test_sample_is_spread_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sorted.txt"
    path.write_text("alpha beta " * 300_000 + "gamma delta " * 300_000)
    tokenizer = train([Source("sorted", path)], 8, sample_bytes=2_500_000, allow_fewer=True)
    assert {" beta", " delta"} <= set(tokenizer.segments)


def test_sizes_out_of_reach() -> None:
    with pytest.raises(andrea.ConfigError, match="n_segments"):
        train([["x"]], 0)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(andrea.IoError, match="cannot read"):
        train([tmp_path / "absent.txt"], 10)


def test_harris_sees_morphemes() -> None:
    """Boundaries of a made-up language of stems and endings are found without being told."""
    stems = [
        "walk",
        "jump",
        "turn",
        "look",
        "climb",
        "print",
        "render",
        "count",
        "build",
        "form",
        "help",
        "paint",
    ]
    endings = ["", "s", "ed", "ing", "er", "ers", "able"]
    counter = _core.WordCounter(1)
    counter.add([" ".join(stem + ending for stem in stems for ending in endings).encode()])
    table = _core.TypeTable()
    table.add(counter, 1.0)
    split = {}
    for letters, entropy, begins in _core.analyse_words(table, corpus_weight=1.0):
        word = "".join(letters)
        split[word] = "".join("|" * begin + letter for letter, begin in zip(letters, begins, strict=True))
        assert entropy[0] == 0
    assert split["walking"] == "walk|ing"
    assert split["painted"] == "paint|ed"


def experiment(tmp_path: Path, **curriculum: object) -> Path:
    """An experiment of two sources of plain text."""
    (tmp_path / "a.txt").write_text(topics()[:200_000])
    (tmp_path / "b.txt").write_text(LANGUAGES["Spanish"] * 50)
    path = tmp_path / "ANDREA-X-TRAIN.json"
    sources = [
        {"name": "a", "train": "a.txt", "weight": 3},
        {"name": "b", "train": "b.txt", "weight": 1, "floor": 0.7},
    ]
    path.write_text(json.dumps({"data": {"sources": sources}, "curriculum": curriculum}))
    return path


def test_diet_follows_the_curriculum(tmp_path: Path) -> None:
    path = experiment(tmp_path, policy="fixed")
    tokenizer = train(experiment_sources(path, {}), 200, settings=QUICK)
    shares = {s["name"]: s["share"] for s in json.loads(tokenizer.training_json)["sources"]}
    assert shares == {"a": 0.75, "b": 0.25}
    with pytest.raises(andrea.ConfigError, match="no such source"):
        experiment_sources(path, {"c": [path]})


def test_curriculum_weights() -> None:
    sources = [{"name": "a"}, {"name": "b", "floor": 0.9}, {"name": "c", "cap": 0.2}, {"name": "d"}]
    phases = [{"steps": 7, "dice": "1d3"}]
    weights = curriculum_weights({"data": {"sources": sources}, "curriculum": {"phases": phases}})
    assert weights == pytest.approx([0.55, 0.9, 0.2, 0.55])
    proportional = {"data": {"sources": sources}, "curriculum": {"policy": "proportional"}}
    assert curriculum_weights(proportional) == [None] * 4


def test_diet_reads_packed_text(tmp_path: Path) -> None:
    from andrea.data.btok import BtokWriter

    path = experiment(tmp_path, policy="uniform")
    old = small_tokenizer()
    old.save(str(tmp_path / "old.json"))
    with BtokWriter(tmp_path / "b.btok", old.vocab_size, old.hash) as out:
        data = (LANGUAGES["Spanish"] * 50).encode()
        out.add(old.encode(data), len(data))
    document = json.loads(path.read_text())
    document["data"]["sources"][1]["train"] = "b.btok"
    path.write_text(json.dumps(document))
    with pytest.raises(andrea.DataError, match="--text b=FILE"):
        experiment_sources(path, {})
    document["data"]["tokenizer"] = "old.json"
    path.write_text(json.dumps(document))
    texts = list(experiment_sources(path, {})[1].texts)  # type: ignore[arg-type]
    assert texts == [data]
