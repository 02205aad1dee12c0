"""Flags of the benchmarks whose figures are kept, and can be shown and drawn again without measuring."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from andrea.binary import path_of_binary

Figures = dict[str, Any]


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that all of them have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", type=Path, help="keep the figures here")
    parser.add_argument(
        "--from", dest="read", type=Path, action="append", help="kept figures; may be repeated"
    )
    parser.add_argument("--figure", type=Path, help="draw here: .svg or .png")
    parser.add_argument("--binary", default=str(path_of_binary()), help="microgpt_train")
    return parser


def keep(given: argparse.Namespace, figures: Figures) -> None:
    """Write what is measured so far, if --json asks for it: a benchmark that is ended early loses nothing."""
    if given.json is not None:
        given.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")


def read(parser: argparse.ArgumentParser, path: Path) -> Figures:
    """Return kept figures."""
    try:
        figures: Figures = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        parser.error(f"--from {path}: {wrong}")
    return figures


def show(
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    measure: Callable[[argparse.Namespace], Figures],
    tell: Callable[[Figures], None],
    draw: Callable[[list[Figures], Path], None],
) -> None:
    """Measure the experiment, or read kept figures; keep, tell and draw them as asked."""
    if (given.experiment is None) == (given.read is None):
        parser.error("name an experiment to measure, or kept figures with --from")
    if given.read is not None:
        results = [read(parser, path) for path in given.read]
    else:
        try:  # before hours of measuring
            if given.json is not None:
                given.json.open("a").close()
        except OSError as wrong:
            parser.error(f"--json: {wrong}")
        results = [measure(given)]
        keep(given, results[0])
    for result in results:
        tell(result)
    if given.figure is not None:
        draw(results, given.figure)
        print(f"wrote {given.figure}")
