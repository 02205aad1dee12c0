"""Preparation: the same files at any number of processes, after kill -9, and nothing half-written."""

from __future__ import annotations

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from andrea.data import units
from andrea.data.manifest import load_manifest, verify_manifest
from andrea.data.prep import prepare
from andrea.errors import ConfigError, DataError, IoError
from data_doubles import small_tokenizer, texts_in, write_jsonl

WORDS = [f"w{i:03x}" for i in range(600)]


def make(folder: Path, rows: int = 300, **more: Any) -> Path:
    """Write raw files, a tokenizer and a recipe of three sources."""
    rng = random.Random(rows)
    talks = [
        {
            "messages": [
                {"role": "user", "content": f"{i} " + " ".join(rng.choices(WORDS, k=8))},
                {"role": "assistant", "content": " ".join(rng.choices(WORDS, k=rng.randint(5, 150)))},
            ]
        }
        for i in range(rows)
    ]
    talks[4]["messages"][1]["content"] = "short"
    talks[5] = talks[4]
    write_jsonl(folder / "talk.jsonl", talks)
    (folder / "books").mkdir(exist_ok=True)
    for name in "ab":
        text = "\n\n".join(" ".join(rng.choices(WORDS, k=60)) + "." for _ in range(40))
        (folder / "books" / f"{name}.txt").write_text(text)
    write_jsonl(folder / "words.jsonl", [{"word": w, "definition": f"a thing called {w}"} for w in WORDS])
    small_tokenizer().save(str(folder / "harris_segments.json"))
    recipe = {
        "name": "try",
        "tokenizer": "harris_segments.json",
        "out": "out",
        "context": 128,
        "holdout": 0.05,
        "sources": [
            {"name": "chat", "files": ["talk.jsonl"]},
            {"name": "gutenberg", "files": ["books/*.txt"], "licence": "public domain"},
            {"name": "dictionary", "files": ["words.jsonl"]},
        ],
        **more,
    }
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path


def quiet(line: str) -> None:
    """Say nothing."""


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "UNIT_BYTES", 16_000)
    monkeypatch.setattr(units, "CHUNK_BYTES", 5_000)


def test_what_comes_out(tmp_path: Path) -> None:
    manifest = prepare(make(tmp_path), say=quiet)
    out = tmp_path / "out"
    names = {"chat.btok", "gutenberg.btok", "dictionary.btok", "manifest.json", "report.md", ".prepared"}
    names |= {"chat.eval.btok", "gutenberg.eval.btok", "dictionary.eval.btok"}
    assert set(contents(out)) == names
    assert not (out / ".work").exists()
    tokenizer = small_tokenizer()
    for entry in manifest.sources:
        train = texts_in(out / f"{entry.name}.btok", tokenizer)
        held = texts_in(out / f"{entry.name}.eval.btok", tokenizer)
        assert not set(train) & set(held)
        assert len(train) == entry.train.n_docs
        assert sum(len(t.encode()) for t in train) == entry.train.n_bytes
        assert all(len(tokenizer.encode(t)) <= 128 for t in train + held)
    chat = manifest.sources[0]
    assert chat.tally["dropped"] == {"exact duplicate": 1}
    assert chat.inputs[0].name == "talk.jsonl"
    assert manifest.sources[1].licence == "public domain"
    assert "exact duplicate" in (out / "report.md").read_text()
    assert len(verify_manifest(out / "manifest.json")) == 6
    assert str(tmp_path) not in (out / "manifest.json").read_text()


