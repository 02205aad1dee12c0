"""A score from 0 to 100 for a sampled text, made to notice collapse rather than to judge style.

    bigrams    0-35   35 x distinct / total word bigrams
    trigrams   0-35   35 x distinct / total word trigrams
    words      0-20   20 x share of the words that are in the lexicon of the training text
    characters 0-10   10 x min(1, distinct characters / 30)

Words are runs of letters and marks, or of digits, in lower case. Scripts written without spaces (Han,
kana, Thai, Lao, Khmer, Burmese, ...) give one word a character with its marks. What is no text at all
(broken UTF-8, control, private and unassigned characters) is a word that is never known, and a pair or
triple with it counts in the total but is never distinct: otherwise random bytes, in which hardly anything
repeats, would look most diverse of all.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache

BIGRAM_POINTS = 35.0
TRIGRAM_POINTS = 35.0
WORD_POINTS = 20.0
CHARACTER_POINTS = 10.0
FULL_CHARACTERS = 30
MAX_WORD = 64  # letters; a longer run is cut, so that a flood of one letter is a loop of equal words

_BROKEN = ""  # stands among the words for what is no text
# First and last code points of scripts that put no space between words.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x3005, 0x3007),  # iteration and closing marks used like Han
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),  # small kana
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xAA60, 0xAA7F),  # Burmese, extended
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF66, 0xFF9F),  # half-width kana
    (0x1B000, 0x1B16F),  # kana supplement
    (0x20000, 0x323AF),  # Han, extensions B to H
)


@dataclass(frozen=True)
class Coherence:
    """A score and its four parts."""

    score: float
    bigrams: float
    trigrams: float
    words: float
    characters: float

    def as_json(self) -> dict[str, float]:
        """Return score and parts as JSON values."""
        return asdict(self)


def coherence(text: str | bytes, lexicon: Container[str]) -> Coherence:
    """Score `text` (bytes are read as UTF-8) against the words of `lexicon`, which are lower-case."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    units = list(units_of(text))
    words = [unit for unit in units if not unit[:1].isdigit()]  # with what is broken, which is not known
    known = sum(word in lexicon for word in words)
    visible = {c for c in text if kind_of(c) not in ("space", "broken")}
    bigrams = BIGRAM_POINTS * _diversity(units, 2)
    trigrams = TRIGRAM_POINTS * _diversity(units, 3)
    word_points = WORD_POINTS * known / len(words) if words else 0.0
    characters = CHARACTER_POINTS * min(1.0, len(visible) / FULL_CHARACTERS)
    return Coherence(
        bigrams + trigrams + word_points + characters, bigrams, trigrams, word_points, characters
    )


def lexicon_of(texts: Iterable[str | bytes]) -> frozenset[str]:
    """Return the words of `texts`, in the form `coherence` looks them up."""
    words: set[str] = set()
    for text in texts:
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        words.update(unit for unit in units_of(text) if unit and not unit[0].isdigit())
    return frozenset(words)


def _diversity(units: list[str], n: int) -> float:
    total = len(units) - n + 1
    if total < 1:
        return 0.0
    grams = set(zip(*(units[i:] for i in range(n)), strict=False))
    return sum(_BROKEN not in gram for gram in grams) / total


def units_of(text: str) -> Iterator[str]:
    """Yield words in order (lower case), and "" for each character that is no text."""
    begin, run = 0, ""  # where the word under way began, and of which kind it is
    for i, c in enumerate(text):
        kind = kind_of(c)
        if kind == "mark" and run in ("letter", "unspaced"):
            continue
        if kind == "mark":
            kind = "letter"
        if kind == run and kind != "unspaced" and i - begin < MAX_WORD:
            continue
        if run:
            yield text[begin:i].lower()
        begin, run = i, kind if kind in ("letter", "digit", "unspaced") else ""
        if kind == "broken":
            yield _BROKEN
    if run:
        yield text[begin:].lower()


@lru_cache(maxsize=8192)
def kind_of(c: str) -> str:
    """Return letter, mark, digit, unspaced, space, sign or broken."""
    if c in "\n\t\r":
        return "space"
    code, category = ord(c), unicodedata.category(c)
    if c == "\ufffd" or category in ("Cc", "Cn", "Co", "Cs"):
        return "broken"
    if category[0] == "M" or c in "\u200c\u200d":  # the joiners belong inside words
        return "mark"
    if any(first <= code <= last for first, last in _UNSPACED) and category[0] == "L":
        return "unspaced"
    if category[0] == "L":
        return "letter"
    if category[0] == "N":
        return "digit"
    return "space" if category[0] == "Z" else "sign"
