"""IRC logs: `[12:34] <nick> text`, ISO dates, or tab-separated; one document a stretch of talk.

Joins, parts, modes and other notices are left out. A gap of half an hour or a new day ends a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from andrea.data.readers.books import lines_of
from andrea.data.tally import Tally
from andrea.data.text import text_blocks

GAP_MINUTES = 30
_STAMP = (
    r"\[?(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?(?P<hour>\d\d):(?P<minute>\d\d)(?::\d\d)?(?:[.,]\d+)?"
    r"(?:Z|[+-]\d\d:?\d\d)?\]?"
)
_TALK = re.compile(
    rf"^{_STAMP}(?:\s+<[ @+%&~]?(?P<nick>[^>\s]{{1,32}})>\s?|\t[@+%&~]?(?P<tabbed>[^\t\s]{{1,32}})\t)"
    r"(?P<text>.*)$"
)
_ACTION = re.compile(rf"^{_STAMP}\s+\*\s+(?P<nick>[^\s*]{{1,32}})\s(?P<text>.+)$")
_NOTICE = re.compile(rf"^(?:{_STAMP}\s+(?:\*{{3}}|-!-|<?--+>?|={{3}}|[-<>=!*]+\s)|--- ?(?:Log|Day)|Session )")
_NOTICE_NICKS = {"--", "-->", "<--", "=!=", "***", "*"}


def read_irc(path: Path, tally: Tally, encoding: str | None = None) -> Iterator[str]:
    """Yield stretches of talk as lines `nick: text`; lines in no known layout are counted."""
    talk: list[str] = []
    last: tuple[str | None, int] | None = None
    for number, line in enumerate(lines_of(text_blocks(path, tally, encoding)), start=1):
        if not line.strip():
            continue
        found = _TALK.match(line) or _ACTION.match(line)
        name = (found.groupdict().get("tabbed") or found["nick"]) if found else None
        if found is None or name in _NOTICE_NICKS:
            if found is None and not _NOTICE.match(line):
                tally.mend("line in no known layout left out", f"{path}:{number}", line)
            continue
        now = (found["date"], 60 * int(found["hour"]) + int(found["minute"]))
        if last is not None and talk and (now[0] != last[0] or not 0 <= now[1] - last[1] <= GAP_MINUTES):
            yield "\n".join(talk)
            talk = []
        last = now
        if text := found["text"].strip():
            talk.append(f"{name}: {text}")
    if talk:
        yield "\n".join(talk)