def test_processes_and_units_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make(tmp_path)
    prepare(recipe, processes=1, say=quiet, out=tmp_path / "one")
    prepare(recipe, processes=2, say=quiet, out=tmp_path / "two")
    monkeypatch.setattr(units, "UNIT_BYTES", 16_000)
    monkeypatch.setattr(units, "CHUNK_BYTES", 5_000)
    prepare(recipe, processes=1, say=quiet, out=tmp_path / "three")
    one, two, three = (contents(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two
    for name in one:
        if name.endswith(".btok"):
            assert one[name] == three[name], name


@pytest.mark.usefixtures("small_units")
def test_stopped_between_units_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = make(tmp_path)
    prepare(recipe, say=quiet, out=tmp_path / "whole")
    from andrea.data import prep

    real, calls = prep.run_unit, [0]

    def stops(unit: units.Unit) -> str:
        calls[0] += 1
        if calls[0] > 4:
            raise KeyboardInterrupt
        return real(unit)

    monkeypatch.setattr(prep, "run_unit", stops)
    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, say=quiet)
    assert list((tmp_path / "out").glob("*.btok")) == []
    with pytest.raises(ConfigError, match="--resume"):
        prepare(recipe, say=quiet)
    monkeypatch.setattr(prep, "run_unit", real)
    said: list[str] = []
    prepare(recipe, resume=True, say=said.append)
    assert any(line.startswith("4 of ") for line in said)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    said.clear()
    prepare(recipe, resume=True, say=said.append)
    assert "already done" in said[0]
    with pytest.raises(ConfigError, match="--restart"):
        prepare(recipe, say=quiet)


# The run stops for good before a rename that the test names: so many parts made, or a whole .btok ready.
SCRIPT = """
import os
import sys
import time
from pathlib import Path
from andrea.data import units
units.UNIT_BYTES, units.CHUNK_BYTES = 16_000, 5_000
from andrea.data.prep import prepare
recipe, processes, suffix, before = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rename = os.replace
def replace(temporary, path):
    if Path(path).suffix == suffix and len(list(Path(path).parent.glob("*" + suffix))) >= before:
        (recipe.parent / "reached").touch()
        time.sleep(600)
    rename(temporary, path)
os.replace = replace
if __name__ == "__main__":
    prepare(recipe, processes=processes, resume=True, say=lambda line: None)
"""


@pytest.mark.parametrize(
    ("processes", "suffix", "before"), [(1, ".part", 9), (2, ".part", 3), (1, ".btok", 0), (1, ".btok", 2)]
)
def test_kill_9_then_resume(
    tmp_path: Path, small_units: None, processes: int, suffix: str, before: int
) -> None:
    recipe = make(tmp_path, rows=500)
    prepare(recipe, say=quiet, out=tmp_path / "whole")
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    run = subprocess.Popen([sys.executable, str(script), str(recipe), str(processes), suffix, str(before)])
    try:
        end = time.monotonic() + 120
        while not (tmp_path / "reached").exists():
            assert run.poll() is None, "the run ended before the point where it was to be killed"
            assert time.monotonic() < end, "the run never came to the point where it was to be killed"
            time.sleep(0.01)
    finally:
        run.kill()
        run.wait()
    assert len(list((tmp_path / "out").glob("*.btok"))) == (before if suffix == ".btok" else 0)
    for name in (tmp_path / "out").glob("*.btok"):
        assert name.read_bytes() == (tmp_path / "whole" / name.name).read_bytes()
    prepare(recipe, resume=True, say=quiet)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_one_preparation_a_folder(tmp_path: Path) -> None:
    recipe = make(tmp_path)
    (tmp_path / "out").mkdir()
    handle = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match="another preparation"):
        prepare(recipe, say=quiet)
    os.close(handle)
    prepare(recipe, say=quiet)


def test_restart_forgets_sources_that_are_gone(tmp_path: Path) -> None:
    prepare(make(tmp_path), say=quiet)
    recipe = make(tmp_path, sources=[{"name": "chat", "files": ["talk.jsonl"]}])
    prepare(recipe, restart=True, say=quiet)
    assert not (tmp_path / "out" / "dictionary.btok").exists()
    assert (tmp_path / "out" / "chat.btok").exists()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file grow over `size` bytes, as a full disk would."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_units")
def test_no_room_leaves_no_half_file(tmp_path: Path) -> None:
    recipe = make(tmp_path)
    prepare(recipe, say=quiet, out=tmp_path / "whole")
    for limit in (3_000, 30_000):
        with file_size_limit(limit), pytest.raises(IoError, match="cannot write"):
            prepare(recipe, resume=True, say=quiet)
        for name in (tmp_path / "out").glob("*.btok"):
            assert name.read_bytes() == (tmp_path / "whole" / name.name).read_bytes()
        assert list((tmp_path / "out").glob(".*.tmp")) == []
    prepare(recipe, resume=True, say=quiet)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.usefixtures("small_units")
