"""The dashboard: what it reads, what it serves, what it does not let through; plots and the terminal view."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea.curriculum.runs import Run
from andrea.dashboard.collection import Collection
from andrea.dashboard.curves import parse_rows, smma, thin_out
from andrea.dashboard.event_log import EventLog
from andrea.dashboard.plotly_bundle import compiled_at_once
from andrea.dashboard.reading import RunReader
from andrea.dashboard.tail import FollowedFile
from tiny_run import cli, command, make_experiment, start, train, wait_for


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was ended at step 37, resumed from 30 and finished."""
    folder = tmp_path_factory.mktemp("dash")
    config = make_experiment(folder, curriculum__policy="ucb1_dice", curriculum__curriculum_warmup_steps=0)
    assert train(config, folder / "run", "--steps", 37).returncode == 0
    (folder / "run" / "step_000037.state.json").unlink()
    result = train(config, folder / "run", "--resume")
    assert result.returncode == 0, result.stderr
    return folder / "run"


def read(run: Path, name: str = "tiny") -> RunReader:
    reader = RunReader(Run(run, name))
    while reader.loading:
        reader.poll()
    return reader


def test_numbers_of_lines_and_what_is_torn() -> None:
    assert parse_rows(b"[\n[0, 1.5],\n[1, null],\n", 2).tolist()[0] == [0, 1.5]
    assert np.isnan(parse_rows(b"[1, null]\n", 2)[0, 1])
    assert parse_rows(b"[1, 2]\nrubbish\n[2, 3, 4]\n[3, 4],\n", 2).tolist() == [[1, 2], [3, 4]]


def test_smma_is_the_recurrence_and_goes_on_where_it_stopped() -> None:
    x = np.random.default_rng(1).normal(5, 1, 700)
    x[[0, 3, 400]] = np.nan
    state, expected = np.nan, []
    for value in x:
        if np.isfinite(value):
            state = value if np.isnan(state) else (state * 9 + value) / 10
        expected.append(state)
    np.testing.assert_allclose(smma(x, 10), expected, rtol=1e-12)
    first = smma(x[:333], 10)
    np.testing.assert_allclose(np.append(first, smma(x[333:], 10, float(first[-1]))), expected, rtol=1e-12)


def test_thinning_keeps_every_peak() -> None:
    y = np.zeros(100_000)
    y[[17, 50_001, 99_998]] = 1e3, -1e3, 5e2
    x, kept = thin_out(np.arange(y.size), y, 200)
    assert x.size <= 402
    assert {17, 50_001, 99_998} <= set(x.tolist())
    assert kept.max() == 1e3


def test_the_large_function_of_a_bundle_is_put_in_parentheses() -> None:
    bundle = b"/* notice */\n(function(r, f) { f(); } (self ? self : this, () => {\nlet a = (1);\n}));"
    expected = b"/* notice */\n(function(r, f) { f(); } (self ? self : this, (() => {\nlet a = (1);\n})));\n"
    assert compiled_at_once(bundle) == expected
    assert compiled_at_once(b"another();") == b"another();"


def test_a_file_that_grows_is_cut_and_grows_again(tmp_path: Path) -> None:
    path = tmp_path / "x.loss.json"
    file = FollowedFile(path)
    assert file.poll().lines == b""
    path.write_bytes(b"[\n[0, 1.0]\n]")
    assert parse_rows(file.poll().lines, 2).tolist() == [[0, 1]]
    path.write_bytes(b"[\n[0, 1.0],\n[1, 2.0]\n]")  # the line end before the bracket became a comma
    tail = file.poll()
    assert not tail.anew
    assert parse_rows(tail.lines, 2).tolist() == [[1, 2]]
    path.write_bytes(b"[\n[0, 1.0],\n[1, 2.0],\n[2, 3.")  # torn
    assert parse_rows(file.poll().lines, 2).size == 0
    path.write_bytes(b"[\n[0, 1.0]\n]")
    tail = file.poll()
    assert tail.anew
    assert parse_rows(tail.lines, 2).tolist() == [[0, 1]]


def test_the_newest_attempt_of_a_step_wins() -> None:
    log = EventLog()
    begin = '{"kind":"start","step":%d,"time":1.0,"message":"","rows":2,"context":8}\n'
    row = "[%d,%g,1,0.1,1,%g]\n"
    text = begin % 0 + "".join(row % (t, 1, t) for t in range(10))
    text += begin % 6 + "".join(row % (t, 2, 100 + t) for t in range(6, 8))
    log.take(text.encode())
    assert log.in_force["step"].tolist() == list(range(8))
    assert log.in_force["loss"].tolist() == [1] * 6 + [2] * 2
    assert log.replaced["step"].tolist() == [6, 7, 8, 9]
    assert log.rates()[5] == pytest.approx(16.0)


