"""Finding runs on disk and reading their histories: whole, line by line, or only the ends."""

from __future__ import annotations

import codecs
import glob
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from andrea.errors import IoError

MAX_RUNS = 1000
MAX_LINE = 16 << 20  # bytes of one element
_BLOCK = 1 << 16
DAMAGED = (ValueError, RecursionError)  # what decoding a damaged line raises
_STEP = re.compile(r"step_(\d{6,})\.bin")
_STATE = re.compile(r"step_(\d{6,})\.state\.json")


@dataclass(frozen=True)
class Run:
    """A run directory and the name of its model."""

    directory: Path
    name: str

    @property
    def loss(self) -> Path:
        """Return the path of the loss history."""
        return self.directory / f"{self.name}.loss.json"

    @property
    def samples(self) -> Path:
        """Return the path of the samples."""
        return self.directory / f"{self.name}.samples.json"

    @property
    def rows(self) -> Path:
        """Return the path of rows and decisions."""
        return self.directory / f"{self.name}.rows.jsonl"

    def sample_archives(self) -> list[Path]:
        """Return the samples that polishing set aside, in the order of their steps."""
        return sorted(self.directory.glob(f"{glob.escape(self.name)}.samples.until_*.json"), key=by_step)

    def summary(self) -> dict[str, Any]:
        """Return name, directory and the last loss."""
        last = last_elements(self.loss, 1)
        step, loss = last[0] if last else (None, None)
        return {"model": self.name, "run": str(self.directory), "step": step, "loss": loss}


def find_runs(root: Path) -> list[Run]:
    """Return the runs in `root` itself and one level below, by path; at most MAX_RUNS."""
    found: list[Run] = []
    for pattern in ("*.loss.json", "*/*.loss.json"):
        for path in sorted(root.glob(pattern)):
            if path.is_file() and len(found) < MAX_RUNS:
                found.append(Run(path.parent, path.name.removesuffix(".loss.json")))
    return found


def by_step(path: Path) -> tuple[int, str]:
    """Return a key that sorts files by the step in their names: six digits, or more from a million on."""
    return len(path.name), path.name


def newest_states(directory: Path) -> list[Path]:
    """Return the states of a run directory, the newest first."""
    states = (path for path in directory.glob("step_*.state.json") if _STATE.fullmatch(path.name))
    return sorted(states, key=by_step, reverse=True)


def way_to_a_run(directory: Path) -> str:
    """Return what to name instead of a directory that is no run: the runs in it, if there are any."""
    inside = [str(path) for path in dict.fromkeys(run.directory for run in find_runs(directory))]
    if not inside:
        return "give a run directory that was trained in"
    return f"give one of the runs in it: {', '.join(inside[:3])}{', ...' if len(inside) > 3 else ''}"


def checkpoints(run: Run) -> dict[str, Any]:
    """Return the checkpoints of `run`: step, bytes, time, and whether a state stands beside it."""
    rows = []
    for path in sorted(run.directory.glob("step_*.bin")):
        match = _STEP.fullmatch(path.name)
        if match:
            status = path.stat()
            state = path.with_name(path.name.removesuffix(".bin") + ".state.json").is_file()
            rows.append(
                {"step": int(match[1]), "bytes": status.st_size, "written": status.st_mtime, "state": state}
            )
    best = (run.directory / f"{run.name}-best.bin").is_file()
    final = (run.directory / f"{run.name}.bin").is_file()
    return {
        "model": run.name,
        "run": str(run.directory),
        "checkpoints": sorted(rows, key=lambda row: row["step"]),
        "best": best,
        "final": final,
    }


def elements(path: Path, notes: list[str]) -> Iterator[Any]:
    """Yield the elements of a history file, one a line; nothing if it is not there. Raises IoError."""
    require_regular(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise IoError(f"cannot read {path}: {error.strerror}; check the permissions") from error
    with file:
        yield from elements_of(file, path.name, notes)


def require_regular(path: Path) -> None:
    """Raise IoError if a folder, a pipe or a device is where a history should be: it may have no end."""
    if path.exists() and not path.is_file():
        raise IoError(f"cannot read {path}: it is no regular file; a run writes none of that kind")


def elements_of(lines: Iterable[bytes], name: str, notes: list[str]) -> Iterator[Any]:
    """Yield the JSON value of each line, of an array or on its own.

    A line that a kill cut, or that is damaged, is left out, and the file's `name` noted with their number.
    """
    cut = 0
    for line in lines:
        text = line.strip().removeprefix(codecs.BOM_UTF8).rstrip(b",")
        if text in (b"", b"[", b"]"):
            continue
        try:
            yield msgspec.json.decode(text)
        except DAMAGED:
            cut += 1
    if cut:
        notes.append(f"{name}: {cut} line{'s' if cut > 1 else ''} cut or damaged, and left out")


def last_elements(path: Path, count: int) -> list[Any]:
    """Return the last `count` elements of a JSON array file, one element a line; [] if it is not there."""
    elements: list[Any] = []
    for line in _lines_backwards(path):
        text = line.strip().rstrip(b",")
        if text in (b"", b"[", b"]"):
            continue
        try:
            elements.append(msgspec.json.decode(text))
        except DAMAGED:
            continue  # a line under way, or cut by a kill
        if len(elements) == count:
            break
    return elements[::-1]


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        end = file.seek(0, 2)
        rest = b""
        while end > 0:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            block = file.read(end - begin) + rest
            end = begin
            first, *lines = block.split(b"\n")
            yield from reversed(lines)
            rest = first
            if len(rest) > MAX_LINE:
                return  # no file of ours
        yield rest


def rows_file(run: Path) -> Path:
    """Return the `.rows.jsonl` of a run directory; raises IoError if there is none, or more than one."""
    found = sorted(run.glob("*.rows.jsonl"))
    if len(found) != 1:
        what = "no .rows.jsonl" if not found else "several .rows.jsonl"
        raise IoError(f"{run} holds {what}; give a run directory that was trained in")
    return found[0]
