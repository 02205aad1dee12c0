"""Signs of collapse in one text.

    one word        a word said 8 times running over a fifth of the text, or half of all words
    two words       two words in turn likewise, or six tenths of all words are the same two
    phrase          3 to 8 words in turn likewise, five times at least
    n-grams         half of the runs of four words were there before
    signs           six tenths of what is visible are signs, or nine tenths of 120 characters in a row; a
                    line of one sign, as under a title or in a table, counts as one
    one character   100 times running, or half of what is visible; or white space: 100 running, or 7 tenths
    no text         four tenths of the words are broken UTF-8, control or unassigned characters

Real text of several kinds has none of these (tests/py/test_audit.py counts). Words are those of the
coherence score; a text of fewer than 24 words is only judged by its characters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from andrea.curriculum.collapse import kind_of, units_of

FEWEST_WORDS = 24
FEWEST_CHARACTERS = 30
LOOP_WORDS = 8
LOOP_SHARE = 0.2
WINDOW = 120  # visible characters
RUN = 100  # of one character


@dataclass(frozen=True)
class Mark:
    """A sign of collapse: its kind, and what was seen."""

    kind: str
    seen: str


def marks_of(text: str) -> list[Mark]:
    """Return the signs of collapse in `text`."""
    found = list(_character_marks(text))
    units = list(units_of(text))
    if len(units) >= FEWEST_WORDS:
        broken = sum(not unit for unit in units) / len(units)
        if broken >= 0.4:
            found.append(Mark("no text", f"{broken:.0%} of the words are no text"))
        else:
            found += _word_marks(units)
    return found


def _word_marks(units: list[str]) -> list[Mark]:
    counts = Counter(units).most_common(2)
    names = ("one word", "two words")
    for period, share in ((1, 0.5), (2, 0.6)):
        common = sum(count for _, count in counts[:period]) / len(units)
        words = " ".join(repr(word) for word, _ in counts[:period])
        if common >= share:
            return [Mark(names[period - 1], f"{words}: {common:.0%} of {len(units)} words")]
    found = []
    for period in range(1, 9):
        begin, length = longest_loop(units, period)
        times = length / period
        if length >= max(LOOP_WORDS * min(period, 2), LOOP_SHARE * len(units)) and times >= 5:
            phrase = " ".join(units[begin : begin + period])
            kind = names[period - 1] if period < 3 else "phrase"
            found.append(Mark(kind, f"{phrase!r} {times:.0f} times running"))
            break
    grams = list(zip(*(units[i:] for i in range(4)), strict=False))
    again = 1 - len(set(grams)) / len(grams)
    if again >= 0.5:
        found.append(Mark("n-grams", f"{again:.0%} of the runs of four words were there before"))
    return found


def longest_loop(units: list[str], period: int) -> tuple[int, int]:
    """Return begin and length of the longest stretch that repeats after `period` words; length 0: none."""
    best = (0, 0)
    at = period
    for same, group in groupby(units[i] == units[i - period] for i in range(period, len(units))):
        size = len(list(group))
        if same and size + period > best[1] and size >= period:
            best = (at - period, size + period)
        at += size
    return best


def _character_marks(text: str) -> list[Mark]:
    found = []
    visible = _without_rules(text)
    signs = np.array([kind_of(c) == "sign" for c in visible], dtype=bool)
    if len(visible) >= FEWEST_CHARACTERS:
        share = float(signs.mean())
        sums = np.concatenate(([0], np.cumsum(signs)))
        window = int((sums[WINDOW:] - sums[:-WINDOW]).max()) if signs.size >= WINDOW else 0
        if share >= 0.6:
            found.append(Mark("signs", f"{share:.0%} of what is visible"))
        elif window >= 0.9 * WINDOW:
            found.append(Mark("signs", f"{window} of {WINDOW} characters in a row"))
        char, count = Counter(visible).most_common(1)[0]
        if count >= 0.5 * len(visible):
            found.append(Mark("one character", f"{char!r} is {count / len(visible):.0%} of what is visible"))
            return found
    blank = sum(kind_of(c) == "space" for c in text)
    longest = max(((len(list(group)), c) for c, group in groupby(text)), default=(0, ""))
    if longest[0] >= RUN:
        found.append(Mark("one character", f"{longest[1]!r} {longest[0]} times running"))
    elif len(text) >= 2 * FEWEST_CHARACTERS and blank >= 0.7 * len(text):
        found.append(Mark("one character", f"white space is {blank / len(text):.0%} of the text"))
    return found


def _without_rules(text: str) -> list[str]:
    """Return the visible characters; of a run of one sign, up to the length of a line, the first."""
    kept: list[str] = []
    for char, group in groupby(text):
        kind, size = kind_of(char), len(list(group))
        if kind != "space":
            kept += [char] * (1 if kind == "sign" and size < RUN else size)
    return kept
