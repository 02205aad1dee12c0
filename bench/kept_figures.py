"""Flags of the benchmarks whose figures are kept, and can be shown and drawn again without measuring."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import complain, output_file

from andrea.binary import path_of_binary

Figures = dict[str, Any]


def figure_file(text: str) -> Path:
    """Return the path of a figure that can be drawn."""
    path = output_file(text)
    if path.suffix not in (".svg", ".png"):
        raise argparse.ArgumentTypeError(f'"{text}" must end in .svg or .png')
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("matplotlib is not installed; pip install matplotlib")
    return path


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that all of them have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", type=output_file, help="keep the figures here")
    parser.add_argument(
        "--from", dest="read", type=Path, action="append", help="kept figures; may be repeated"
    )
    parser.add_argument("--figure", type=figure_file, help="draw here: .svg or .png")
    parser.add_argument("--binary", default=str(path_of_binary()), help="microgpt_train")
    return parser


def keep(given: argparse.Namespace, figures: Figures) -> None:
    """Write what is measured so far, if --json asks for it: a benchmark that is ended early loses nothing."""
    if given.json is not None:
        given.json.write_text(json.dumps(figures) + "\n", encoding="utf-8")


def read(parser: argparse.ArgumentParser, path: Path, check: Callable[[Figures], None]) -> Figures:
    """Return kept figures that have the shape which `check` asks for."""
    try:
        figures: Figures = json.loads(path.read_text(encoding="utf-8"))
        check(figures)
    except OSError as wrong:
        parser.error(f"--from {path}: {wrong.strerror}; check the path")
    except ValueError as wrong:
        parser.error(f"--from {path}: {wrong}; name a file that this benchmark kept with --json")
    return figures


def show(
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    measure: Callable[[argparse.Namespace], Figures],
    tell: Callable[[Figures], None],
    draw: Callable[[list[Figures], Path], None],
    check: Callable[[Figures], None],
) -> None:
    """Measure the experiment, or read kept figures; keep, tell and draw them as asked.

    `check` raises ValueError for figures that cannot be told and drawn.
    """
    if (given.experiment is None) == (given.read is None):
        parser.error("name an experiment to measure, or kept figures with --from")
    if given.read is not None:
        results = [read(parser, path, check) for path in given.read]
    else:
        results = [measure(given)]
        keep(given, results[0])
        try:
            check(results[0])
        except ValueError as wrong:
            complain(f"{given.experiment}: {wrong}", 1)
    for result in results:
        tell(result)
    if given.figure is not None:
        draw(results, given.figure)
        print(f"wrote {given.figure}")
