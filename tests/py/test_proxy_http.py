"""The proxy's HTTP view: what it tells, and what it does not let through."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from andrea.curriculum import Curriculum, Source
from andrea.curriculum.runs import last_elements
from andrea.curriculum.view import HttpView, Snapshot
from andrea.errors import IoError


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    run = root / "one"
    run.mkdir(parents=True)
    points = ",\n".join(f"[{t}, {5 - t / 100}]" for t in range(300))
    (run / "tiny.loss.json").write_text(f"[\n{points}\n]")
    (run / "tiny.samples.json").write_text('[\n{"step": 100, "text": "<b>&"},\n{"step": 200, "text": "x"}\n]')
    for name in ("step_000100.bin", "step_000200.bin", "tiny-best.bin", "step_x.bin"):
        (run / name).write_bytes(b"12345")
    (run / "step_000100.state.json").write_text("{}")
    (tmp_path / "secret.loss.json").write_text("[\n[1, 2]\n]")
    return root


@pytest.fixture
def view(runs: Path) -> Iterator[HttpView]:
    server = HttpView(("127.0.0.1", 0), runs, Snapshot())
    server.port = int(server.start().rpartition(":")[2])  # type: ignore[attr-defined]
    yield server
    server.stop()


def ask(view: HttpView, target: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=10)  # type: ignore[attr-defined]
    connection.request(method, target, headers=headers)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, json.loads(body) if body and reply.getheader("Content-Type", "").startswith(
        "application/json"
    ) else body


def test_what_it_tells(view: HttpView, runs: Path) -> None:
    run = str(runs / "one")
    assert ask(view, "/loss") == (
        200,
        {"models": [{"model": "tiny", "run": run, "step": 299, "loss": pytest.approx(2.01)}]},
    )
    status, loss = ask(view, "/loss/tiny?last=2")
    assert (status, loss["points"]) == (200, [[298, pytest.approx(2.02)], [299, pytest.approx(2.01)]])
    assert len(ask(view, "/loss/tiny")[1]["points"]) == 300
    assert ask(view, "/samples/tiny")[1]["samples"][0] == {"step": 100, "text": "<b>&"}
    status, saved = ask(view, "/checkpoints")
    assert [row["step"] for row in saved["runs"][0]["checkpoints"]] == [100, 200]
    assert [row["state"] for row in saved["runs"][0]["checkpoints"]] == [True, False]
    assert (saved["runs"][0]["best"], saved["runs"][0]["final"]) == (True, False)
    system = ask(view, "/system")[1]
    assert system["memory"]["total"] > 0
    assert ask(view, "/curriculum") == (200, {"connected": False, "decisions": 0, "latest": None})
    assert ask(view, "/loss", "HEAD") == (200, b"")


def test_the_latest_decision_is_shown(view: HttpView) -> None:
    curriculum = Curriculum({}, [Source("a", 10, 400, 1600), Source("b", 10, 400, 1600)], 1)
    view.snapshot.put("tiny", 1, curriculum.begin_phase(0))
    status, value = ask(view, "/curriculum")
    assert status == 200
    assert value["latest"]["reasons"]["arms"]["name"] == ["a", "b"]
    assert sum(value["latest"]["weights"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/nothing",
        "/loss/secret",
        "/loss/../secret",
        "/loss/..%2Fsecret",
        "/loss/%2e%2e%2fsecret",
        "/loss/one/tiny",
        "/loss/%00",
        "/loss/tiny/",
        "/samples/" + "x" * 3000,
        "/../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_no_path_leads_out(view: HttpView, target: str) -> None:
    status, value = ask(view, target)
    if target == "/loss/tiny/":
        assert status == 200
    else:
        assert status == 404
        assert "secret" not in json.dumps(value).replace("no run has", "")


@pytest.mark.parametrize("last", ["0", "-1", "x", "1e9", "9" * 50, "%D9%A1"])
def test_counts_are_bounded(view: HttpView, last: str) -> None:
    assert ask(view, f"/loss/tiny?last={last}")[0] == 400
    assert ask(view, "/loss/tiny?last=999999999")[0] == 200


def test_only_questions_without_a_body(view: HttpView) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(view, "/loss", method)[0] == 501
    assert ask(view, "/loss", **{"Content-Length": "5"})[0] == 413
    assert ask(view, "/loss", **{"Content-Length": str(10**15)})[0] == 413
    assert ask(view, "/loss", **{"Transfer-Encoding": "chunked"})[0] == 413


def test_a_foreign_host_header_is_refused(view: HttpView) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert ask(view, "/loss", Host=host)[0] == 403, host
    for host in ("127.0.0.1", "localhost:8088", "[::1]:80", "[::1]"):
        assert ask(view, "/loss", Host=host)[0] == 200, host


def test_raw_nonsense_does_not_stop_it(view: HttpView) -> None:
    for data in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b""):
        raw = socket.create_connection(("127.0.0.1", view.port), timeout=10)  # type: ignore[attr-defined]
        with raw, contextlib.suppress(OSError):  # it may hang up before it has read all of this
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65536):
                pass
    assert ask(view, "/loss")[0] == 200


def test_many_idle_clients_do_not_block_others(view: HttpView) -> None:
    idle = [socket.create_connection(("127.0.0.1", view.port)) for _ in range(40)]  # type: ignore[attr-defined]
    assert ask(view, "/loss")[0] == 200
    for connection in idle:
        connection.close()


def test_a_taken_port_is_told(view: HttpView, runs: Path) -> None:
    with pytest.raises(IoError, match="cannot serve HTTP"):
        HttpView(("127.0.0.1", view.port), runs, Snapshot()).start()  # type: ignore[attr-defined]


def test_the_end_of_a_long_history_is_read_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.loss.json"
    count = 200_000
    path.write_text("[\n" + ",\n".join(f"[{t}, 1.5]" for t in range(count)) + "\n]")
    assert last_elements(path, 3) == [[count - 3, 1.5], [count - 2, 1.5], [count - 1, 1.5]]
    assert len(last_elements(path, 50_000)) == 50_000
    path.write_text("[\n[0, 1.5],\n[1, 1.")  # cut by a kill
    assert last_elements(path, 5) == [[0, 1.5]]
    path.write_text("[\n]")
    assert last_elements(path, 5) == []
    assert last_elements(tmp_path / "none", 5) == []
