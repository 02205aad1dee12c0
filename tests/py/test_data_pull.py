"""Pulling: whole files only, what to do by hand without a network, Hermes-3 sorted. No network is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from andrea.data.hermes import part_of
from andrea.data.pull import RemoteFile, pull
from andrea.data.readers.chat import ChatRow, RawTurn
from andrea.data.sources import SOURCES, state_of
from andrea.errors import ConfigError, DataError, IoError
from data_doubles import write_jsonl

OASST = "2023-11-05_oasst2_ready.messages.jsonl.gz"


class FakeHub:
    """A hub that serves bytes from memory, and may break or lie."""

    def __init__(self, content: dict[str, bytes], down: bool = False, spoil: bool = False) -> None:
        self.content, self.down, self.spoil = content, down, spoil
        self.fetched: list[str] = []

    def files(self, name: str) -> tuple[str, list[RemoteFile]]:
        if self.down:
            raise OSError("Name or service not known")
        found = [RemoteFile(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in self.content.items()]
        return "0123456789abcdef", found

    def fetch(self, name: str, revision: str, file: str, folder: Path) -> Path:
        self.fetched.append(file)
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content[file][:-1] + b"!" if self.spoil else self.content[file])
        return path


def quiet(line: str) -> None:
    """Say nothing."""


def test_fetches_once_and_only_what_is_wanted(tmp_path: Path) -> None:
    hub = FakeHub({OASST: b"rows", "README.md": b"card"})
    folder = pull("oasst", tmp_path, hub, quiet)
    assert (folder / OASST).read_bytes() == b"rows"
    assert hub.fetched == [OASST]
    record = json.loads((folder / "SOURCE.json").read_text())
    assert record["revision"] == "0123456789abcdef"
    assert record["files"][0]["sha256"] == hashlib.sha256(b"rows").hexdigest()
    pull("oasst", tmp_path, FakeHub({}, down=True), quiet)
    assert "2 files" in state_of(SOURCES["oasst"], tmp_path)


def test_goes_on_after_a_break(tmp_path: Path) -> None:
    content = {f"data/all/train-{i:05d}.parquet": bytes([i]) * 50 for i in range(3)}
    first = "data/all/train-00000.parquet"
    (tmp_path / "smoltalk" / "data" / "all").mkdir(parents=True)
    (tmp_path / "smoltalk" / first).write_bytes(content[first])
    hub = FakeHub(content)
    pull("smoltalk", tmp_path, hub, quiet)
    assert first not in hub.fetched
    assert len(hub.fetched) == 2


def test_a_wrong_hash_is_removed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pull again"):
        pull("oasst", tmp_path, FakeHub({OASST: b"rows"}, spoil=True), quiet)
    assert not (tmp_path / "oasst" / OASST).exists()


def test_offline_says_what_to_fetch_and_where(tmp_path: Path) -> None:
    with pytest.raises(IoError) as caught:
        pull("oasst", tmp_path, FakeHub({}, down=True), quiet)
    for part in ("OpenAssistant/oasst2", OASST, str(tmp_path / "oasst")):
        assert part in str(caught.value)
    (tmp_path / "oasst").mkdir(exist_ok=True)
    (tmp_path / "oasst" / OASST).write_bytes(b"by hand")
    said: list[str] = []
    pull("oasst", tmp_path, FakeHub({}, down=True), said.append)
    assert "unchecked" in said[0]


def test_names_without_an_origin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="put your files into"):
        pull("irc", tmp_path, None, quiet)
    with pytest.raises(ConfigError, match="andrea data list"):
        pull("nonsense", tmp_path, None, quiet)
    with pytest.raises(DataError, match="has none of the files"):
        pull("oasst", tmp_path, FakeHub({"other.txt": b""}), quiet)


def share(system: str | None, asked: str) -> dict[str, object]:
    turns = [{"from": "system", "value": system}] if system else []
    return {"conversations": [*turns, {"from": "human", "value": asked}, {"from": "gpt", "value": "Yes."}]}


def test_hermes_is_sorted_into_three(tmp_path: Path) -> None:
    rows = [
        share(None, "What is a prime number?"),
        share(None, "Write a short story about a lighthouse."),
        share("You are playing a knight. Stay in character.", "Who goes there?"),
        share(None, "Let's roleplay: you sell fish."),
        share(None, "Explain how a story is told in film."),
    ]
    raw = write_jsonl(tmp_path / "raw.jsonl", rows).read_bytes() + b"{broken\n"
    said: list[str] = []
    pull("hermes3", tmp_path, FakeHub({"hermes.jsonl": raw}), said.append)
    lines = {}
    for part in ("general", "creative", "roleplay"):
        name = f"hermes3-{part}"
        lines[part] = (tmp_path / name / f"{name}.jsonl").read_text().splitlines()
    assert {part: len(found) for part, found in lines.items()} == {"general": 2, "creative": 1, "roleplay": 2}
    assert json.loads(lines["creative"][0]) == rows[1]


def test_the_rule_looks_at_the_first_request_only() -> None:
    row = ChatRow(messages=[RawTurn("user", None, "Hi"), RawTurn("user", None, "Write a poem.")])
    assert part_of(row) == "hermes3-general"


def test_every_named_source_says_where_it_is_from() -> None:
    names = (
        "hermes3-general hermes3-creative hermes3-roleplay chat smoltalk oasst gutenberg dictionary repo-docs"
    )
    names += " repo-docstrings repo-commits irc unweapon synthetic-chat unfirehose-chat"
    assert list(SOURCES) == names.split()
    for source in SOURCES.values():
        assert source.origin
        assert source.licence
        assert source.layout
        assert bool(source.hub) == bool(source.patterns)
