"""Readers: each layout, each kind of dirt, and what is counted with file and line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from andrea.data.readers import Options, documents_of, jsonl, read
from andrea.data.tally import Tally
from andrea.errors import DataError
from data_doubles import write_jsonl


def got(kind: str, path: Path, **options: Any) -> tuple[list[str], Tally]:
    tally = Tally()
    return list(read(kind, path, tally, Options(**options))), tally


def raw(tmp_path: Path, content: str | bytes, name: str = "a.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def talk(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]}


def test_five_layouts_in_one_file(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl",
        [
            talk("One", "Two"),
            {"conversations": [{"from": "human", "value": "Three"}, {"from": "gpt", "value": "Four"}]},
            {"prompt": "Five", "completion": "Six"},
            {"instruction": "Add.", "input": "2 2", "output": "4"},
            {"text": "> Only text."},
        ],
    )
    documents, tally = got("chat", path)
    assert documents == [
        "> One\n< Two",
        "> Three\n< Four",
        "> Five\n< Six",
        "> Add.\n\n2 2\n< 4",
        "> Only text.",
    ]
    assert dict(tally.layouts) == {
        "messages": 1,
        "sharegpt": 1,
        "prompt and completion": 1,
        "instruction": 1,
        "text": 1,
    }


@pytest.mark.parametrize(
    ("row", "document", "reason"),
    [
        ({"messages": []}, None, "no reply to learn from"),
        ({"messages": None}, None, "no text in the row"),
        ({"messages": "hello"}, None, "row of a wrong type"),
        (talk("Only asked?"), None, "no reply to learn from"),
        (talk("Hi", " \n"), None, "no reply to learn from"),
        (talk("", "Empty question."), "< Empty question.", None),
        (talk("Hi", "Ho", "More?"), "> Hi\n< Ho\n> More?", None),
        ({"messages": [{"role": "assistant", "content": "First."}]}, "< First.", None),
        ({"messages": [{"role": "tool", "content": "{}"}]}, None, "unknown role"),
        ({"messages": [{"content": "no role"}]}, None, "unknown role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            None,
            "a part of a turn is no text",
        ),
        (
            {
                "messages": [
                    {"role": "User", "content": [{"type": "text", "text": "A"}]},
                    *talk("b", "B")["messages"],
                ]
            },
            "> A\n> b\n< B",
            None,
        ),
        ({"text": 5}, None, "row of a wrong type"),
        ({"text": None}, None, "no text in the row"),
        ({"txt": "misspelt"}, None, "no text in the row"),
        ([1], None, "row of a wrong type"),
    ],
)
def test_conversations(tmp_path: Path, row: Any, document: str | None, reason: str | None) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [talk("good", "row"), row])
    documents, tally = got("chat", path)
    assert documents == ["> good\n< row"] + ([document] if document is not None else [])
    assert dict(tally.dropped) == ({reason: 1} if reason else {})
    if reason:
        assert "a.jsonl:2" in tally.examples[reason][0]


def test_system_prompts_are_left_out_or_kept(tmp_path: Path) -> None:
    row = {"messages": [{"role": "system", "content": "Be brief.\n| yes"}, *talk("Hi", "Ho")["messages"]]}
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    documents, tally = got("chat", path)
    assert documents == ["> Hi\n< Ho"]
    assert tally.mended == {"system prompt left out": 1}
    assert got("chat", path, system="keep")[0] == ["| Be brief.\n\\| yes\n> Hi\n< Ho"]


GOOD = '{"text": "good"}'


@pytest.mark.parametrize(
    ("content", "count", "lines"),
    [
        (f'{GOOD}\n{{"text": "cut\n{GOOD}\n', 2, [2]),
        (f"\n\n{GOOD}  \n   \n{GOOD}", 2, []),
        (f"\ufeff{GOOD}\r\n{GOOD}\r\n", 2, []),
        (f'{GOOD}\n{{"text": "half \\ud83d"}}\n', 1, [2]),
        (f'{GOOD}\n{{"text": "x", "n": ' + "[" * 20000 + "]" * 20000 + f"}}\n{GOOD}\n", 2, [2]),
        (f'{GOOD}\n{{"text": "big", "n": ' + "9" * 6000 + "}\n", 2, []),
        (f'{GOOD}\n{{"text": "x", "n": NaN}}\n', 1, [2]),
        (f'{GOOD}\n{{"text": "a\u2028b\u0085c"}}\n', 2, []),
    ],
)
def test_dirty_rows(tmp_path: Path, content: str, count: int, lines: list[int]) -> None:
    documents, tally = got("chat", raw(tmp_path, content))
    assert len(documents) == count
    found = tally.examples.get("bad JSON", [])
    assert tally.dropped.total() == len(lines)
    assert all(f"a.jsonl:{line}:" in example for line, example in zip(lines, found, strict=True))


def test_a_row_that_is_not_utf8(tmp_path: Path) -> None:
    documents, tally = got(
        "chat", raw(tmp_path, f"{GOOD}\n".encode() + b'{"text": "caf\xe9"}\n' + GOOD.encode())
    )
    assert len(documents) == 2
    assert "a.jsonl:2: Invalid UTF-8" in tally.examples["bad JSON"][0]


def test_no_json_lines(tmp_path: Path) -> None:
    rows = json.dumps([{"text": "a"}, {"text": 1}, {"text": "b"}])
    documents, tally = got("chat", raw(tmp_path, rows))
    assert documents == ["a", "b"]
    assert tally.mended == {"JSON array read as rows": 1}
    with pytest.raises(DataError, match=r"a\.jsonl:1: not JSON lines"):
        got("chat", raw(tmp_path, json.dumps({"text": "spread"}, indent=2)))


def test_rows_over_the_cap_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "ROW_BYTES_MAX", 2_000_000)
    big = json.dumps({"text": "x" * 3_000_000})
    documents, tally = got("chat", raw(tmp_path, f"{GOOD}\n{big}\n{GOOD}\n"))
    assert documents == ["good", "good"]
    assert tally.dropped.total() == 1
    assert any("a.jsonl:2" in line for lines in tally.examples.values() for line in lines)


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_spans_of_a_file_give_each_row_once(tmp_path: Path, size: int) -> None:
    lines = [json.dumps({"text": f"row {i} " + "x" * (i % 37)}) for i in range(60)]
    path = raw(tmp_path, "\ufeff" + "\n".join(lines) + "\n")
    total = path.stat().st_size
    found = []
    for begin in range(0, total, size):
        found += [line for _, line in jsonl.raw_lines(path, Tally(), (begin, min(total, begin + size), 0))]
    assert [line.decode() for line in found] == lines


def test_no_row_has_a_known_key(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"Text": "a", "id": 1}])
    with pytest.raises(DataError, match="'Text', 'id'"):
        list(documents_of(path, Tally()))


def message(name: str, parent: str | None, role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"message_id": name, "parent_id": parent, "role": role, "text": text, "lang": "en", **more}


def test_trees_take_the_best_path_in_any_order(tmp_path: Path) -> None:
    rows = [
        message("4", "3", "assistant", "Dogs bark."),
        message("3", "2", "prompter", "And dogs?"),
        message("2b", "1", "assistant", "Felines.", rank=1),
        message("2", "1", "assistant", "Cats purr.", rank=0),
        message("2c", "1", "assistant", "Deleted.", rank=-1, deleted=True),
        message("2d", "1", "assistant", "Mal.", rank=-1, lang="fr"),
        message("1", None, "prompter", "Cats?"),
    ]
    documents, tally = got("tree", write_jsonl(tmp_path / "a.jsonl", rows), lang="en")
    assert documents == ["> Cats?\n< Cats purr.\n> And dogs?\n< Dogs bark."]
    assert dict(tally.dropped) == {"deleted message": 1, "message in another language": 1}


def test_trees_with_orphans_cycles_and_repeats(tmp_path: Path) -> None:
    rows = [
        message("a", None, "prompter", "Q"),
        message("a", None, "prompter", "same id"),
        message("a1", "a", "assistant", "R"),
        message("b2", "b1", "assistant", "orphan"),
        message("c1", "c2", "prompter", "cycle"),
        message("c2", "c1", "assistant", "cycle"),
        message("d", "d", "prompter", "self"),
        message("e", None, "assistant", "root is a reply"),
        message("f", None, "prompter", "no reply"),
    ]
    documents, tally = got("tree", write_jsonl(tmp_path / "a.jsonl", rows))
    assert documents == ["> Q\n< R"]
    assert dict(tally.dropped) == {
        "repeated message id": 1,
        "message without a root (orphan or cycle)": 4,
        "tree that begins with a reply": 1,
        "no reply to learn from": 1,
    }


BOOK = (
    "\ufeff\r\nThe Project Gutenberg EBook\r\n\r\n"
    "*** START OF THIS PROJECT GUTENBERG EBOOK A\r\nLONG TITLE ***\r\n\r\n"
    "Produced by someone\r\nand another\r\n\r\nCHAPTER I\r\n\r\nIt was a day.\r\n\r\n\r\n\r\nIt rained.\r\n"
)


@pytest.mark.parametrize(
    ("tail", "mended"),
    [
        ("\r\n*** END OF THIS PROJECT GUTENBERG EBOOK ***\r\nlicence\r\n", False),
        ("\r\nEnd of Project Gutenberg's Title\r\nlicence\r\n", False),
        ("", True),
    ],
)
def test_books(tmp_path: Path, tail: str, mended: bool) -> None:
    documents, tally = got("book", raw(tmp_path, BOOK + tail, "b.txt"))
    assert documents == ["CHAPTER I\n\nIt was a day.\n\nIt rained."]
    assert bool(tally.mended) == mended


def test_a_book_without_marks_and_joined_lines(tmp_path: Path) -> None:
    line = "word " * 12 + "end"
    text = f"{line}\n{line}\nshort.\n\nRoses are red,\nviolets are blue."
    path = raw(tmp_path, text, "b.txt")
    assert got("book", path)[0] == [text]
    assert got("book", path, join_lines=True)[0] == [
        f"{line} {line} short.\n\nRoses are red,\nviolets are blue."
    ]


def test_dictionary(tmp_path: Path) -> None:
    rows = [{"word": " a  cat ", "definition": ["an animal", "a woman"]}, {"word": "x"}, {"definition": "y"}]
    documents, tally = got("dictionary", write_jsonl(tmp_path / "d.jsonl", rows))
    assert documents == ["> define a cat\n< a cat is an animal\na woman"]
    assert tally.dropped == {"entry without a word or a definition": 2}


def test_docstrings(tmp_path: Path) -> None:
    source = (
        '"""Module."""\ndef a(x: int, *, y=1) -> str:\n    "one " "joined"\ndef b():\n    b"""bytes"""\n'
        'def c():\n    f"""f {1}"""\nclass D(list):\n    """  \n    """\n    async def e(self):\n'
        '        r"""raw \\d\n        more"""\n'
    )
    documents, tally = got("docstrings", raw(tmp_path, source, "m.py"))
    assert documents == [
        "Module.",
        "def a(x: int, *, y=1) -> str:\none joined",
        "async def e(self):\nraw \\d\nmore",
    ]
    assert tally.dropped == {"empty docstring": 1}


@pytest.mark.parametrize(
    ("content", "documents", "dropped"),
    [
        (b'def f():\n    """D."""\n    print "2"\n', [], {"no valid Python 3 source": 1}),
        (b'# -*- coding: latin-1 -*-\n"""d\xe9j\xe0"""\n', ["d\u00e9j\u00e0"], {}),
        (b'"""a \\ud800 half"""\n', [], {"half of a surrogate pair": 1}),
        (b"x = 1\0\n", [], {"no valid Python 3 source": 1}),
        (b"", [], {"empty file": 1}),
    ],
)
def test_odd_sources(tmp_path: Path, content: bytes, documents: list[str], dropped: dict[str, int]) -> None:
    found, tally = got("docstrings", raw(tmp_path, content, "m.py"))
    assert found == documents
    assert dict(tally.dropped) == dropped


def test_pages(tmp_path: Path) -> None:
    text = "---\ntitle: x\n---\n# T\n\n[![b](u)](v) ![c](w)\n<!-- hidden\nnote -->\n> quote\n\n\n\n`code`\n"
    assert got("pages", raw(tmp_path, text, "p.md"))[0] == ["# T\n\n> quote\n\n`code`"]


def test_commits_from_rows_and_from_a_repository(tmp_path: Path) -> None:
    rows = [
        {"subject": "Fix it", "body": "Because.\n\nSigned-off-by: A B <a@example.com>\n"},
        {"subject": "Merge branch 'x'", "body": ""},
        {"subject": "", "body": ""},
        {"subject": "Only a subject", "body": None},
    ]
    documents, tally = got("commits", write_jsonl(tmp_path / "c.jsonl", rows))
    assert documents == ["Fix it\n\nBecause.", "Only a subject"]
    assert dict(tally.dropped) == {"merge commit": 1, "commit without a message": 1}
    repository = tmp_path / "repo"
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.com"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    for text in ("First\n\nBody of it.", "Second"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", text], check=True)
    assert got("commits", repository)[0] == ["First\n\nBody of it.", "Second"]
    (tmp_path / "plain").mkdir()
    with pytest.raises(DataError, match="git log failed"):
        got("commits", tmp_path / "plain")


def test_irc(tmp_path: Path) -> None:
    log = (
        "--- Log opened\n[12:00] <@ann> hi > all\n[12:01] *** bob has joined\n12:02 -!- mode +o\n"
        "[12:05] * bob waves\n[12:06] <bob> \nnonsense\n[13:00] <ann> later\n"
        "2024-01-02 10:00:00\tcarl\tnext day\n2024-01-02 10:00:01\t-->\tdan has joined\n"
    )
    documents, tally = got("irc", raw(tmp_path, log, "a.log"))
    assert documents == ["ann: hi > all\nbob: waves", "ann: later", "carl: next day"]
    assert tally.mended == {"line in no known layout left out": 1}


def test_parquet_and_jsonl_give_the_same_documents(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [talk(f"question {i}", f"answer {i}") | {"id": i} for i in range(700)] + [{"messages": []}]
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    one, first = got("chat", tmp_path / "a.parquet")
    two, second = got("chat", write_jsonl(tmp_path / "a.jsonl", rows))
    assert one == two
    assert first.dropped == second.dropped
    parts = [d for g in range(8) for d in read("chat", tmp_path / "a.parquet", Tally(), None, (g, g + 1, 0))]
    assert parts == one
    parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"it has \['x'\]"):
        got("chat", tmp_path / "b.parquet")
    with pytest.raises(DataError, match="not a readable Parquet"):
        got("chat", raw(tmp_path, b"PAR1 no", "c.parquet"))
