"""The proxy as a real process: the numbers of the in-process policy, and every fault survived."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea.cli import run
from andrea.curriculum import coherence
from andrea.curriculum.engine_policy import EnginePolicy, make_policy
from andrea.curriculum.experiment import read_plan
from andrea.curriculum.protocol import MAX_LINE, read_request
from andrea.data.btok import BtokWriter
from andrea.tokenizer import Tokenizer

SIZES = [{"name": f"s{k}", "n_docs": 50, "n_tokens": 2000, "n_bytes": 8000} for k in range(4)]
EMPTY: dict[str, list[Any]] = {"step": [], "source": [], "documents": [], "loss": []}
TEXT = "the sea was grey and the old boat lay on the sand while we waited for the wind to turn"


class Proxy:
    """`andrea proxy` in a process of its own."""

    def __init__(self, config: Path, listen: str, *more: str) -> None:
        command = [sys.executable, "-m", "andrea", "proxy", str(config), "--listen", listen]
        self.process = subprocess.Popen(
            [*command, *(more or ("--http", "off", "--no-score"))], stderr=subprocess.PIPE, text=True
        )
        self.http = ""
        self.address = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("http://"):
                self.http = line.strip()
            if line.startswith("listening on "):
                self.address = line.strip().removeprefix("listening on ")
                break

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=20)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


class Trainer:
    """The trainer's side of the protocol; while the place of the last one is not free yet, it tries again."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.open()

    def open(self) -> None:
        kind, _, rest = self.address.partition(":")
        if kind == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(20)
            self.socket.connect(rest)
        else:
            host, _, port = rest.rpartition(":")
            self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.lines = self.socket.makefile("rb")

    def raw(self, data: bytes) -> dict[str, Any] | None:
        for _ in range(100):
            try:
                self.socket.sendall(data)
                line = self.lines.readline()
            except ConnectionError:
                line = b""
            reply = json.loads(line) if line else None
            if reply is not None and reply.get("code") != "busy":
                return reply
            self.close()
            time.sleep(0.05)
            self.open()
        return None

    def ask(self, **message: Any) -> dict[str, Any]:
        reply = self.raw(json.dumps(message).encode() + b"\n")
        assert reply is not None
        return reply

    def hello(
        self, step: int = 0, state: str | None = None, rows: Any = None, **other: Any
    ) -> dict[str, Any]:
        sources = [
            {"name": s["name"], "documents": s["n_docs"], "tokens": s["n_tokens"], "bytes": s["n_bytes"]}
            for s in SIZES
        ]
        message = {
            "type": "hello",
            "protocol": 1,
            "version": "t",
            "model": "m",
            "seed": 7,
            "sources": sources,
        }
        rows = rows or {"step": [], "source": [], "documents": [], "loss": []}
        return self.ask(**{**message, "step": step, "state": state, "rows": rows, **other})

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def rows_between(begin: int, end: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng([3, begin])
    count = (end - begin) * 4
    losses = (5 / (1 + begin * 0.01) + rng.normal(0, 0.3, count)).astype(np.float32)
    return {
        "step": np.repeat(np.arange(begin, end), 4).tolist(),
        "source": rng.integers(0, 4, count).tolist(),
        "documents": rng.integers(0, 3, count).tolist(),
        "loss": [float(np.format_float_scientific(x, unique=True)) for x in losses],  # shortest decimals
    }


def inside(config: Path) -> EnginePolicy:
    return make_policy(read_plan(config), SIZES, 7)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def write_config(folder: Path, **changes: Any) -> Path:
    experiment = {
        "name": "m",
        "model": {"d_model": 8, "n_head": 1, "n_layer": 1, "context": 16, "vocab_size": 300},
        "train": {"steps": 1000, "batch_size": 4, "seed": 7},
        "data": {
            "sources": [
                {"name": s["name"], "train": f"{s['name']}.btok", "floor": 0.2 * (k == 1)}
                for k, s in enumerate(SIZES)
            ]
        },
        "curriculum": {"curriculum_warmup_steps": 60, "curriculum_warmup_sources": ["s0", "s2"]},
    }
    experiment["data"].update(changes)  # type: ignore[attr-defined]
    path = folder / "m.json"
    path.write_text(json.dumps(experiment))
    return path


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One for all tests that leave it alive."""
    folder = tmp_path_factory.mktemp("proxy")
    running = Proxy(write_config(folder), f"unix:{folder}/p")
    yield running
    running.stop()


def compare(policy: EnginePolicy, trainer: Trainer, reply: dict[str, Any], until: int) -> tuple[int, str]:
    """Go on with both sides up to step `until`; every phase must be equal, bit for bit."""
    step, shown = reply["step"], max(0, reply["step"] - 1)
    while step < until:
        end = step + reply["steps"]
        rows = rows_between(shown, end - 1)
        shown = end - 1
        steps, weights, log = policy.begin_phase(end, {k: np.array(v) for k, v in rows.items()})
        reply = trainer.ask(type="records", step=end, rows=rows)
        assert reply["type"] == "phase", reply
        assert (reply["steps"], reply["weights"], reply["log"]) == (steps, weights, log)
        assert reply["state"] == policy.state()
        step = end
    return step, reply["state"]


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_the_numbers_are_those_of_the_policy_in_process(config: Path, tmp_path: Path, kind: str) -> None:
    server = Proxy(config, f"unix:{tmp_path}/p" if kind == "unix" else "tcp:127.0.0.1:0")
    try:
        trainer, policy = Trainer(server.address), inside(config)
        steps, weights, log = policy.begin_phase(0, EMPTY)
        reply = trainer.hello()
        assert (reply["steps"], reply["weights"], reply["log"]) == (steps, weights, log)
        compare(policy, trainer, reply, 500)
        assert trainer.ask(type="state")["state"] == policy.state()
        trainer.socket.sendall(b'{"type":"bye"}\n')
        assert trainer.lines.readline() == b""
        trainer.close()
    finally:
        assert server.stop() == 0
    assert not (tmp_path / "p").exists()


def test_killed_and_started_again_it_goes_on_with_the_same_bits(config: Path, tmp_path: Path) -> None:
    first = Proxy(config, f"unix:{tmp_path}/p")
    trainer, policy = Trainer(first.address), inside(config)
    policy.begin_phase(0, EMPTY)
    step, state = compare(policy, trainer, trainer.hello(), 200)
    first.stop(signal.SIGKILL)
    trainer.close()
    second = Proxy(config, f"unix:{tmp_path}/p")  # over the socket that the killed one left
    try:
        again = Trainer(second.address)
        assert policy.curriculum.phase is not None
        end = policy.curriculum.phase.end
        rows = rows_between(step - 1, end - 1)
        steps, weights, log = policy.begin_phase(end, rows)
        reply = again.hello(end, state, rows)
        assert (reply["steps"], reply["weights"], reply["state"]) == (steps, weights, policy.state())
        assert json.loads(reply["log"])["arms"] == json.loads(log)["arms"]
        compare_from = {**reply, "step": end}
        compare(policy, again, compare_from, 400)
        again.close()
    finally:
        second.stop()


def test_a_second_trainer_is_sent_away_and_the_first_is_not_disturbed(proxy: Proxy) -> None:
    first = Trainer(proxy.address)
    assert first.hello()["type"] == "phase"
    for _ in range(3):
        second = Trainer(proxy.address)
        line = second.lines.readline()
        assert json.loads(line)["code"] == "busy"
        second.close()
    assert first.ask(type="state")["type"] == "state"
    first.close()
    third = Trainer(proxy.address)  # the place is free again
    assert third.hello()["type"] == "phase"
    third.close()


NONSENSE = [
    b"\n",
    b"hello\n",
    b"{}\n",
    b'{"type":"hello"}\n',
    b'{"type":"records","step":0,"rows":{"step":[],"source":[],"documents":[],"loss":[]}}\n',
    b"\xff\xfe\x00\n",
    b"[" * 100_000 + b"\n",
    b'{"type":"sample","text":"not base64!"}\n',
]


def test_nonsense_is_answered_and_survived(proxy: Proxy) -> None:
    for line in NONSENSE:
        trainer = Trainer(proxy.address)
        reply = trainer.raw(line)
        assert reply is not None
        assert (reply["type"], reply["code"]) == ("error", "protocol"), line[:50]
        assert trainer.lines.readline() == b""
        trainer.close()
    trainer = Trainer(proxy.address)
    assert trainer.hello()["type"] == "phase"
    trainer.close()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"protocol": 2}, "protocol"),
        ({"sources": [{"name": "x", "documents": 1, "tokens": 1, "bytes": 1}]}, "sources"),
        ({"state": "{}"}, "state"),
        ({"state": "[" * 1000}, "state"),
        ({"step": -1}, "order"),
        ({"rows": {"step": [0], "source": [9], "documents": [0], "loss": [1.0]}}, "order"),
        ({"rows": {"step": [0], "source": [0, 1], "documents": [0], "loss": [1.0]}}, "order"),
        ({"rows": {"step": [10**30], "source": [0], "documents": [0], "loss": [1.0]}}, "order"),
        ({"rows": {"step": [2**64 - 1], "source": [0], "documents": [0], "loss": [1.0]}}, "order"),
    ],
)
def test_a_hello_that_cannot_be_is_refused(proxy: Proxy, message: dict[str, Any], code: str) -> None:
    trainer = Trainer(proxy.address)
    reply = trainer.hello(**message)
    trainer.close()
    assert (reply["type"], reply["code"]) == ("error", code), reply


def test_a_line_of_100_megabytes_is_cut_off(proxy: Proxy) -> None:
    trainer = Trainer(proxy.address)
    block = b"x" * (1 << 20)
    sent = 0
    try:
        while sent < 100 << 20:
            trainer.socket.sendall(block)
            sent += len(block)
    except OSError:
        pass
    assert sent < 100 << 20  # it did not read on to the end
    trainer.close()
    peak = next(
        int(line.split()[1]) << 10
        for line in Path(f"/proc/{proxy.process.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert peak < (100 << 20) + 6 * MAX_LINE
    again = Trainer(proxy.address)
    assert again.hello()["type"] == "phase"
    again.close()


def test_addresses_that_cannot_be_had_end_it_with_a_message(
    proxy: Proxy, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ["proxy", str(config), "--no-score", "--http", "off", "--listen"]
    assert run([*plain, proxy.address]) == 74
    assert "another proxy listens" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert run([*plain, f"unix:{tmp_path}/file"]) == 74
    assert (tmp_path / "file").read_text() == "mine"
    far = ["tcp:0.0.0.0:1", "tcp:10.0.0.1:5", "udp:1", "unix:", "unix:" + "x" * 200, "tcp:127.0.0.1:x"]
    for wrong in far:
        assert run([*plain, wrong]) == 78, wrong
    assert run(["proxy", str(config), "--no-score", "--http", "nowhere"]) == 78
    assert run(["proxy", str(tmp_path / "no.json")]) == 78


def test_samples_get_the_verdict_of_the_policy_in_process(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_segments([" the", "sea", " sea", "wind"])
    tokenizer.save(str(tmp_path / "harris_segments.json"))
    for source in SIZES:
        with BtokWriter(tmp_path / f"{source['name']}.btok", tokenizer.vocab_size, tokenizer.hash) as out:
            out.add(tokenizer.encode(TEXT), len(TEXT))
    config = write_config(tmp_path, tokenizer="harris_segments.json")
    scorer = read_plan(config).scorer()
    assert scorer is not None
    server = Proxy(config, f"unix:{tmp_path}/p", "--http", "off")
    try:
        trainer = Trainer(server.address)
        for text in (TEXT, "the " * 50, "", "\u6211\u4eec" * 9):
            reply = trainer.ask(type="sample", text=base64.b64encode(text.encode()).decode())
            expected = scorer(text)
            assert reply["score"] == expected.score
            assert json.loads(reply["parts"]) == expected.as_json()
        cut = base64.b64encode("\u00e4".encode()[:1]).decode()  # a sample may end inside a character
        assert trainer.ask(type="sample", text=cut)["score"] == scorer("\ufffd").score
        assert coherence(TEXT, frozenset(TEXT.split())).score == scorer(TEXT).score
        trainer.close()
    finally:
        server.stop()


@given(st.integers(0, 2**32 - 1))
def test_every_float32_survives_the_line(bits: int) -> None:
    value = np.array([bits], dtype=np.uint32).view(np.float32)[0]
    if not np.isfinite(value):
        return
    digits = np.format_float_scientific(value, unique=True, trim="-")
    line = (
        f'{{"type":"records","step":9,"rows":{{"step":[0],"source":[0],"documents":[0],"loss":[{digits}]}}}}'
    )
    request = read_request(line.encode())
    loss = np.array(request.rows.loss, dtype=np.float64).astype(np.float32)  # type: ignore[union-attr]
    assert loss.view(np.uint32)[0] == bits


def test_it_leaves_no_socket_behind_and_its_socket_is_private(config: Path, tmp_path: Path) -> None:
    server = Proxy(config, f"unix:{tmp_path}/q")
    assert os.stat(tmp_path / "q").st_mode & 0o077 == 0
    assert server.stop(signal.SIGINT) == 0
    assert not (tmp_path / "q").exists()
