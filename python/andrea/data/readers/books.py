"""Books in the layout of Project Gutenberg: header and licence cut, the text in passages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from andrea.data.readers.prose import passages
from andrea.data.tally import Tally
from andrea.data.text import text_blocks

_START = re.compile(r"^\s*\*{3}\s*START OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_END = re.compile(
    r"^\s*(?:\*{3}\s*END OF (?:THE|THIS) PROJECT GUTENBERG|End of (?:the )?Project Gutenberg(?:'s)?\b)",
    re.IGNORECASE,
)
_CREDIT = re.compile(r"^\s*(?:Produced by|E-text prepared by|Transcribed from|This etext was)", re.IGNORECASE)
HEADER_LINES_MAX = 1000  # a START mark further down is no header's end


def lines_of(blocks: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text stream without their LF; a last line without LF counts."""
    held = ""
    for block in blocks:
        lines = (held + block).split("\n")
        held = lines.pop()
        yield from lines
    if held:
        yield held


def body_lines(lines: Iterable[str], path: Path, tally: Tally) -> Iterator[str]:
    """Yield the lines between the START and END marks; all lines if there is no START mark."""
    source = iter(lines)
    head: list[str] = []
    started = False
    for line in source:
        head.append(line)
        if _START.match(line):
            started = True
            while not line.rstrip().endswith("***") and len(head) < HEADER_LINES_MAX:
                line = next(source, "***")
                head.append(line)
            break
        if len(head) >= HEADER_LINES_MAX:
            break
    if not started:
        yield from head
    credit = started
    ended = False
    for line in source:
        if credit and line.strip():
            # The first paragraph after the mark may name who typed the book.
            credit = False
            if _CREDIT.match(line):
                while next(source, "").strip():
                    pass
                continue
        if started and _END.match(line):
            ended = True
            break
        yield line
    if started and not ended:
        tally.mend("book without its END mark: the header alone was cut", str(path))


def unwrap(passage: str) -> str:
    """Join the lines of hard-wrapped paragraphs; paragraphs with a short inner line (verse) stay."""
    out = []
    for paragraph in passage.split("\n\n"):
        lines = paragraph.split("\n")
        prose = len(lines) > 1 and all(len(line) >= 50 and line[:1].strip() for line in lines[:-1])
        out.append(" ".join(lines) if prose and lines[-1][:1].strip() else paragraph)
    return "\n\n".join(out)


def read_book(
    path: Path, tally: Tally, encoding: str | None = None, join_lines: bool = False
) -> Iterator[str]:
    """Yield the passages of a book; with `join_lines`, hard-wrapped paragraphs become one line."""
    lines = body_lines(lines_of(text_blocks(path, tally, encoding)), path, tally)
    for passage in passages(line + "\n" for line in lines):
        text = re.sub(r"\n{3,}", "\n\n", passage.strip("\n"))
        if text.strip():
            yield unwrap(text) if join_lines else text
        else:
            tally.drop("empty document", str(path))
