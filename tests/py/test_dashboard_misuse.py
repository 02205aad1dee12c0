"""Dashboard, plot and watch where the user errs, the disk is full of something else, or files are damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from andrea.cli import run as andrea
from andrea.dashboard import watch
from andrea.dashboard.collection import Collection
from andrea.dashboard.levels import entropy_of_sources
from andrea.dashboard.plot import labels
from andrea.dashboard.reading import RunReader
from andrea.dashboard.server import bind
from andrea.errors import ConfigError
from tiny_run import command, make_experiment, train


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


@pytest.mark.parametrize("host", ["", " ", "[]"])
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


@pytest.mark.parametrize(
    ("host", "shown", "warns"),
    [("0", "0.0.0.0", True), ("127.1", "127.0.0.1", False), ("[127.0.0.1]", "127.0.0.1", False)],
)
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


# ---- what the files hold


def event(kind: str, **more: object) -> str:
    """Return a line of an event log."""
    return json.dumps({"kind": kind, "step": 2, "time": 9.0, "message": kind, **more}) + "\n"


def read(folder: Path, name: str = "x", **files: str) -> RunReader:
    """Read a small run with these other files, named by their ends, as events_jsonl."""
    small_run(folder, name)
    for end, text in files.items():
        (folder / f"{name}.{end.replace('_', '.')}").write_text(text)
    (reader,) = Collection([folder]).load_all()
    return reader


@pytest.mark.parametrize("code", ["0", None, [], 1.5, True, -1])
def test_an_end_without_an_exit_code_is_passed_over_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: object
) -> None:
    reader = read(tmp_path, events_jsonl=event("end", code=79) + event("start") + event("end", code=code))
    assert reader.state != "gate"
    assert reader.log.end is None
    assert reader.summary()["damaged"] == 1
    assert call("watch", tmp_path) == 0
    assert "1 lines cut or damaged" in capsys.readouterr().out


def test_a_run_that_was_asked_for_fewer_steps_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_experiment(tmp_path)
    assert train(config, tmp_path / "run", "--steps", 20).returncode == 0
    (reader,) = Collection([tmp_path / "run"]).load_all()
    assert reader.state == "stopped"
    assert reader.log.events[-1]["message"] == "stopped and saved, as asked"
    assert call("watch", tmp_path / "run") == 0
    assert "stopped at step 20 of 60" in capsys.readouterr().out
    assert train(config, tmp_path / "run", "--resume").returncode == 0
    (reader,) = Collection([tmp_path / "run"]).load_all()
    assert reader.state == "finished"
    assert reader.damaged == 0
    assert reader.log.events[-1]["message"] == "finished"


HUGE = "1" + "0" * 400
STRANGE = [
    f'{{"kind":"start","step":{HUGE},"time":1,"message":""}}',
    f'{{"kind":"eval","step":1,"time":{HUGE},"message":""}}',
    '{"kind":"eval","step":1,"time":1e300,"message":""}',
    '{"kind":"eval","step":-1,"time":1,"message":""}',
    '{"kind":"eval","step":1,"time":true,"message":""}',
    "[" * 100_000,
    "{" + '"a":{' * 100_000,
    "[1e300,1,1,1,1,1]",
    f"[{HUGE},1,1,1,1,1]",
    "[1,1,1,1,1,1e300]",
    "[1,2,3",
    '{"kind":"eval","step":1,"time":1,"message":"\\ud800"}',
    '"text"',
    "NaN",
]
ROWS = [
    f'{{"step":{HUGE},"source":"a","documents":1,"loss":1}}',
    '{"step":-5,"source":"a","documents":1,"loss":1}',
    f'{{"step":1,"source":"a","documents":{HUGE},"loss":1}}',
    '{"step":1,"phase":{"arms":{"name":["a"],"weight":"x"}}}',
    f'{{"step":1,"phase":{{"arms":{{"name":["a"],"weight":[{HUGE}]}}}}}}',
    '{"step":1,"phase":{"weights":{"a":1},"steps":"x"}}',
    "{",
]
SAMPLES = [f'{{"step":{HUGE},"text":"a"}}', '{"step":-1,"text":"a"}', '{"text":"a"}', '{"step":1,"text":"a']
CONFIGS = [
    {"train": {"steps": "many", "smma": int(HUGE), "lr": {"warmup_steps": []}}, "model": {"vocab_size": "x"}},
    {"train": {"steps": int(HUGE), "smma": "x", "lr": 5}, "model": 7},
    {"train": [1], "curriculum": None},
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("config", CONFIGS)
def test_damaged_and_hostile_lines_stop_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, object]
) -> None:
    pytest.importorskip("matplotlib")
    head = event("start", config=config, rows=int(HUGE), context="x", end=[], n_params={}, host=4, pid=[])
    good_row = '{"step":1,"source":"a","documents":1,"loss":1e39}\n{"step":0,"source":"b","loss":2}\n'
    arms = {"name": ["a", 5], "weight": [1, 1], "floor": [int("1" + "0" * 310), 1], "coverage": ["x"]}
    reader = read(
        tmp_path / "run",
        events_jsonl=head + "\n".join(STRANGE) + "\n",
        rows_jsonl="\n".join([good_row, json.dumps({"step": 2, "phase": {"arms": arms}}), *ROWS, ""]),
        samples_json="[\n" + ",\n".join(SAMPLES) + f',\n{{"step":1,"ids":5,"loss":{HUGE}}}\n]',
    )
    assert reader.log.damaged == len(STRANGE)
    assert reader.rows.damaged == len(ROWS)
    assert reader.samples.damaged == len(SAMPLES)
    assert call("watch", tmp_path / "run") == 0
    assert call("plot", tmp_path / "run", "--out", tmp_path / "x.svg") == 0
    assert call("dashboard", tmp_path / "run", "--static", tmp_path / "x.html") == 0
    assert "arning" not in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_losses_beyond_all_bounds_are_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    losses = [
        "[0, 3e38]",
        "[1, 1e39]",
        "[2, -1e300]",
        "[1e300, 1]",
        f"[{HUGE}, 1]",
        "[3, Infinity]",
        "rubbish",
    ]
    run = small_run(tmp_path / "run", losses=",\n".join(losses))
    (reader,) = Collection([run]).load_all()
    assert reader.summary()["step"] == 3
    assert reader.damaged == 4
    assert call("watch", run) == 0
    assert "loss 3e+38   smma 3e+38" in capsys.readouterr().out
    for norms in ("[0,1,1,1,1,1]\n[1,1,1e308,-1e308,1,2]\n", "[0,1,0,1,1,1]\n[1,1,0,1,1,2]\n"):
        (run / "x.events.jsonl").write_text(norms)
        assert call("plot", run, "--out", tmp_path / "x.png") == 0
        assert call("plot", run, "--out", tmp_path / "x.png", "--log-steps") == 0


def test_a_vocabulary_beyond_all_bounds_takes_no_memory(tmp_path: Path) -> None:
    config = json.loads(make_experiment(tmp_path).read_text())
    config["data"]["sources"][0]["train"] = str(tmp_path / "alpha.btok")
    config["data"]["sources"] = config["data"]["sources"][:1]
    assert entropy_of_sources(config)
    config["model"]["vocab_size"] = 2**53
    assert entropy_of_sources(config) is None
    os.mkfifo(tmp_path / "pipe")
    config["data"]["sources"][0]["train"] = str(tmp_path / "pipe")
    assert entropy_of_sources(config) is None


def test_what_is_no_file_in_a_run_holds_nobody(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    for name in (
        "x.events.jsonl",
        "x.samples.json",
        "x.rows.jsonl",
        ".andrea.lock",
        "step_000001.state.json",
    ):
        os.mkfifo(tmp_path / "run" / name)
    (tmp_path / "run" / "x.samples.until_000003.json").mkdir()
    with subprocess.Popen(command("watch", tmp_path / "run"), stdout=subprocess.PIPE) as process:
        try:
            assert b"step 2" in process.communicate(timeout=60)[0]
        finally:
            process.kill()


def test_a_file_that_shrinks_under_its_reader_is_read_anew(tmp_path: Path) -> None:
    reader = read(tmp_path, events_jsonl="rubbish\n" + event("end", code=0))
    assert (reader.state, reader.damaged) == ("finished", 1)
    (tmp_path / "x.events.jsonl").write_text(event("end", code=79))
    small_run(tmp_path, losses="[0, 6.0]")
    assert reader.poll()
    summary = reader.summary()
    assert (summary["state"], summary["step"], summary["loss"], summary["damaged"]) == ("gate", 1, 6.0, 0)


@pytest.mark.filterwarnings("error")
def test_names_in_any_script_and_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for name in ("ロス$x_1$", os.fsdecode(b"caf\xe9"), "_\x1b[31m", "<b>"):
        small_run(tmp_path / "run", name)
    assert call("plot", tmp_path / "run", "--out", tmp_path / "x.svg") == 0
    ElementTree.parse(tmp_path / "x.svg")
    assert call("dashboard", tmp_path / "run", "--static", tmp_path / "x.html") == 0
    assert call("watch", tmp_path / "run") == 78
    said = capsys.readouterr()
    assert "several runs" in said.err
    assert "\x1b[31mx" not in said.err


def test_runs_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [small_run(tmp_path / place) for place in ("a/run", "b/run", "c")]
    found = labels(Collection([*places, small_run(tmp_path / "d", "y")]).load_all())
    assert call("watch", tmp_path / "a", "--once") == 0
    assert call("watch", tmp_path) == 78
    assert (
        f"2 runs; give one of the runs in it: {tmp_path / 'c'}, {tmp_path / 'd'}" in capsys.readouterr().err
    )
    assert found == ["x (a/run)", "x (b/run)", "x (c)", "y"]
