"""The commands: what they print and write, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import andrea
from andrea.tokenizer import Tokenizer, train
from andrea.tokenizer.baselines import Bpe, Harris, Unigram
from andrea.tokenizer.commands import app
from andrea.tokenizer.measure import (
    align,
    boundaries,
    measure,
    parts,
    read_gold,
    renyi_efficiency,
    sweep,
    sweep_svg,
)
from andrea.tokenizer.training import Settings, Source, count
from tokenizer_cases import small_tokenizer, source_text, topics


def run(*arguments: str | Path, text: str | None = None) -> str:
    """Run a command; its errors come out as they are."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two texts and a vocabulary learned from them by the command."""
    path: Path = tmp_path_factory.mktemp("tokenizer")
    (path / "topics.txt").write_text(topics()[:400_000], encoding="utf-8")
    (path / "held.txt").write_text(topics()[400_000:], encoding="utf-8")
    (path / "code.txt").write_text(source_text()[:200_000], encoding="utf-8")
    (path / "gold.txt").write_text("walk ing\nun seen\nhouse\nre read ing\n")
    (path / "report.txt").write_text(
        run("train", path / "topics.txt", path / "code.txt", "--n", "700", "--weights", "3,1", "--raw",
            "--out", path / "h.json")
    )  # fmt: skip
    return path


def test_train_says_what_it_did(folder: Path) -> None:
    said = (folder / "report.txt").read_text()
    assert "75.0%" in said
    assert "N = 700, V = 957" in said
    assert len(Tokenizer.load(str(folder / "h.json")).segments) == 700


def test_train_makes_the_folder_of_its_file(folder: Path) -> None:
    out = folder / "not" / "there yet" / "h.json"
    run("train", folder / "gold.txt", "--n", "5", "--allow-fewer", "--raw", "--out", out)
    assert Tokenizer.load(str(out)).vocab_size > 257


def test_train_refusals(folder: Path) -> None:
    with pytest.raises(andrea.ConfigError, match="--weights"):
        run("train", folder / "topics.txt", "--weights", "many", "--out", folder / "x.json")
    with pytest.raises(andrea.DataError, match="saturated"):
        run("train", folder / "gold.txt", "--n", "700", "--out", folder / "x.json")
    assert "saturated" in run(
        "train", folder / "gold.txt", "--n", "700", "--allow-fewer", "--out", folder / "y.json"
    )
    assert not (folder / "x.json").exists()


def test_encode_and_decode(folder: Path) -> None:
    text = "The été of\treading\n"
    ids = run("encode", "-t", folder / "h.json", text=text)
    assert [int(i) for i in ids.split()] == Tokenizer.load(str(folder / "h.json")).encode(text).tolist()
    assert run("decode", "-t", folder / "h.json", text=ids) == text
    assert run("decode", "-t", folder / "h.json", "104", "105") == "hi"
    assert "' '" in run("encode", "-t", folder / "h.json", "--pieces", " \u00e9")
    with pytest.raises(andrea.DataError, match="'x' is no id"):
        run("decode", "-t", folder / "h.json", text="1 x")


