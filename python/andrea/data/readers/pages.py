"""Documentation pages: Markdown and reStructuredText as they are, without what is no text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from andrea.data.readers.prose import passages
from andrea.data.tally import Tally
from andrea.data.text import text_blocks

_FRONT_MATTER = re.compile(r"\A(?:---\n.*?\n---\n|\+\+\+\n.*?\n\+\+\+\n)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_BADGES = re.compile(r"(?m)^(?:[ \t]*\[?!\[[^\]\n]*\]\([^)\n]*\)(?:\]\([^)\n]*\))?)+[ \t]*\n")
_BLANKS = re.compile(r"\n{3,}")


def read_page(path: Path, tally: Tally, encoding: str | None = None) -> Iterator[str]:
    """Yield a page: front matter, HTML comments and lines of badges taken out, the rest unchanged."""
    some = False
    for passage in passages(text_blocks(path, tally, encoding)):
        text = passage if some else _FRONT_MATTER.sub("", passage)
        some = True
        text = _BLANKS.sub("\n\n", _BADGES.sub("", _COMMENT.sub("", text))).strip("\n")
        if text.strip():
            yield text
        else:
            tally.drop("empty document", str(path))
