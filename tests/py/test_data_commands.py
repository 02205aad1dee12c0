"""`andrea data ...` as a user types it, with its exit codes; the demo's sources and recipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from andrea.cli import run
from andrea.data import demo
from andrea.data.prep import prepare
from andrea.data.recipe import load_recipe
from andrea.data.sources import SOURCES
from andrea.errors import DataError
from data_doubles import small_tokenizer, write_jsonl

ROOT = Path(__file__).resolve().parents[2]


def pack(tmp_path: Path) -> Path:
    """Pack 200 rows and one without text, a tenth held out."""
    small_tokenizer().save(str(tmp_path / "harris_segments.json"))
    write_jsonl(
        tmp_path / "a.jsonl", [{"text": f"Alice and the number {i}"} for i in range(200)] + [{"x": 1}]
    )
    arguments = [
        "data",
        "pack",
        str(tmp_path / "a.jsonl"),
        "--tokenizer",
        str(tmp_path / "harris_segments.json"),
    ]
    assert run([*arguments, "--out", str(tmp_path / "a.btok"), "--holdout", "0.1", "--explain"]) == 0
    return tmp_path / "a.btok"


def test_pack_and_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = pack(tmp_path)
    told = capsys.readouterr().out
    assert "a.eval.btok" in told
    assert "no text in the row" in told
    assert "a.jsonl:201" in told
    assert run(["data", "inspect", str(packed), "--stats"]) == 0
    assert "bytes a token" in capsys.readouterr().out
    assert run(["data", "inspect", str(packed), "--doc", "0"]) == 0
    assert "Alice and the number" in capsys.readouterr().out
    assert run(["data", "inspect", str(packed), "--sample", "3"]) == 0
    first = capsys.readouterr().out
    assert first.count("--- document") == 3
    assert run(["data", "inspect", str(packed), "--sample", "3"]) == 0
    assert capsys.readouterr().out == first


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = pack(tmp_path)
    coder = str(tmp_path / "harris_segments.json")
    assert run(["data", "inspect", str(packed), "--doc", "999999"]) == 78
    assert run(["data", "inspect", str(tmp_path / "none.btok")]) == 74
    (tmp_path / "bad.btok").write_bytes(b"BTOK")
    assert run(["data", "inspect", str(tmp_path / "bad.btok")]) == 65
    out = str(tmp_path / "b.btok")
    assert run(["data", "pack", str(tmp_path / "none.txt"), "--tokenizer", coder, "--out", out]) == 74
    assert run(["data", "pack", str(packed.with_suffix(".jsonl")), "--out", out]) == 64
    assert run(["data", "prep", str(tmp_path / "none.json")]) == 74
    (tmp_path / "r.json").write_text("{")
    assert run(["data", "prep", str(tmp_path / "r.json")]) == 78
    small_tokenizer([b"other"]).save(str(tmp_path / "other.json"))
    assert (
        run(["data", "inspect", str(packed), "--doc", "0", "--tokenizer", str(tmp_path / "other.json")]) == 65
    )
    assert run(["data", "pull", "irc"]) == 78
    assert "Traceback" not in capsys.readouterr().err


def test_prep_verify_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_tokenizer().save(str(tmp_path / "t.json"))
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"text {i}"} for i in range(100)])
    recipe = {
        "name": "r",
        "tokenizer": "t.json",
        "out": "out",
        "sources": [{"name": "chat", "files": ["a.jsonl"]}],
    }
    (tmp_path / "r.json").write_text(json.dumps(recipe))
    assert run(["data", "prep", str(tmp_path / "r.json"), "-j", "1"]) == 0
    assert run(["data", "verify", str(tmp_path / "out" / "manifest.json")]) == 0
    (tmp_path / "out" / "chat.btok").write_bytes(b"")
    assert run(["data", "verify", str(tmp_path / "out")]) == 65
    assert run(["data", "list"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in SOURCES)


def test_the_demo_s_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LIBRARY_BYTES", 700_000)
    monkeypatch.setattr(demo, "SMALLEST_SOURCE", 4_000)
    caps = {"docstrings": 40_000, "manual": 60_000, "code": 40_000, "comments": 10_000}
    made = demo.collect(tmp_path / "demo" / "text", caps)
    assert len(made) >= 3
    for source in made:
        rows = [json.loads(line) for line in source.path.read_text(encoding="utf-8").split("\n") if line]
        assert len(rows) == source.documents
        assert len({row["text"] for row in rows}) == source.documents
        assert 0.5 * min(caps[source.name], 15_000) < source.n_bytes <= caps[source.name]
    again = demo.collect(tmp_path / "again", caps)
    for one, two in zip(made, again, strict=True):
        assert one.path.read_bytes() == two.path.read_bytes()
    recipe = json.loads((ROOT / "experiments" / "recipes" / "demo.json").read_text())
    names = {source.name for source in made}
    small_tokenizer().save(str(tmp_path / "demo" / "harris_segments.json"))
    (tmp_path / "experiments" / "recipes").mkdir(parents=True)
    path = tmp_path / "experiments" / "recipes" / "demo.json"
    path.write_text(json.dumps(recipe))
    manifest = prepare(path, say=lambda line: None)
    assert [entry.name for entry in manifest.sources] == [
        s["name"] for s in recipe["sources"] if s["name"] in names
    ]


def test_a_python_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "library_files", lambda: [])
    monkeypatch.setattr(demo, "manual_documents", lambda: [])
    with pytest.raises(DataError, match="apt install python3"):
        demo.collect(tmp_path)


RECIPES = sorted((ROOT / "experiments" / "recipes").glob("*.json"))
EXPERIMENTS = sorted((ROOT / "experiments").glob("ANDREA-*-TRAIN.json"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes_are_valid(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    if path.stem.startswith("megachat"):
        assert [source.name for source in recipe.sources] == list(SOURCES)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_shipped_recipe_writes_what_a_shipped_experiment_reads(path: Path) -> None:
    experiment = json.loads(path.read_text())
    tokenizer = (path.parent / experiment["data"]["tokenizer"]).resolve()
    found = [
        (recipe, (file.parent / recipe.out).resolve())
        for file in RECIPES
        for recipe in [load_recipe(file)]
        if (file.parent / recipe.tokenizer).resolve() == tokenizer
    ]
    assert len(found) == 1, f"{len(found)} recipes pack with {tokenizer}"
    recipe, folder = found[0]
    assert recipe.vocab_size == experiment["model"]["vocab_size"]
    assert recipe.context <= experiment["model"]["context"]
    assert recipe.holdout > 0
    written = {folder / f"{source.name}{end}" for source in recipe.sources for end in (".btok", ".eval.btok")}
    named = {
        (path.parent / source[part]).resolve()
        for source in experiment["data"]["sources"]
        for part in ("train", "eval")
    }
    assert len(named) == 30
    assert named <= written


def test_prep_megachat_chooses_the_recipe_by_its_segments(tmp_path: Path) -> None:
    if (ROOT / "data").exists():
        pytest.skip("data is prepared here")
    script = ROOT / "scripts" / "prep-megachat.py"
    for arguments, folder in (([], "megachat"), (["4096"], "megachat-4096"), (["1024"], "megachat-1024")):
        result = subprocess.run(
            [sys.executable, script, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"ANDREA_DATA": str(one_text(tmp_path)), "TERM": "dumb"},
        )
        # No tokenizer lies in a fresh clone: the message names the folder of the recipe.
        assert result.returncode == 74, result.stderr
        assert f"data/{folder}/harris_segments.json: no tokenizer" in result.stderr


def one_text(folder: Path) -> Path:
    """Return a folder of named sources with one chat."""
    (folder / "chat").mkdir(exist_ok=True)
    write_jsonl(folder / "chat" / "a.jsonl", [{"text": "a text"}])
    return folder
