"""The text behind `make demo`: what every machine with Python already has, as four small sources.

docstrings (of the standard library, with signatures), manual (the language reference that `help()` shows),
code (functions and classes of the standard library without their docstrings) and comments (its longer
comments). Sources are parsed with `ast`; nothing is imported but `pydoc_data.topics`.
The choice depends on the texts alone, so one machine always gives the same files.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from andrea.data.files import atomic_write
from andrea.data.readers.python_source import docstrings_of, documented, parse
from andrea.data.tally import Tally
from andrea.data.text import clean
from andrea.errors import DataError

CAPS = {"docstrings": 500_000, "manual": 500_000, "code": 350_000, "comments": 250_000}  # bytes of text
LIBRARY_BYTES = 5_000_000  # of sources looked at: keeps the demo quick
_LEFT_OUT = {
    "encodings",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "turtledemo",
    "__pycache__",
}
SMALLEST_SOURCE = 20_000  # bytes; less is no source to learn from


@dataclass(frozen=True)
class DemoSource:
    """One source of the demo: JSON lines with a "text" key."""

    name: str
    path: Path
    documents: int
    n_bytes: int


def library_files() -> list[Path]:
    """Return sources of the standard library, about 5 MB spread evenly over it, without tests; sorted."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in _LEFT_OUT]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    chosen, size = [], 0
    for path in sorted(found, key=lambda p: xxhash.xxh64_intdigest(p.relative_to(root).as_posix().encode())):
        length = path.stat().st_size
        if length <= LIBRARY_BYTES // 10 and size + length <= LIBRARY_BYTES:
            chosen.append(path)
            size += length
    return sorted(chosen)


def library_documents() -> dict[str, list[str]]:
    """Return the docstrings, the code and the comments of the standard library as documents."""
    found: dict[str, list[str]] = {"docstrings": [], "code": [], "comments": []}
    for path in library_files():
        tree = parse(path, Tally())
        lines = source_lines(path)
        if tree is not None and lines:
            found["docstrings"] += docstrings_of(tree, path, Tally())
            found["code"] += code_of(tree, lines)
            found["comments"] += comments_of(tree, lines)
    return found


def manual_documents() -> list[str]:
    """Return the pages of the language reference; nothing where `pydoc_data` is not installed."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return [clean(page).strip() for _, page in sorted(topics.items())]


def source_lines(path: Path) -> list[str]:
    """Return the lines of a source in its own encoding; empty if it cannot be decoded."""
    try:
        with tokenize.open(path) as source:
            return source.read().split("\n")
    except (SyntaxError, UnicodeDecodeError):
        return []


def code_of(tree: ast.Module, lines: list[str]) -> Iterator[str]:
    """Yield top-level functions and classes as source text, docstrings taken out."""
    hidden = {line for node, _ in documented(tree) for line in _lines_of(node.body[0])}
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            span = range(first, (node.end_lineno or node.lineno) + 1)
            text = "\n".join(lines[n - 1].rstrip() for n in span if n not in hidden and n <= len(lines))
            yield clean(text).strip()


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def comments_of(tree: ast.Module, lines: list[str]) -> Iterator[str]:
    """Yield comments of two lines and more, their marks taken off, one document a block."""
    strings = {n for node in ast.walk(tree) if isinstance(node, ast.Constant) for n in _lines_of(node)}
    block: list[str] = []
    for number, line in enumerate([*lines, ""], start=1):
        text = line.strip()
        if text.startswith("#") and number not in strings:
            block.append(text.lstrip("#").removeprefix(" "))
            continue
        if len(block) >= 2:
            joined = clean("\n".join(block)).strip("\n")
            if sum(c.isalpha() or c == " " for c in joined) > 0.7 * len(joined):
                yield joined
        block = []


def choose(documents: Iterable[str], cap: int) -> list[str]:
    """Return distinct documents of at least 40 bytes, about `cap` bytes in all, spread evenly, in order."""
    texts = list(dict.fromkeys(t for t in documents if len(t) >= 40))
    order = sorted(
        range(len(texts)), key=lambda i: xxhash.xxh64_intdigest(texts[i].encode("utf-8", "replace"))
    )
    chosen, size = [], 0
    for index in order:
        length = len(texts[index].encode("utf-8", "replace"))
        if size + length <= cap:
            chosen.append(index)
            size += length
    return [texts[i] for i in sorted(chosen)]


def collect(out: str | Path, caps: dict[str, int] | None = None) -> list[DemoSource]:
    """Write `<name>.jsonl` for each source into `out`; returns those that this machine has.

    Raises DataError if not even one source can be made.
    """
    folder = Path(out)
    made: list[DemoSource] = []
    documents = {**library_documents(), "manual": manual_documents()}
    for name, cap in (caps or CAPS).items():
        texts = choose(documents[name], cap)
        size = sum(len(t.encode("utf-8", "replace")) for t in texts)
        if size < SMALLEST_SOURCE:
            print(
                f"demo: this Python has only {size} bytes of {name}; going on without this source "
                "(on Debian: apt install python3 brings the whole library)",
                file=sys.stderr,
            )
            continue
        path = folder / f"{name}.jsonl"
        with atomic_write(path) as file:
            for text in texts:
                file.write(msgspec.json.encode({"text": text}) + b"\n")
        made.append(DemoSource(name, path, len(texts), size))
    if not made:
        raise DataError(
            f"no text for the demo in {sysconfig.get_paths()['stdlib']}; install the full standard library "
            "(on Debian and Ubuntu: apt install python3)"
        )
    return made


def main() -> None:
    """`python -m andrea.data.demo OUTDIR`."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: python -m andrea.data.demo OUTDIR", file=sys.stderr)
        raise SystemExit(64)
    for source in collect(sys.argv[1]):
        print(f"{source.path}: {source.documents:,} documents, {source.n_bytes:,} bytes")


if __name__ == "__main__":
    main()