def test_a_trained_run_is_told_whole(trained: Path) -> None:
    reader = read(trained)
    summary = reader.summary()
    assert summary["state"] == "finished"
    assert summary["step"] == summary["steps"] == 60
    assert summary["replaced"] == 7
    losses = json.loads((trained / "tiny.loss.json").read_bytes())
    expected = np.array([loss for _, loss in losses], dtype=np.float32)
    np.testing.assert_array_equal(reader.losses["loss"], expected)
    np.testing.assert_array_equal(reader.log.in_force["loss"].astype(np.float32), expected)
    state = json.loads((trained / "step_000060.state.json").read_bytes())
    assert summary["smma"] == pytest.approx(state["smma"], rel=1e-9)
    assert summary["levels"]["nothing"] == pytest.approx(np.log(summary_vocab(trained)))
    kinds = [event["kind"] for event in reader.log.events]
    assert kinds.count("start") == kinds.count("end") == 2
    assert {"resume", "checkpoint", "sample", "eval"} <= set(kinds)
    pieces = reader.rows.by_bucket(0, 60, 6, False)
    assert pieces["sources"] == ["alpha", "beta"]
    np.testing.assert_allclose(np.sum(pieces["drawn"], axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(np.sum(pieces["weight"], axis=0), 1, atol=1e-4)
    assert {"mean_reward", "epochs", "coverage", "floor"} <= set(reader.rows.table()[0])


def summary_vocab(run: Path) -> int:
    config: dict[str, Any] = json.loads((run.parent / "tiny.json").read_bytes())
    return int(config["model"]["vocab_size"])


def test_looking_on_writes_nothing(trained: Path) -> None:
    before = {p.name: (p.stat().st_mtime_ns, p.stat().st_size) for p in trained.iterdir()}
    Collection([trained.parent]).load_all()
    assert {p.name: (p.stat().st_mtime_ns, p.stat().st_size) for p in trained.iterdir()} == before


def test_a_killed_run_is_dead_and_a_running_one_runs(tmp_path: Path) -> None:
    config = make_experiment(tmp_path, train__steps=100_000)
    out = tmp_path / "run"
    process = start(config, out)
    wait_for(
        lambda: (out / "tiny.loss.json").exists() and (out / "tiny.loss.json").stat().st_size > 200, process
    )
    reader = read(out)
    assert reader.state == "running"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    reader.poll()
    assert reader.state == "dead"


# ---- over HTTP


def ask(port: int, target: str, method: str = "GET", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Return status, body (decoded if it is JSON) and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, target, headers=headers)
    reply = connection.getresponse()
    body, have = reply.read(), {name.lower(): value for name, value in reply.getheaders()}
    connection.close()
    return reply.status, json.loads(body) if "json" in have.get("content-type", "") else body, have


class Served:
    """A dashboard in a process of its own."""

    def __init__(self, *places: Path, port: int = 0) -> None:
        self.process = subprocess.Popen(
            command("dashboard", *places, "--port", port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("dashboard: http://127.0.0.1:"), (line, self.process.poll())
        self.url = line.split()[1]
        self.port = int(self.url.rstrip("/").rpartition(":")[2])

    def ask(self, target: str, method: str = "GET", **headers: str) -> tuple[int, Any, dict[str, str]]:
        return ask(self.port, target, method, **headers)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture(scope="module")
def served(trained: Path) -> Iterator[Served]:
    pytest.importorskip("uvicorn")
    server = Served(trained.parent)
    end = time.monotonic() + 60
    while not (runs := server.ask("/api/runs")[1]["runs"]) or runs[0]["loading"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    yield server
    assert server.stop() == 0


def test_what_the_server_tells(served: Served) -> None:
    run = served.ask("/api/runs")[1]["runs"][0]
    at = f"/api/runs/{run['id']}"
    status, series, _ = served.ask(f"{at}/series?names=loss,smma,rate&low=10&high=20&buckets=500")
    assert status == 200
    assert series["loss"]["x"] == list(range(9, 22))
    assert served.ask(f"{at}/sources")[1]["sources"] == ["alpha", "beta"]
    assert served.ask(f"{at}/events?axis=time")[1]["events"][-1]["kind"] == "end"
    count = len(served.ask(f"{at}/samples")[1]["samples"])
    assert served.ask(f"{at}/samples/{count - 1}")[1]["text"]
    csv = served.ask(f"{at}/csv")[1].decode().splitlines()
    assert len(csv) == 61
    assert csv[0].startswith("step,loss,smma")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/runs/nothing/series", 404),
        ("/api/runs/..%2f..%2fetc/series", 404),
        ("/assets/..%2fapp.py", 404),
        ("/assets/app.py", 404),
        ("/api/runs/RUN/series?names=no", 400),
        ("/api/runs/RUN/series?low=x", 400),
        ("/api/runs/RUN/series?low=nan", 400),
        ("/api/runs/RUN/samples/99999", 404),
    ],
)
def test_what_it_refuses(served: Served, target: str, status: int) -> None:
    run = served.ask("/api/runs")[1]["runs"][0]["id"]
    assert served.ask(target.replace("RUN", run))[0] == status


def test_a_foreign_host_and_other_methods_are_refused(served: Served) -> None:
    assert served.ask("/api/runs", Host="evil.example")[0] == 403
    assert served.ask("/api/runs", Host=f"localhost:{served.port}")[0] == 200
    assert served.ask("/api/runs", method="POST")[0] == 405
    headers = served.ask("/")[2]
    assert "script-src 'self';" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in served.ask("/api/hello", Origin="http://evil.example")[2]


def test_the_next_free_port_is_taken(served: Served, trained: Path) -> None:
    other = Served(trained, port=served.port)
    assert served.port < other.port < served.port + 50
    assert other.stop() == 0


def read_terminal(master: int, shown: bytearray) -> None:
    """Take in what is written to a terminal until nobody has it open any more."""
    with contextlib.suppress(OSError):
        while block := os.read(master, 1 << 16):
            shown += block
    os.close(master)


def test_a_dashboard_and_a_terminal_view_beside_a_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = start(make_experiment(tmp_path, train__steps=1_000_000), out, "--dashboard")
    view: subprocess.Popen[bytes] | None = None
    try:
        assert run.stdout is not None
        address = next(line for line in run.stdout if "http://127.0.0.1:" in line)
        threading.Thread(target=run.stdout.read, daemon=True).start()  # a full pipe would hold the run
        port = int(address.rstrip("/\n").rpartition(":")[2])
        assert b"assets/dashboard.js" in ask(port, "/")[1]
        wait_for(lambda: [r["step"] > 0 for r in ask(port, "/api/runs")[1]["runs"]] == [True], run)
        (seen,) = ask(port, "/api/runs")[1]["runs"]
        assert seen["state"] == "running"
        assert seen["directory"] == str(out)

        # In a terminal the view goes on until Ctrl-C, which the run does not notice.
        master, terminal = pty.openpty()
        view = subprocess.Popen(
            command("watch", out),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=os.environ | {"COLUMNS": "160", "LINES": "50", "TERM": "xterm"},
        )
        os.close(terminal)
        shown = bytearray()
        reading = threading.Thread(target=read_terminal, args=(master, shown), daemon=True)
        reading.start()
        end = time.monotonic() + 60
        while len(set(re.findall(rb"step ([\d,]+)/1,000,000", bytes(shown)))) < 3:
            assert time.monotonic() < end, shown
            assert view.poll() is None, shown
            time.sleep(0.05)
        view.send_signal(signal.SIGINT)
        assert view.wait(60) == 0
        reading.join(60)
        assert b"alpha" in shown
        assert b"Traceback" not in shown
        assert run.poll() is None
    finally:
        if view is not None and view.poll() is None:
            view.kill()
        run.send_signal(signal.SIGTERM)
        run.wait(60)
    # It ends with the run.
    end = time.monotonic() + 60
    with contextlib.suppress(ConnectionError):
        while ask(port, "/api/hello"):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_an_event_is_announced_within_a_second(tmp_path: Path) -> None:
    (tmp_path / "x.loss.json").write_text("[\n[0, 5.0]\n]")
    server = Served(tmp_path)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/stream")
        stream = connection.getresponse()
        while b'"step":1' not in stream.readline():
            pass
        taken = []
        for number in range(1, 7):  # the best of six: other processes want the processor too
            time.sleep(0.5)
            begun = time.monotonic()
            with (tmp_path / "x.events.jsonl").open("a") as log:
                log.write('{"kind":"checkpoint","step":1,"time":1.0,"message":"saved"}\n')
            while f'"events":{number}'.encode() not in stream.readline():
                pass
            taken.append(time.monotonic() - begun)
            if taken[-1] < 1.0:
                break
        assert min(taken) < 1.0
        connection.close()
    finally:
        server.stop()


# ---- files and the terminal


def test_a_static_page_holds_everything_and_nothing_of_a_run_is_markup(trained: Path, tmp_path: Path) -> None:
    evil = tmp_path / "</script><script>alert(1)</script>"
    evil.mkdir(parents=True)
    (evil / "x.loss.json").write_text("[\n[0, 5.0]\n]")
    out = tmp_path / "out.html"
    assert cli("dashboard", trained, evil, "--static", out).returncode == 0
    page = out.read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "script-src 'sha256-" in page
    assert 'src="' not in page.split("<style>")[0]
    (tmp_path / "nothing").mkdir()
    assert cli("dashboard", tmp_path / "nothing", "--static", out).returncode == 78


def test_plots_and_the_terminal_view(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert cli("plot", trained, "--out", tmp_path / "a.png").returncode == 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert cli("plot", trained, "--out", tmp_path / "a.svg", "--log-steps").returncode == 0
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert cli("plot", trained, "--out", tmp_path / "a.txt").returncode == 78
    shown = cli("watch", trained, COLUMNS="160")
    assert shown.returncode == 0
    assert "step 60/60" in shown.stdout
    assert "alpha" in shown.stdout
    assert cli("watch", tmp_path).returncode == 78
