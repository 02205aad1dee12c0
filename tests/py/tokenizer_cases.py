"""Texts to try tokenizers with: real ones of several languages, and nasty ones."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from hypothesis import settings

from andrea.tokenizer import Settings, Tokenizer, train

# The first example trains a vocabulary, and machines of CI are busy.
settings.register_profile("tokenizer", deadline=None)
settings.load_profile("tokenizer")

LANGUAGES = {  # the beginning of the Universal Declaration of Human Rights
    "English": "All human beings are born free and equal in dignity and rights. They are endowed.",
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом.",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا.",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}

NASTY = [
    "",
    " ",
    "\n",
    "\x00",
    "a\x00b",
    "\r\n\r\n  x",
    "\ufeffBOM",
    "\u2028\u2029\u0085",
    "a\u0301\u0302 \u0301",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪",
    "\u202eright to left\u202c",
    "<s> </s> <|endoftext|> < BOS > [UNK] <unk>",
    "\u00a0\u00a0\u3000 \u2003x",
    "x" * 2000,
    " " * 333 + "word",
    "\n" * 40 + "\t" * 17 + "tab",
    "=" * 77 + " -- " + "_" * 16,
    "ab" * 1000,
    "\uffff\ufffe\U0010ffff",
    "ﬁ ǅ İ ß ẞ",
    "The END of THE thing's 3.14159 1,000,000 x_y==z;",
]


@cache
def topics() -> str:
    """English prose and code that every Python carries: the topics of its help."""
    from pydoc_data import topics as carried

    return "\n".join(text for _, text in sorted(carried.topics.items()))


@cache
def source_text() -> str:
    """Python code of the standard library, about 300 kB."""
    import argparse
    import ast
    import inspect
    import typing

    return "".join(Path(str(inspect.getsourcefile(module))).read_text() for module in (argparse, ast, typing))


@cache
def small_tokenizer() -> Tokenizer:
    """A vocabulary of 1,500 segments, with other scripts counted so often that they get some."""
    others = [text for text in LANGUAGES.values() for _ in range(40)]
    runs = ["    x\n\n        y\n\n\n" * 50, "ééé ёж " * 50]
    return train([[topics()], [source_text()], others, runs], 1500, settings=Settings(rounds=4), threads=2)


def random_texts(n: int, seed: int) -> list[str]:
    """Mixes of words, runs, signs and random characters of planes 0 to 3, all valid Unicode."""
    rng = random.Random(seed)
    words = topics().split()
    alphabet = "  \n\t-=_*.#,'\"aeXé\u0301ßя中あ\u0e33\u200d\ufe0f\u00a0\U0001f600"

    def part() -> str:
        kind = rng.randrange(6)
        if kind == 0:
            return rng.choice(words)
        if kind == 1:
            return rng.choice(alphabet) * rng.randrange(1, 40)
        if kind == 2:
            return "".join(rng.choice(alphabet) for _ in range(rng.randrange(8)))
        if kind == 3:
            start = rng.randrange(len(topics()))
            return topics()[start : start + rng.randrange(120)]
        if kind == 4:
            return rng.choice(list(LANGUAGES.values()))[rng.randrange(20) :]
        point = rng.randrange(0x40000)
        return "" if 0xD800 <= point < 0xE000 else chr(point)

    return ["".join(part() for _ in range(rng.randrange(1, 9))) for _ in range(n)]
