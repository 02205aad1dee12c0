"""Cutting a long text into documents of at most `context` tokens, at the best ends there are.

Ends, best first: before a prompt (a line that begins with `> `), paragraph (a blank line) or sentence (a
terminator and what follows it), then line, word, any character. Among the first three, one in the second
half of what fits is taken first, so that pieces are not needlessly short.
Works on UTF-8 bytes and never cuts a character.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

# Terminators followed by white space, and those of scripts that write none (CJK, Devanagari, Arabic, ...).
_CLOSERS = "|".join(re.escape(sign) for sign in "\"')]}\u2019\u201d\u00bb\u300d\u300f\uff09")
_SPACED = "|".join(re.escape(sign) for sign in ".!?\u2026")
_UNSPACED = "|".join("\u3002\uff01\uff1f\u0964\u0965\u06d4\u061f\u1362")
_TURN = re.compile(rb"\n(?=> )")
_PARAGRAPH = re.compile(rb"\n[ \t]*\n\s*")
_SENTENCE = re.compile(
    f"(?:(?:{_SPACED})(?:{_CLOSERS})*\\s+)|(?:(?:{_UNSPACED})(?:{_CLOSERS})*\\s*)".encode(),
)
_LINE = re.compile(rb"\n\s*")
_WORD = re.compile(rb"\s+")
_ENDS = ((_TURN, _PARAGRAPH, _SENTENCE), (_LINE,), (_WORD,))


def _is_inside_character(text: bytes, at: int) -> bool:
    return at < len(text) and text[at] & 0xC0 == 0x80


def _last_end(pattern: re.Pattern[bytes], text: bytes, low: int, high: int) -> int:
    last = -1
    for match in pattern.finditer(text, low, high):
        last = match.end()
    return last


def best_cut(text: bytes, start: int, limit: int) -> int:
    """Return where to cut `text[start:]` so that the piece ends at or before `limit` (start < cut <= limit).

    `limit` must leave room for one character (4 bytes), else the character is given whole.
    """
    half = start + (limit - start) // 2
    for rank in _ENDS:
        for low, high in ((half, limit), (start, half)):
            for pattern in rank:
                cut = _last_end(pattern, text, low, high)
                if cut > start:
                    return cut
    cut = limit
    while cut > start and _is_inside_character(text, cut):
        cut -= 1
    if cut == start:
        cut = start + 1
        while _is_inside_character(text, cut):
            cut += 1
    return cut


def split_by_tokens(text: bytes, token_ends: npt.NDArray[np.int64], context: int) -> list[bytes]:
    """Cut `text` into pieces of about `context` tokens; the pieces joined are `text`.

    `token_ends[i]` is the byte at which token i of the whole text ends. A piece can come out a little over
    `context` when it is encoded alone (its first token may change): the caller looks again.
    """
    ends = token_ends.tolist()
    pieces: list[bytes] = []
    start = 0
    while start < len(text):
        first = bisect_right(ends, start)
        if len(ends) - first <= context:
            pieces.append(text[start:])
            break
        # One token is kept in reserve: a cut in the middle of a token makes one more.
        limit = ends[first + context - 2]
        cut = best_cut(text, start, max(limit, start + 1))
        pieces.append(text[start:cut])
        start = cut
    return pieces


def trim(piece: bytes) -> bytes:
    """Drop white space at the ends of a piece, but keep the indentation of its first line."""
    piece = piece.rstrip(b" \t\n")
    return re.sub(rb"\A(?:[ \t]*\n)+", b"", piece)
