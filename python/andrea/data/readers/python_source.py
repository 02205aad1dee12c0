"""Docstrings of Python sources, each behind its signature. Files are parsed, never imported or run."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path

from andrea.data.tally import Tally
from andrea.data.text import blocks, clean

SOURCE_BYTES_MAX = 16 << 20
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parse(path: Path, tally: Tally) -> ast.Module | None:
    """Parse a source file, its coding cookie respected; None (counted) if it is not Python 3."""
    source = bytearray()
    for block in blocks(path, tally):
        source += block
        if len(source) > SOURCE_BYTES_MAX:
            tally.drop("source file over 16 MiB", str(path))
            return None
    tally.read_bytes += len(source)
    if not source.strip(b"\xef\xbb\xbf \t\r\n\f"):
        tally.drop("empty file", str(path))
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            return ast.parse(bytes(source), filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        tally.drop("no valid Python 3 source", f"{path}:{line}: {getattr(error, 'msg', None) or error}")
        return None


def signature(node: Documented) -> str:
    """Return the line that introduces a function or class; empty for a module."""
    if isinstance(node, ast.Module):
        return ""
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        return f"class {node.name}({', '.join(bases)}):" if bases else f"class {node.name}:"
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{word} {node.name}({ast.unparse(node.args)}){returns}:"


def documented(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """Yield (node, raw docstring) in source order."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node, text
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def read_docstrings(path: Path, tally: Tally) -> Iterator[str]:
    """Yield `signature`, newline, docstring (indentation taken off) for all that is documented in a file."""
    tree = parse(path, tally)
    if tree is not None:
        yield from docstrings_of(tree, path, tally)


def docstrings_of(tree: ast.Module, path: Path, tally: Tally) -> Iterator[str]:
    """Yield the docstrings of a parsed file as `read_docstrings` does; `path` is for messages."""
    some = False
    for node, raw in documented(tree):
        some = True
        line = getattr(node, "lineno", 1)
        text = clean(inspect.cleandoc(raw)).strip()
        if not text:
            tally.drop("empty docstring", f"{path}:{line}")
        elif any("\ud800" <= c <= "\udfff" for c in text):
            tally.drop("half of a surrogate pair", f"{path}:{line}")
        else:
            try:
                head = signature(node)
            except (RecursionError, ValueError):
                head = ""
            yield f"{head}\n{text}" if head else text
    if not some:
        tally.mend("source file without a docstring", str(path))
