"""What the benchmarks share: types of arguments, files that are read, and one line for what went wrong."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from andrea._core import load_experiment
from andrea.errors import DataError, Error

T = TypeVar("T")

PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
LARGEST = 2**31 - 1
PARTS = 6  # lines of a message that are kept
EXIT_INTERRUPTED, EXIT_IO = 130, 74


def whole(least: int = 1) -> Callable[[str], int]:
    """Return the type of a whole number that is not below `least`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= LARGEST:
            raise argparse.ArgumentTypeError(f'"{text}" is no whole number from {least} to {LARGEST}')
        return value

    return parse


def number(most: float, *, zero: bool = False) -> Callable[[str], float]:
    """Return the type of a positive number up to `most`; `zero`: or 0."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (0 < value <= most or (zero and value == 0)):
            least = "from 0" if zero else "above 0 and"
            raise argparse.ArgumentTypeError(f'"{text}" is no number {least} up to {most:g}')
        return value

    return parse


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return the type of a name out of `names`."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f'"{text}" is none of {", ".join(names)}')
        return text

    return parse


def listed(kind: Callable[[str], T], *, empty: bool = False) -> Callable[[str], list[T]]:
    """Return the type of a list with commas, each value once and of type `kind`; `empty`: or of no value."""

    def parse(text: str) -> list[T]:
        if empty and not text:
            return []
        values = [kind(part) for part in text.split(",")]
        if len(set(map(str, values))) < len(values):
            raise argparse.ArgumentTypeError(f'"{text}" names a value twice')
        return values

    return parse


def output_file(text: str) -> Path:
    """Return the path of a file that can be written: said before a measurement, not hours later."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f'"{text}" is a folder; name a file in it')
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f'"{text}": there is no folder {path.parent}; make it first')
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f'"{text}" must not be written; choose another place')
    return path


def read_json(path: Path) -> Any:
    """Return what a JSON file holds. Raises OSError, or DataError with the file's name."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as wrong:
        raise DataError(f"{path} is no JSON: {wrong}; check the file") from None


def read_experiment(path: Path) -> dict[str, Any]:
    """Return an experiment as its file has it. Raises ConfigError with every fault that the engine finds."""
    load_experiment(path)
    experiment: dict[str, Any] = read_json(path)
    return experiment


def ended(main: Callable[[], None]) -> None:
    """Run a benchmark; what its input is to blame for ends it with one line on stderr and an exit code."""
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has gone
        from andrea.closed_pipe import stop_writing

        stop_writing()
        sys.exit(EXIT_IO)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        complain(f"{where}{error.strerror or error}" + ("; check the path" if where else ""), EXIT_IO)
    except Error as error:
        from andrea.cli import explain

        complain(*explain(error))


def complain(message: str, code: int) -> NoReturn:
    """Print a message as one line on stderr, long lists cut, and leave with an exit code."""
    parts = [part.strip() for part in message.splitlines() if part.strip()]
    if len(parts) > PARTS:
        parts[PARTS - 2 : -1] = [f"{len(parts) - PARTS + 1} more"]
    line = "; ".join(parts).replace(":; ", ": ")
    print(f"{Path(sys.argv[0]).name}: error: {line}", file=sys.stderr)
    sys.exit(code)
