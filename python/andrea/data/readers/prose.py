"""Plain text, as passages that end at paragraph ends where they can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from andrea.data.split import best_cut
from andrea.data.tally import Tally
from andrea.data.text import text_blocks

PASSAGE_CHARACTERS = 1 << 18  # what is handed to the splitter at a time


def passages(chunks: Iterable[str], limit: int = PASSAGE_CHARACTERS) -> Iterator[str]:
    """Regroup a stream of text into passages of at most `limit` characters, cut at the best ends."""
    held = ""
    for chunk in chunks:
        held += chunk
        start = 0
        while len(held) - start > limit:
            cut = held.rfind("\n\n", start, start + limit) + 2
            if cut < start + limit // 2:
                window = held[start : start + limit].encode("utf-8")
                cut = start + len(window[: best_cut(window, 0, len(window))].decode("utf-8"))
            yield held[start:cut]
            start = cut
        held = held[start:]
    if held:
        yield held


def read_prose(path: Path, tally: Tally, encoding: str | None = None) -> Iterator[str]:
    """Yield the passages of a text file; blank ones are counted as empty."""
    some = False
    for passage in passages(text_blocks(path, tally, encoding)):
        some = True
        text = passage.strip("\n")
        if text.strip():
            yield text
        else:
            tally.drop("empty document", str(path))
    if not some and tally.dropped.total() == 0:
        tally.drop("empty file", str(path))
