"""Hermes-3 conversations sorted into general, creative and roleplay, by a rule on the rows' own words.

The data set has no such labels; the rule is ours. Roleplay: the system prompt or the first request gives
the model a character to play. Creative: the first request asks to write a story, a poem, a song, a scene.
Everything else is general. Rows are copied unchanged, byte for byte.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import msgspec

from andrea.data.files import atomic_write
from andrea.data.readers.chat import ChatRow, RawTurn
from andrea.data.readers.jsonl import raw_lines
from andrea.data.tally import Tally
from andrea.data.turns import SYSTEM, USER, role_of

PARTS = ("hermes3-general", "hermes3-creative", "hermes3-roleplay")
_ROLEPLAY = re.compile(
    r"role-?\s?play|in[- ]character\b|\bpersona\b|you(?:'re| are) (?:now )?playing\b|\btake on the role\b"
    r"|\b(?:play|playing|assume|portray) the (?:role|part|character)\b"
    r"|\b(?:act|speak|respond|talk) (?:as if you were|like) (?:a|an|the)\b",
    re.IGNORECASE,
)
_CREATIVE = re.compile(
    r"\b(?:write|compose|create|craft|tell|continue|pen|draft|invent|make up)\b[^.?!\n]{0,60}"
    r"\b(?:story|stories|tale|poem|poetry|haiku|sonnet|limerick|ballad|verse|song|lyrics|scene|screenplay|novel"
    r"|fiction|fanfic\w*|fable|monologue|script for a (?:play|film|movie))\b",
    re.IGNORECASE,
)


def part_of(row: ChatRow) -> str:
    """Return which of the three sources a conversation belongs to."""
    turns = row.conversations or row.messages or []
    system = " ".join(_said(t) for t in turns if role_of(t.from_ or t.role) == SYSTEM)
    first = next((_said(t) for t in turns if role_of(t.from_ or t.role) == USER), "")
    if _ROLEPLAY.search(system[:4000]) or _ROLEPLAY.search(first[:1000]):
        return "hermes3-roleplay"
    return "hermes3-creative" if _CREATIVE.search(first[:1000]) else "hermes3-general"


def _said(turn: RawTurn) -> str:
    text = turn.value if turn.value is not None else turn.content
    return text if isinstance(text, str) else ""


def split_hermes(files: list[Path], root: Path) -> dict[str, int]:
    """Sort the rows of JSONL files into `root/<part>/<part>.jsonl`; returns rows a part.

    Rows that are no JSON are left out (the reader of a recipe could not use them either).
    """
    decode = msgspec.json.Decoder(ChatRow).decode
    counts = dict.fromkeys(PARTS, 0)
    with ExitStack() as stack:
        outs = {part: stack.enter_context(atomic_write(root / part / f"{part}.jsonl")) for part in PARTS}
        for path in files:
            for _, raw in raw_lines(path, Tally()):
                try:
                    part = part_of(decode(raw))
                except (msgspec.DecodeError, RecursionError):
                    continue
                outs[part].write(raw.rstrip(b"\r") + b"\n")
                counts[part] += 1
    return counts
