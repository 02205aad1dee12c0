"""Readers: each yields the documents of one file as clean text and counts what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from andrea.data.readers.jsonl import Span, keys_of, raw_lines, rows
from andrea.data.tally import Tally
from andrea.errors import ConfigError, DataError

ROW_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a recipe may set for a reader; each reader looks at those it knows."""

    encoding: str | None = None  # of text files; found out if not given
    system: str = "drop"  # chat: "drop" or "keep" system prompts
    lang: str | None = None  # trees: only messages of this language
    merges: bool = False  # commits: keep merge commits
    join_lines: bool = False  # books: one line a paragraph


def bare_name(path: Path) -> str:
    """Return the file's name in lower case without .gz or .zst."""
    return path.name.lower().removesuffix(".gz").removesuffix(".zst")


def _rows(path: Path, tally: Tally, row_type: type[Any], span: Span) -> Iterator[tuple[int, Any]]:
    if bare_name(path).endswith(".parquet"):
        from andrea.data.readers.table import table_rows

        return table_rows(path, tally, row_type, span)
    return rows(path, tally, row_type, span)


def _chat(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.chat import ChatRow, render_chat

    return render_chat(_rows(path, tally, ChatRow, span), path, tally, options.system)


def _tree(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.trees import Message, render_trees

    return render_trees(_rows(path, tally, Message, span), path, tally, options.lang)


def _dictionary(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.records import Entry, render_entries

    return render_entries(_rows(path, tally, Entry, span), path, tally)


def _commits(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.records import Commit, render_commits, repository_commits

    found = repository_commits(path, tally) if path.is_dir() else _rows(path, tally, Commit, span)
    return render_commits(found, path, tally, options.merges)


def _book(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.books import read_book

    return read_book(path, tally, options.encoding, options.join_lines)


def _docstrings(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.python_source import read_docstrings

    return read_docstrings(path, tally)


def _pages(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.pages import read_page

    return read_page(path, tally, options.encoding)


def _irc(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.irc import read_irc

    return read_irc(path, tally, options.encoding)


def _text(path: Path, tally: Tally, options: Options, span: Span) -> Iterator[str]:
    from andrea.data.readers.prose import read_prose

    return read_prose(path, tally, options.encoding)


Reader = Callable[[Path, Tally, Options, Span], Iterator[str]]
READERS: dict[str, Reader] = {
    "chat": _chat,
    "tree": _tree,
    "dictionary": _dictionary,
    "commits": _commits,
    "book": _book,
    "docstrings": _docstrings,
    "pages": _pages,
    "irc": _irc,
    "text": _text,
}
ROW_READERS = {"chat", "dictionary", "commits"}  # rows are independent: a file may be read in parts
# The names a folder is searched for; a file named in a recipe is read whatever its name.
SUFFIXES = {
    "chat": ROW_SUFFIXES,
    "tree": ROW_SUFFIXES,
    "dictionary": ROW_SUFFIXES,
    "commits": ROW_SUFFIXES,
    "book": (".txt",),
    "docstrings": (".py",),
    "pages": (".md", ".rst", ".markdown", ".txt"),
    "irc": (".log", ".txt", ".irc", ".weechatlog"),
    "text": (".txt", ".text", ".md", ".rst"),
}


def read(
    kind: str, path: Path, tally: Tally, options: Options | None = None, span: Span = None
) -> Iterator[str]:
    """Yield the documents of `path` with the reader `kind`; `span` is a part of a file of rows."""
    if kind not in READERS:
        raise ConfigError(f"no reader named {kind!r}; there are {', '.join(sorted(READERS))}")
    return READERS[kind](path, tally, options or Options(), span)


def kind_for(path: Path) -> str:
    """Return the reader that goes with a file's name."""
    name = bare_name(path)
    if name.endswith(ROW_SUFFIXES):
        return "chat"
    if name.endswith(".py"):
        return "docstrings"
    return "pages" if name.endswith((".md", ".rst", ".markdown")) else "text"


def documents_of(path: Path, tally: Tally, options: Options | None = None) -> Iterator[str]:
    """Yield the documents of a file by its name: rows by their text or turns, `.py` docstrings, else text.

    Raises DataError, with the keys that are there, if no row of a file has a key that is known.
    """
    kind = kind_for(path)
    before = tally.dropped["no text in the row"]
    some = False
    for text in read(kind, path, tally, options):
        some = True
        yield text
    if not some and kind == "chat" and tally.dropped["no text in the row"] > before:
        raise DataError(
            f"{path}: no row has a text or turns; the first row has the keys {first_keys(path)}; "
            'rows need "text", "messages", "conversations", "prompt" or "instruction"'
        )


def first_keys(path: Path) -> str:
    """Return the keys of the first row of a JSONL file for a message."""
    _, raw = next(raw_lines(path, Tally()), (0, b"{}"))
    try:
        return keys_of(msgspec.json.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return "none"
