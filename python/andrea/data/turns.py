"""The turn format: `> prompt`, `< reply`, and, where system prompts are kept, `| system prompt`.

A turn begins with its mark and one blank at the start of a line and goes on to the next line that begins
with a mark. A line of the text itself that begins with `>`, `<` or `|` (behind any number of backslashes)
gets one more backslash in front, and loses it when it is read back: `parse(render(turns)) == turns` for
every text. Nothing in a text is a control token: marks are ordinary characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
MARKS = {USER: "> ", ASSISTANT: "< ", SYSTEM: "| "}
_BY_MARK = {mark: role for role, mark in MARKS.items()}

# How sources name the speakers, lower case. A name that is not here is never guessed.
ROLES = {
    "user": USER,
    "human": USER,
    "prompter": USER,
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "model": ASSISTANT,
    "bot": ASSISTANT,
    "bing": ASSISTANT,
    "bard": ASSISTANT,
    "system": SYSTEM,
    "developer": SYSTEM,
}
_NEEDS_ESCAPE = re.compile(r"^(\\*[<>|])", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(\\*[<>|])", re.MULTILINE)
_TURN = re.compile(r"^([<>|] )", re.MULTILINE)


class Turn(NamedTuple):
    """One turn: `role` is "user", "assistant" or "system"."""

    role: str
    text: str


def role_of(name: object) -> str | None:
    """Return the role that a source's speaker name stands for, or None if it is unknown."""
    return ROLES.get(name.strip().lower()) if isinstance(name, str) else None


def render(turns: Sequence[Turn]) -> str:
    """Return the document of a conversation."""
    return "\n".join(
        MARKS[role] + (_NEEDS_ESCAPE.sub(r"\\\1", text) if _odd(text) else text) for role, text in turns
    )


def _odd(text: str) -> bool:
    return ">" in text or "<" in text or "|" in text


def parse(document: str) -> list[Turn]:
    """Return the turns of a document; text before the first mark is left out."""
    parts = _TURN.split(document)
    turns = [Turn(_BY_MARK[mark], text) for mark, text in zip(parts[1::2], parts[2::2], strict=True)]
    # The line end before the next mark belongs to the format, not to the text.
    whole = [Turn(role, text.removesuffix("\n")) for role, text in turns[:-1]] + turns[-1:]
    return [Turn(role, _ESCAPED.sub(r"\1", text)) for role, text in whole]