def test_report(folder: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("sentencepiece")
    held = f"prose={folder / 'held.txt'}"
    said = run(
        "report", "-t", folder / "h.json", "--text", held, "--against", "bpe,unigram", "--train",
        folder / "topics.txt", "--gold", folder / "gold.txt", "--json",
    )  # fmt: skip
    figures = {one["name"]: one for one in json.loads(said)}
    assert set(figures) == {"andrea", "bpe", "unigram"}
    for one in figures.values():
        assert one["vocab_size"] == 957
        assert 2 < one["bytes_per_id"]["prose"] < 6
        assert 0 < one["renyi_efficiency"] < 1
        assert 0 < one["share_used"] <= 1
        assert 0 <= one["gold"]["f1"] <= 1
    assert "boundary f1" in run(
        "report",
        "-t",
        folder / "h.json",
        "--text",
        f"prose={folder / 'held.txt'}",
        "--gold",
        folder / "gold.txt",
    )
    with pytest.raises(andrea.ConfigError, match="--train"):
        run("report", "-t", folder / "h.json", "--text", f"a={folder / 'held.txt'}", "--against", "bpe")
    with pytest.raises(andrea.ConfigError, match="wordpiece"):
        run("report", "-t", folder / "h.json", "--text", f"a={folder / 'held.txt'}", "--against", "wordpiece")


def test_boundaries_by_hand(folder: Path) -> None:
    gold = read_gold(folder / "gold.txt")
    assert gold == {"walking": {4}, "unseen": {2}, "house": set(), "rereading": {2, 6}}
    coder = Harris(Tokenizer.from_segments([" walk", "ing", " un", "seen", " hou", "se", " rereading"]))
    found = boundaries(coder, gold)
    assert (found.precision, found.recall) == (2 / 3, 2 / 4)
    assert found.f1 == pytest.approx(4 / 7)
    empty = folder / "empty.txt"
    empty.write_text("word\n")
    with pytest.raises(andrea.DataError, match="no boundary"):
        read_gold(empty)


def test_cuts_agree_with_the_pieces() -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("sentencepiece")
    for coder in (Bpe(parts(topics()), 600), Unigram(parts(topics()), 600), Harris(small_tokenizer())):
        for word in ("statement", "unpythonic", "x"):
            cuts = coder.cuts(word)
            assert cuts <= set(range(1, len(word)))
            assert len(cuts) + 1 <= len(coder.encode(" " + word))


def test_figures_by_hand() -> None:
    figures = measure(Harris(Tokenizer.from_segments(["ab", " ab"])), {"x": "ab ab\nab"}, None)
    assert figures.bytes_per_id == {"x": 2.0}
    assert figures.ids_per_word == pytest.approx(4 / 3)
    assert figures.share_used == pytest.approx(3 / 259)
    assert renyi_efficiency([5, 5, 5, 5], 4) == pytest.approx(1)
    assert renyi_efficiency([5], 4) == pytest.approx(0)
    assert "".join(parts("a\n" * 300_000 + "b" * 600_000)) == "a\n" * 300_000 + "b" * 600_000


def test_align(folder: Path) -> None:
    a, b = Tokenizer.from_segments(["ab", "cd", "ef", "gh"]), Tokenizer.from_segments(["ef", "xy", "ab"])
    found = align(a, b, d_model=10)
    assert (found.shared, found.overlap, found.waste, found.floats) == (2, 0.5, 0.5, 0.5 * 261 * 10)
    a.save(str(folder / "a.json"))
    b.save(str(folder / "b.json"))
    assert "50.0%" in run("align", folder / "a.json", folder / "b.json")


def test_sweep(folder: Path) -> None:
    rows = sweep([count(Source("t", [topics()]))], [300, 100, 200], topics(), settings=Settings(rounds=2))
    assert [row.requested for row in rows] == [100, 200, 300]
    lengths = [row.bytes_per_id for row in rows]
    assert lengths == sorted(lengths)
    assert rows[0].gain is None
    assert rows[1].gain is not None
    assert rows[1].gain > rows[2].gain  # type: ignore[operator]
    assert sweep_svg(rows).count("<circle") == 3
    said = run("sweep", folder / "gold.txt", "--sizes", "2,64,512", "--plot", folder / "p.svg")
    assert "saturated" in said
    assert "512" not in said  # stops at the first saturated size
    assert (folder / "p.svg").read_text().startswith("<svg")
    with pytest.raises(andrea.ConfigError, match="--sizes"):
        run("sweep", folder / "gold.txt", "--sizes", "few")


def test_export(folder: Path) -> None:
    run("export", "-t", folder / "h.json", "--out", folder / "out", "--context", "256")
    assert {path.name for path in (folder / "out").iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "vocabulary.gguf",
    }


def test_train_from_python(folder: Path) -> None:
    assert len(train([folder / "topics.txt"], 64, settings=Settings(rounds=1)).segments) == 64
