"""Conversations: messages, ShareGPT, prompt and completion, instruction and output, plain text.

The layout is found row by row and counted. Empty turns are left out; a conversation without one reply
is dropped. Turns of one speaker in a row are all rendered, whoever speaks first. A last turn of the user
stays. System prompts are left out (counted) unless `system` is "keep".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from andrea.data.tally import Tally
from andrea.data.text import clean
from andrea.data.turns import ASSISTANT, SYSTEM, USER, Turn, render, role_of


class Part(msgspec.Struct):
    """A part of a turn's content."""

    type: str | None = None
    text: str | None = None


class RawTurn(msgspec.Struct, rename={"from_": "from"}):
    """A turn as sources write it: role and content, or from and value."""

    role: str | None = None
    from_: str | None = None
    content: str | list[Part] | None = None
    value: str | None = None


class ChatRow(msgspec.Struct):
    """The keys looked at; all others are skipped unread."""

    messages: list[RawTurn] | None = None
    conversations: list[RawTurn] | None = None
    prompt: Any = None
    completion: Any = None
    response: Any = None
    instruction: Any = None
    input: Any = None
    output: Any = None
    text: Any = None


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _turns(raw: list[RawTurn], tally: Tally, place: str) -> list[Turn] | None:
    """Return clean turns, or None if the row is to be dropped (then it is counted)."""
    turns: list[Turn] = []
    for item in raw:
        name = item.role if item.role is not None else item.from_
        role = role_of(name)
        if role is None:
            tally.drop("unknown role", f"{place}: {name!r}")
            return None
        content = item.content if item.content is not None else item.value
        if isinstance(content, list):
            if any(part.text is None for part in content):
                kinds = ", ".join(sorted({str(p.type) for p in content if p.text is None}))
                tally.drop("a part of a turn is no text", f"{place}: {kinds}")
                return None
            content = "\n".join(part.text or "" for part in content)
        text = clean(content or "").strip()
        if text:
            turns.append(Turn(role, text))
        else:
            tally.mend("empty turn left out", place)
    return turns


def _layout(row: ChatRow) -> tuple[str, list[RawTurn]] | None:
    """Return (layout, raw turns) of a row, or None if it has none of the known keys."""
    if row.messages is not None:
        return "messages", row.messages
    if row.conversations is not None:
        return "sharegpt", row.conversations
    if isinstance(row.prompt, str) and (row.completion is not None or row.response is not None):
        reply = _string(row.completion) or _string(row.response)
        return "prompt and completion", [RawTurn(USER, None, row.prompt), RawTurn(ASSISTANT, None, reply)]
    if isinstance(row.instruction, str):
        asked = "\n\n".join(part for part in (row.instruction, _string(row.input)) if part)
        reply = _string(row.output) or _string(row.response)
        return "instruction", [RawTurn(USER, None, asked), RawTurn(ASSISTANT, None, reply)]
    return None


def render_chat(
    rows: Iterable[tuple[int, ChatRow]], path: Path, tally: Tally, system: str = "drop"
) -> Iterator[str]:
    """Yield one document a conversation; `system` is "drop" or "keep"."""
    for line, row in rows:
        found = _layout(row)
        if found is None:
            if isinstance(row.text, str) and (text := clean(row.text).strip()):
                tally.layouts["text"] += 1
                yield text
            else:
                reason = (
                    "no text in the row"
                    if row.text is None or isinstance(row.text, str)
                    else "row of a wrong type"
                )
                why = "text is no string" if reason.endswith("type") else "no turns and no text"
                tally.drop(reason, f"{path}:{line}: {why}")
            continue
        layout, raw = found
        place = f"{path}:{line}"
        turns = _turns(raw, tally, place)
        if turns is None:
            continue
        if system != "keep" and any(turn.role == SYSTEM for turn in turns):
            tally.mend("system prompt left out", place)
            turns = [turn for turn in turns if turn.role != SYSTEM]
        if not any(turn.role == ASSISTANT for turn in turns):
            tally.drop("no reply to learn from", place)
            continue
        tally.layouts[layout] += 1
        yield render(turns)
