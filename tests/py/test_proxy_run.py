"""`microgpt_train --proxy` beside `andrea proxy`: the bits of `andrea train`, and every fault survived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from andrea.binary import path_of_binary
from andrea.curriculum.replay import replay
from tiny_run import history, make_experiment, train

POLITE = {"OMP_WAIT_POLICY": "passive"}


def binary() -> str:
    """Return the binary of this installation, or the one that ANDREA_BINARY names."""
    path = os.environ.get("ANDREA_BINARY") or str(path_of_binary())
    if not Path(path).exists():
        pytest.fail(f"microgpt_train is not there: {path}")
    return path


class Proxy:
    """A real `andrea proxy` that can be killed and started again on the same socket."""

    def __init__(self, config: Path, socket: Path, *flags: str) -> None:
        self.config, self.address, self.flags = config, f"unix:{socket}", flags
        self.said: list[str] = []  # before it listened
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "andrea", "proxy", str(self.config)]
        self.process = subprocess.Popen(
            [*command, "--listen", self.address, "--http", "off", *self.flags],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("listening"):
                return
            self.said.append(line)
        raise AssertionError("the proxy did not start")

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proxied")
    return make_experiment(folder, curriculum={"policy": "ucb1_dice", "curriculum_warmup_steps": 0})


@pytest.fixture(scope="module")
def inside(config: Path) -> dict[str, bytes]:
    """Return the history of the run with the policy in process."""
    out = config.parent / "inside"
    result = train(config, out)
    assert result.returncode == 0, result.stderr
    return history(out)


@pytest.fixture
def proxy(config: Path, tmp_path: Path) -> Iterator[Proxy]:
    server = Proxy(config, tmp_path / "p")
    server.start()
    yield server
    server.stop()


def run(config: Path, out: Path, address: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [binary(), "--config", str(config), "--out", str(out), "--proxy", address, *more]
    environment = {**os.environ, **POLITE}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def without_headers(files: dict[str, bytes]) -> dict[str, object]:
    """After a resume the first decision states the settings again; apart from that, all must be equal."""
    out: dict[str, object] = dict(files)
    for name, content in files.items():
        if name.endswith(".rows.jsonl"):
            lines = [json.loads(line) for line in content.splitlines()]
            for line in lines:
                if isinstance(line.get("phase"), dict):
                    line["phase"].pop("curriculum", None)
            out[name] = lines
    return out


def test_the_run_is_that_of_the_policy_in_process(
    config: Path, inside: dict[str, bytes], proxy: Proxy, tmp_path: Path
) -> None:
    result = run(config, tmp_path / "run", proxy.address)
    assert result.returncode == 0, result.stderr
    assert history(tmp_path / "run") == inside
    with (tmp_path / "run" / "tiny.rows.jsonl").open("rb") as lines:
        assert replay(lines).exact


def test_a_resume_by_proxy_and_in_process_are_one_run(
    config: Path, inside: dict[str, bytes], proxy: Proxy, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run(config, out, proxy.address, "--steps", "11").returncode == 0
    proxy.stop()
    proxy.start()  # a new proxy knows nothing: the state comes from the checkpoint
    assert run(config, out, proxy.address, "--resume", "--steps", "35").returncode == 0
    result = train(config, out, "--resume")  # and the policy in process takes it from there
    assert result.returncode == 0, result.stderr
    assert without_headers(history(out)) == without_headers(inside)


def test_without_a_proxy_there_is_a_clear_message_and_no_run(config: Path, tmp_path: Path) -> None:
    result = run(config, tmp_path / "run", f"unix:{tmp_path}/none", "--proxy-timeout", "1")
    assert result.returncode == 78
    assert "andrea proxy" in result.stderr
    assert run(config, tmp_path / "run", "tcp:10.0.0.1:3").returncode == 64
    plain = [binary(), "--config", str(config), "--out", str(tmp_path / "x")]
    alone = subprocess.run(plain, capture_output=True, text=True, timeout=60, check=False)
    assert alone.returncode == 78
    assert "--proxy" in alone.stderr
    uniform = subprocess.run(
        [*plain, "--policy", "uniform", "--steps", "2"], capture_output=True, timeout=60, check=False
    )
    assert uniform.returncode == 0


def test_a_killed_proxy_does_not_end_the_run(config: Path, tmp_path: Path) -> None:
    longer = make_experiment(
        config.parent, "long", curriculum={"policy": "ucb1_dice"}, train__steps=1_000_000, train__eval_every=0
    )
    proxy = Proxy(longer, tmp_path / "q")
    proxy.start()
    out = tmp_path / "run"
    command = [binary(), "--config", str(longer), "--out", str(out), "--proxy", proxy.address]
    trainer = subprocess.Popen(
        [*command, "--proxy-timeout", "1", "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **POLITE},
    )
    try:
        wait_until(lambda: (out / "long.rows.jsonl").exists() and decisions(out) > 3)
        proxy.stop()
        wait_until(lambda: "no answer" in rows(out))
        before = decisions(out)
        proxy.start()
        wait_until(lambda: decisions(out) > before + 2)
        assert trainer.poll() is None
        trainer.send_signal(signal.SIGTERM)
        _, errors = trainer.communicate(timeout=60)
    finally:
        proxy.stop()
        if trainer.poll() is None:
            trainer.kill()
    assert trainer.returncode == 75
    assert "not reproducible from step" in errors
    assert "answers again" in errors
    state = json.loads(max(out.glob("step_*.state.json"), key=lambda path: path.name).read_text())
    assert state["not_reproducible_from"] >= 0


@pytest.mark.parametrize("threshold", [30, 0])
def test_a_gate_that_the_proxy_leaves_off_is_said_on_both_sides(
    config: Path, tmp_path: Path, threshold: int
) -> None:
    changes = {"curriculum": {"policy": "ucb1_dice"}, "samples__threshold": threshold}
    gated = make_experiment(config.parent, f"gate{threshold}", **changes)
    proxy = Proxy(gated, tmp_path / "p", "--no-score")
    proxy.start()
    try:
        result = run(gated, tmp_path / "run", proxy.address, "--steps", "31")
    finally:
        proxy.stop()
    assert result.returncode == 0, result.stderr
    times = int(threshold > 0)  # samples are due at 15 and 30; once is enough
    assert "".join(proxy.said).count("cannot stop the trainer; leave out --no-score") == times
    events = (tmp_path / "run" / f"gate{threshold}.events.jsonl").read_text()
    for shown in (result.stdout + result.stderr, events):
        assert shown.count("--no-score") == times
        assert shown.count("the coherence gate cannot stop this run") == times


def rows(out: Path) -> str:
    """Return the log so far."""
    return (out / "long.rows.jsonl").read_text()


def decisions(out: Path) -> int:
    """Return how many decisions the log holds."""
    return rows(out).count('"kind":"phase"')


def wait_until(true: object, seconds: float = 60.0) -> None:
    """Wait for a condition."""
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
