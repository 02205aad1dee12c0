"""What a killed process left beside its target goes with the next write of that name, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from andrea import Tokenizer, write_checkpoint
from andrea.data.btok import BtokWriter
from andrea.data.files import write_bytes
from andrea.export.placing import new_file, new_folder


def _btok(path: Path) -> None:
    with BtokWriter(path, 300, 1) as writer:
        writer.add([1, 2], 2)
        writer.close()


def _file(path: Path) -> None:
    with new_file(path, False, lambda _: True) as temporary:
        temporary.write_text("x")


def _folder(path: Path) -> None:
    with new_folder(path, False, lambda _: True, "config.json") as staged:
        (staged / "config.json").write_text("{}")


WRITERS: dict[str, Callable[[Path], object]] = {
    "atomic_write": lambda path: write_bytes(path, b"x"),
    "checkpoint": lambda path: write_checkpoint(path, 1, np.zeros(3, np.float32)),
    "btok": _btok,
    "exported file": _file,
    "exported folder": _folder,
    "tokenizer": lambda path: Tokenizer.from_segments(["ab"]).save(str(path)),
}


@pytest.fixture(scope="module")
def gone() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


@pytest.mark.parametrize("writer", WRITERS)
def test_leftovers_go_with_the_next_write(tmp_path: Path, gone: int, writer: str) -> None:
    target = tmp_path / "a+b.out"
    left = [f".a+b.out.{gone}.tmp"] + [f".a+b.out.{gone}.{part}.tmp" for part in ("ids", "whole")]
    kept = {
        f".a+b.out.{os.getppid()}.tmp",
        f".aab.out.{gone}.tmp",
        f".a+b.out.x.{gone}.tmp",
        ".a+b.out.0.tmp",
    }
    if writer == "tokenizer":  # by the engine, which makes no files in parts
        del left[1:]
    for name in [*left, *kept]:
        (tmp_path / name).write_text("half")
    WRITERS[writer](target)
    assert {path.name for path in tmp_path.iterdir()} == kept | {target.name}


def test_a_folder_that_was_left_goes_too(tmp_path: Path, gone: int) -> None:
    left = tmp_path / f".out.{gone}.tmp"
    left.mkdir()
    (left / "model.safetensors").write_text("half")
    _folder(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_kill_9_while_writing(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from andrea.data.files import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as out:\n"
        "    out.write(b'half'); out.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    target = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", script, target], check=False).returncode == -9
    assert len(list(tmp_path.glob(".out.*.tmp"))) == 1
    write_bytes(target, b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