def test_a_changed_input_is_read_again(tmp_path: Path) -> None:
    recipe = make(tmp_path)
    prepare(recipe, say=quiet)
    with open(tmp_path / "words.jsonl", "a") as file:
        file.write('{"word": "new", "definition": "a new thing"}\n')
    prepare(recipe, resume=True, say=quiet)
    tokenizer = small_tokenizer()
    both = [
        t
        for part in ("btok", "eval.btok")
        for t in texts_in(tmp_path / "out" / f"dictionary.{part}", tokenizer)
    ]
    assert "> define new\n< new is a new thing" in both


def test_parquet_and_jsonl_give_the_same_btok(tmp_path: Path, small_units: None) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    recipe = make(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "talk.jsonl").read_text().split("\n") if line]
    prepare(recipe, say=quiet, out=tmp_path / "one")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "talk.parquet", row_group_size=37)
    recipe.write_text(recipe.read_text().replace("talk.jsonl", "talk.parquet"))
    prepare(recipe, say=quiet, out=tmp_path / "two")
    for name in ("chat.btok", "chat.eval.btok"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_verify_finds_damage(tmp_path: Path) -> None:
    prepare(make(tmp_path), say=quiet)
    out = tmp_path / "out"
    path = out / "chat.btok"
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(DataError, match=r"chat\.btok: SHA-256"):
        verify_manifest(out / "manifest.json")
    path.unlink()
    with pytest.raises(DataError, match=r"chat\.btok: missing"):
        verify_manifest(out / "manifest.json")
    (out / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="not a manifest"):
        load_manifest(out / "manifest.json")


def test_all_mistakes_of_a_recipe_at_once(tmp_path: Path) -> None:
    source = {"name": "chat", "files": ["talk.jsonl"]}
    recipe = make(
        tmp_path,
        contxt=5,
        holdout=1.5,
        sources=[source, {"name": "x y"}, {"name": "mine", "filters": {"min_bites": 3}}],
    )
    with pytest.raises(ConfigError) as caught:
        prepare(recipe, say=quiet)
    told = str(caught.value)
    for part in ("$.contxt: unknown key, did you mean 'context'", "$.holdout", "$.sources[1].name"):
        assert part in told
    assert "$.sources[2].filters.min_bites: unknown key, did you mean 'min_bytes'" in told
    recipe = make(tmp_path, sources=[source, source, {"name": "mine", "files": ["a"], "reader": "cht"}])
    with pytest.raises(ConfigError) as caught:
        prepare(recipe, say=quiet)
    assert "'chat' stands twice" in str(caught.value)
    assert "no reader 'cht'" in str(caught.value)


def test_sources_without_files_or_documents(tmp_path: Path) -> None:
    with pytest.raises(IoError, match=r"nowhere\.txt: no file"):
        prepare(make(tmp_path, sources=[{"name": "gutenberg", "files": ["nowhere.txt"]}]), say=quiet)
    (tmp_path / "blank.txt").write_text(" \n")
    with pytest.raises(DataError, match="empty document"):
        prepare(make(tmp_path, sources=[{"name": "gutenberg", "files": ["blank.txt"]}]), say=quiet)
    (tmp_path / "harris_segments.json").unlink()
    recipe = tmp_path / "recipe.json"
    with pytest.raises(IoError, match="andrea tokenizer train"):
        prepare(recipe, say=quiet, out=tmp_path / "b")


def test_optional_sources_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDREA_DATA", str(tmp_path / "named"))
    (tmp_path / "named" / "chat").mkdir(parents=True)
    write_jsonl(tmp_path / "named" / "chat" / "a.jsonl", [{"text": f"text {i}"} for i in range(20)])
    own = {"name": "mine", "reader": "text", "files": ["absent.txt"]}
    recipe = make(tmp_path, optional=True, sources=[{"name": "chat"}, {"name": "irc"}, own])
    said: list[str] = []
    manifest = prepare(recipe, say=said.append)
    assert [entry.name for entry in manifest.sources] == ["chat"]
    assert any("irc: left out" in line for line in said)
    assert any("mine: left out" in line and "absent.txt" in line for line in said)


def test_the_tokenizer_must_have_the_recipe_s_vocabulary(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"text {i}"} for i in range(20)])
    recipe = make(tmp_path, vocab_size=300, sources=[{"name": "chat", "files": ["a.jsonl"]}])
    with pytest.raises(ConfigError, match=r"has 267 ids.*300.*-n 43"):
        prepare(recipe, say=quiet)
