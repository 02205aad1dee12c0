"""Records of two fields: dictionary entries and commits."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from andrea.data.tally import Tally
from andrea.data.text import clean
from andrea.data.turns import ASSISTANT, USER, Turn, render
from andrea.errors import DataError


class Entry(msgspec.Struct):
    """A dictionary entry."""

    word: str | None = None
    definition: str | list[str] | None = None


class Commit(msgspec.Struct):
    """A commit message."""

    subject: str | None = None
    body: str | None = None


_MERGE = re.compile(r"Merge (?:pull request|branch|remote-tracking branch|tag|commit)\b")
_TRAILER = re.compile(
    r"(?im)^(?:signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|reported-by|cc|change-id|git-svn-id"
    r"|--HG--).*\n?"
)


def render_entries(rows: Iterable[tuple[int, Entry]], path: Path, tally: Tally) -> Iterator[str]:
    """Yield `> define X`, `< X is ...` for each entry."""
    for line, row in rows:
        meaning = row.definition
        text = clean("\n".join(meaning) if isinstance(meaning, list) else meaning or "").strip()
        word = " ".join(clean(row.word or "").split())
        if word and text:
            yield render([Turn(USER, f"define {word}"), Turn(ASSISTANT, f"{word} is {text}")])
        else:
            tally.drop("entry without a word or a definition", f"{path}:{line}")


def render_commits(
    rows: Iterable[tuple[int, Commit]], path: Path, tally: Tally, merges: bool = False
) -> Iterator[str]:
    """Yield subject, blank line, body (trailers taken off); merge commits only with `merges`."""
    for line, row in rows:
        subject = clean(row.subject or "").strip()
        body = _TRAILER.sub("", clean(row.body or "") + "\n").strip()
        if not subject and not body:
            tally.drop("commit without a message", f"{path}:{line}")
        elif not merges and _MERGE.match(subject):
            tally.drop("merge commit", f"{path}:{line}", subject)
        else:
            yield "\n\n".join(part for part in (subject, body) if part)


def repository_commits(path: Path, tally: Tally) -> Iterator[tuple[int, Commit]]:
    """Yield the commits of a Git repository, oldest first, as they stream out of `git log`."""
    command = ["git", "-C", str(path), "log", "--reverse", "-z", "--encoding=UTF-8", "--format=%s%x01%b"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError as error:
        raise DataError(f"{path}: reading a repository needs git; install git, or give JSONL") from error
    assert process.stdout is not None
    assert process.stderr is not None
    held, number = b"", 0
    with process:
        while block := process.stdout.read(1 << 16):
            *whole, held = (held + block).split(b"\0")
            for raw in whole:
                number += 1
                yield number, _commit(raw, path, number, tally)
        if held:
            yield number + 1, _commit(held, path, number + 1, tally)
        problem = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode != 0:
        raise DataError(f"{path}: git log failed: {problem}; give the folder of a Git repository")


def _commit(raw: bytes, path: Path, number: int, tally: Tally) -> Commit:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        tally.mend("bytes that are not UTF-8 became U+FFFD", f"{path}: commit {number}: {error.reason}")
        text = raw.decode("utf-8", "replace")
    subject, _, body = text.partition("\x01")
    return Commit(subject, body)
