"""Dashboard, plot and watch where the user errs, the disk is full of something else, or files are damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from andrea.cli import run as andrea
from andrea.dashboard import watch
from andrea.dashboard.collection import Collection
from andrea.dashboard.server import bind
from andrea.errors import ConfigError
from tiny_run import command


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


# ---- addresses


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_not_every_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert call("dashboard", tmp_path, "--host", host) == 64
    assert "127.0.0.1 is this machine only" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="no host"):
        bind(host, 0)


@pytest.mark.parametrize(("host", "code"), [("192.0.2.1", 74), ("a..b", 74), ("é..b", 78)])
def test_a_host_that_is_not_here_is_not_tried_on_fifty_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str, code: int
) -> None:
    pytest.importorskip("uvicorn")
    assert call("dashboard", tmp_path, "--host", host) == code
    said = capsys.readouterr().err
    assert "--host" in said
    assert "ports" not in said


@pytest.mark.parametrize(("host", "shown", "warns"), [("0", "0.0.0.0", True), ("127.1", "127.0.0.1", False)])
def test_who_can_read_along_is_told(tmp_path: Path, host: str, shown: str, warns: bool) -> None:
    pytest.importorskip("uvicorn")
    process = subprocess.Popen(
        command("dashboard", tmp_path, "--host", host, "--port", 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"dashboard: http://{shown}:")
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert ("no password" in said) == warns


# ---- runs that are not there


@pytest.mark.parametrize(
    "words",
    [
        ("watch", "RUN"),
        ("watch", "RUN", "--once"),
        ("plot", "RUN", "--out", "x.png"),
        ("dashboard", "RUN"),
        ("dashboard", "RUN", "--static", "x.html"),
    ],
)
def test_a_folder_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    pytest.importorskip("matplotlib")
    run = small_run(tmp_path / "run")
    for place, what in ((tmp_path / "no", "no such folder"), (run / "x.loss.json", "is no folder")):
        assert call(*(place if word == "RUN" else word for word in words)) == 74
        assert what in capsys.readouterr().err


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the terminal view look often, and take the captured output for a terminal."""
    monkeypatch.setattr(watch, "SECONDS", 0.01)
    monkeypatch.setattr(watch, "Console", partial(Console, force_terminal=True, width=120))


def test_watch_waits_for_a_run_to_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("watch", tmp_path) == 78
    on_a_terminal(monkeypatch)

    def come(seconds: float) -> None:
        small_run(tmp_path / "run")
        end = {"kind": "end", "step": 2, "time": 9.0, "message": "finished", "code": 0}
        (tmp_path / "run" / "x.events.jsonl").write_text(json.dumps(end) + "\n")

    monkeypatch.setattr(time, "sleep", come)
    assert call("watch", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "waiting for one" in shown
    assert "finished" in shown


def test_watch_ends_with_the_files_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path / "run")
    on_a_terminal(monkeypatch)
    monkeypatch.setattr(time, "sleep", lambda seconds: shutil.rmtree(run, ignore_errors=True))
    assert call("watch", run) == 74
    said = capsys.readouterr()
    assert "removed or moved" in said.err
    assert "step 0" not in said.out


def test_a_dashboard_shows_a_run_without_files_as_gone(tmp_path: Path) -> None:
    runs = Collection([small_run(tmp_path / "run")])
    (reader,) = runs.load_all()
    assert reader.state == "unknown"
    shutil.rmtree(tmp_path / "run")
    assert reader.poll()
    assert reader.summary()["state"] == "gone"
