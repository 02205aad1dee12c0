"""Readers: each yields the documents of one file as clean text and counts what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from andrea.data.readers.jsonl import rows
from andrea.data.readers.prose import read_prose
from andrea.data.tally import Tally
from andrea.data.text import clean


class _TextRow(msgspec.Struct):
    text: str | None = None


def documents_of(path: Path, tally: Tally) -> Iterator[str]:
    """Yield the documents of a file by its name: `.jsonl` rows by "text", else plain text."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".jsonl"):
        for line, row in rows(path, tally, _TextRow):
            text = clean(row.text or "").strip()
            if text:
                yield text
            else:
                tally.drop("no text in the row", f"{path}:{line}")
        return
    yield from read_prose(path, tally)
