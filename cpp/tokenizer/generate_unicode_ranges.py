"""Writes unicode_ranges.inc, the character classes that training uses, from Python's unicodedata.

Run from the repository root: python cpp/tokenizer/generate_unicode_ranges.py
The Unicode version is that of the Python which runs this; it is written into the file and into every
vocabulary trained with it. Encoding and decoding need no table.
"""

import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

# The property White_Space, which unicodedata does not carry (PropList.txt).
WHITE_SPACE = {
    *range(0x09, 0x0E),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
}


def ranges(belongs: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Maximal runs of code points that belong."""
    found: list[tuple[int, int]] = []
    for code_point in range(sys.maxunicode + 1):
        if not belongs(code_point):
            continue
        if found and found[-1][1] == code_point - 1:
            found[-1] = (found[-1][0], code_point)
        else:
            found.append((code_point, code_point))
    return found


def lower_case_runs() -> list[tuple[int, int, int, int]]:
    """(first, last, step, distance): each step-th code point has its lower case at that distance."""
    runs: list[list[int]] = []
    for code_point in range(sys.maxunicode + 1):
        lower = chr(code_point).lower()
        if len(lower) != 1 or ord(lower) == code_point:
            continue
        distance = ord(lower) - code_point
        if runs and runs[-1][3] == distance:
            gap = code_point - runs[-1][1]
            if gap in (1, 2) and (runs[-1][2] == gap or runs[-1][0] == runs[-1][1]):
                runs[-1][1], runs[-1][2] = code_point, gap
                continue
        runs.append([code_point, code_point, 1, distance])
    return [(first, last, step, distance) for first, last, step, distance in runs]


def array(name: str, kind: str, rows: list[tuple[int, ...]]) -> str:
    """One C++ array, several rows a line."""
    cells = ["{" + ", ".join(str(value) for value in row) + "}" for row in rows]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) > 108:
            lines.append(line)
            line = "   "
        line += f" {cell},"
    return f"constexpr {kind} {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def main() -> None:
    category = [unicodedata.category(chr(code_point))[0] for code_point in range(sys.maxunicode + 1)]
    text = (
        "// Written by generate_unicode_ranges.py; do not edit.\n"
        f'constexpr char kUnicodeVersion[] = "{unicodedata.unidata_version}";\n'
        + array("kLetters", "CodePointRange", list(ranges(lambda c: category[c] == "L")))
        + array("kMarks", "CodePointRange", list(ranges(lambda c: category[c] == "M")))
        + array("kDigits", "CodePointRange", list(ranges(lambda c: category[c] == "N")))
        + array("kWhiteSpace", "CodePointRange", list(ranges(WHITE_SPACE.__contains__)))
        + array("kLowerCase", "LowerCaseRun", list(lower_case_runs()))
    )
    Path(__file__).with_name("unicode_ranges.inc").write_text(text)


if __name__ == "__main__":
    main()
