"""Dashboard, plot and watch where the user errs, the disk is full of something else, or files are damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from andrea.cli import run as andrea


def small_run(folder: Path, name: str = "x", losses: str = "[0, 5.0],\n[1, 4.0]") -> Path:
    """Write a run that has a loss history only."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.loss.json").write_text(f"[\n{losses}\n]")
    return folder


def call(*arguments: object) -> int:
    """Run a command in this process; returns its exit code."""
    return andrea([str(argument) for argument in arguments])


# ---- outputs

OUTPUTS = [("plot", "--out", "out.png"), ("dashboard", "--static", "out.html")]


@pytest.mark.parametrize(("name", "option", "file"), OUTPUTS)
def test_an_output_is_whole_or_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: str, file: str
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    run, out = small_run(tmp_path / "run"), tmp_path / "new" / file
    assert call(name, run, option, out) == 0
    whole = out.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert call(name, run, option, out) == 74
    assert out.read_bytes() == whole
    assert [path.name for path in out.parent.iterdir()] == [file]


@pytest.mark.parametrize(("name", "option", "file"), OUTPUTS)
def test_an_output_that_is_no_file_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, option: str, file: str
) -> None:
    run, out = small_run(tmp_path / "run"), tmp_path / file
    out.mkdir()
    assert call(name, run, option, out) == 78
    assert f"is a folder, and this output is one file; give {option} a file name" in capsys.readouterr().err
    out.rmdir()
    os.mkfifo(out)
    reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)  # or writing would wait for one
    try:
        assert call(name, run, option, out) == 78
    finally:
        os.close(reader)
    out.unlink()
    out.symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    assert call(name, run, option, out) == 78
    assert out.is_symlink()
    assert capsys.readouterr().err.count("is a device, a pipe or a socket") == 2


def test_a_page_is_not_written_over_a_history(tmp_path: Path) -> None:
    history = small_run(tmp_path) / "x.loss.json"
    before = history.read_bytes()
    assert call("dashboard", tmp_path, "--static", history) == 78
    assert history.read_bytes() == before
