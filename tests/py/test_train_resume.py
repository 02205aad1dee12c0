"""`andrea train` and `microgpt_train`: a run stopped at any moment and resumed is the run never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from andrea.binary import path_of_binary
from tiny_run import cli, history, make_experiment, start, train, wait_for

POLITE = {"OMP_WAIT_POLICY": "passive"}  # more threads than cores must not wait for each other by spinning


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny experiment with its data."""
    return make_experiment(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def unbroken(config: Path) -> dict[str, bytes]:
    """Return the history of the run that was never stopped."""
    out = config.parent / "unbroken"
    result = train(config, out)
    assert result.returncode == 0, result.stderr
    return history(out)


def binary() -> str:
    """Return the binary of this installation, or the one that ANDREA_BINARY names."""
    path = os.environ.get("ANDREA_BINARY") or str(path_of_binary())
    if not Path(path).exists():
        pytest.fail(f"microgpt_train is not there: {path}")
    return path


def test_history_is_whole(unbroken: dict[str, bytes]) -> None:
    losses = json.loads(unbroken["tiny.loss.json"])
    assert [step for step, _ in losses] == list(range(60))
    assert sum(loss for _, loss in losses[-10:]) < sum(loss for _, loss in losses[:10]) - 5
    rows = [json.loads(line) for line in unbroken["tiny.rows.jsonl"].splitlines()]
    assert len([row for row in rows if "row" in row]) == 240
    samples = json.loads(unbroken["tiny.samples.json"])
    assert [(s["step"], s["prompt"]) for s in samples] == [
        (step, prompt) for step in (15, 30, 45, 60) for prompt in ("", " the")
    ]
    assert all(s["text"].startswith(s["prompt"]) for s in samples)


@pytest.mark.parametrize("stops", [(30,), (7, 8, 41), (20, 40, 59)])
def test_steps_then_resume_is_the_same_run(
    config: Path, unbroken: dict[str, bytes], tmp_path: Path, stops: tuple[int, ...]
) -> None:
    for index, stop in enumerate(stops):
        result = train(config, tmp_path, "--steps", stop, *(["--resume"] if index else []))
        assert result.returncode == 0, result.stderr
        assert f"stopped after step {stop}" in result.stdout
    result = train(config, tmp_path, "--resume")
    assert result.returncode == 0, result.stderr
    assert_equal(history(tmp_path), unbroken)


def assert_equal(got: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Compare what both have: other checkpoints may have been kept, the last one is in both."""
    assert "step_000060.bin" in got
    assert {name for name in expected if not name.startswith("step_")} <= set(got)
    for name in got.keys() & expected.keys():
        assert got[name] == expected[name], name


def test_a_finished_run_says_so(config: Path, unbroken: dict[str, bytes]) -> None:
    out = config.parent / "unbroken"
    result = train(config, out, "--resume")
    assert result.returncode == 0, result.stderr
    assert "finished" in result.stdout
    assert history(out) == unbroken


def test_threads_and_the_binary_give_the_same_run(
    config: Path, unbroken: dict[str, bytes], tmp_path: Path
) -> None:
    for threads in (2, 4):
        out = tmp_path / f"threads{threads}"
        result = cli("train", config, "--out", out, "--device", "cpu", "--threads", threads, **POLITE)
        assert result.returncode == 0, result.stderr
        assert history(out) == unbroken
    out = tmp_path / "binary"
    arguments = [binary(), "--config", config, "--out", out, "--device", "cpu", "--threads", "2"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=os.environ | POLITE)
    assert done.returncode == 0, done.stderr
    assert without_scores(history(out)) == without_scores(unbroken)


def without_scores(files: dict[str, bytes]) -> dict[str, object]:
    """Python scores samples, the binary alone does not; everything else is the same."""
    samples = [s | {"coherence": None} for s in json.loads(files["tiny.samples.json"])]
    return files | {"tiny.samples.json": samples}


def test_binary_and_python_take_turns(config: Path, unbroken: dict[str, bytes], tmp_path: Path) -> None:
    assert train(config, tmp_path, "--steps", 22).returncode == 0
    arguments = [binary(), "--config", config, "--out", tmp_path, "--resume", "--steps", "44"]
    done = subprocess.run([*arguments, "--device", "cpu"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert train(config, tmp_path, "--resume").returncode == 0
    got, expected = without_scores(history(tmp_path)), without_scores(unbroken)
    assert got["tiny.samples.json"] == expected["tiny.samples.json"]
    assert got["tiny.loss.json"] == expected["tiny.loss.json"]
    assert got["tiny.rows.jsonl"] == expected["tiny.rows.jsonl"]
    assert got["step_000060.bin"] == expected["step_000060.bin"]


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops(config: Path, tmp_path: Path, asked: signal.Signals) -> None:
    slow = make_experiment(config.parent, "slow", train__steps=1_000_000)
    process = start(slow, tmp_path)
    wait_for(lambda: bool(list(tmp_path.glob("step_*.state.json"))), process)  # which, retention decides
    process.send_signal(asked)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert "Traceback" not in err
    states = sorted(tmp_path.glob("step_*.state.json"))
    last = json.loads(states[-1].read_text())["step"]
    assert f"step_{last:06d}.bin" in out
    losses = json.loads((tmp_path / "slow.loss.json").read_text())
    assert len(losses) == last
    # It goes on from there, and is the run that was never stopped.
    assert train(slow, tmp_path, "--resume", "--steps", last + 20).returncode == 0
    whole = tmp_path / "whole"
    assert train(slow, whole, "--steps", last + 20).returncode == 0
    assert (tmp_path / "slow.loss.json").read_bytes() == (whole / "slow.loss.json").read_bytes()
    name = f"step_{last + 20:06d}.bin"
    assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_sigterm_is_heard_while_sampling(config: Path, tmp_path: Path) -> None:
    endless = make_experiment(
        config.parent, "endless", train__eval_every=0, samples__sample_every=5, samples__tokens=1_000_000
    )
    assert_stopped_at_step_5(endless, tmp_path)


def test_sigterm_is_heard_while_evaluating(tmp_path: Path) -> None:
    slow = make_experiment(
        tmp_path, "endless", train__eval_every=5, train__eval_batches=100_000_000, samples__sample_every=0
    )
    assert_stopped_at_step_5(slow, tmp_path / "run")


# The signal comes when the third token, or batch, after step 5 has been asked for: no clock is needed.
STOPPED_AT_STEP_5 = """
import os, signal, sys
from andrea import SignalHandlers
from andrea._core import Engine, run_training
from andrea.train.run import load_tokenizer
asked = []
def poll():
    if seen:
        asked.append(1)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
    return False
seen = []
engine = Engine(sys.argv[1], "cpu", 1)
with SignalHandlers():
    code = run_training(engine, sys.argv[2], load_tokenizer(engine.experiment), poll=poll,
                        on_progress=lambda p: seen.append(1) if p.step == 5 else None)
sys.exit(code if len(asked) < 5 else 1)
"""


def assert_stopped_at_step_5(config: Path, out: Path) -> None:
    """Send SIGTERM during what comes after step 5; it saves there, and says that the rest is to be done."""
    arguments = [sys.executable, "-c", STOPPED_AT_STEP_5, str(config), str(out)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 75, done.stderr
    state = json.loads((out / "step_000005.state.json").read_text())
    assert (state["step"], state["edge_pending"]) == (5, True)


def test_a_second_signal_leaves_at_once(config: Path, tmp_path: Path) -> None:
    held = make_experiment(config.parent, "held", train__steps=100_000, checkpoint__every=100_000)
    process = start(held, tmp_path)
    wait_for(lambda: (tmp_path / "held.loss.json").exists(), process)
    process.send_signal(signal.SIGSTOP)  # so that both are there before the step ends
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=30)
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)


def test_sigusr1_saves_and_goes_on(config: Path, tmp_path: Path) -> None:
    free = make_experiment(
        config.parent, "free", train__steps=1_000_000, checkpoint__every=100_000, samples__sample_every=0
    )
    process = start(free, tmp_path)
    wait_for(lambda: (tmp_path / "free.loss.json").exists(), process)
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: bool(list(tmp_path.glob("step_*.state.json"))), process)
    first = json.loads(min(tmp_path.glob("step_*.state.json")).read_text())["step"]
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 75
    last = json.loads(max(tmp_path.glob("step_*.state.json")).read_text())["step"]
    assert 0 < first <= last
    assert len(json.loads((tmp_path / "free.loss.json").read_text())) == last


KILLED = """
import os, signal, sys, threading
from andrea.train.display import QuietDisplay
from andrea.train.run import RunOptions, train
config, out, steps, pause, resume = sys.argv[1:]
class Killed(QuietDisplay):
    left = int(steps)
    def progress(self, progress):
        self.left -= 1
        if self.left == 0:
            kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
            threading.Timer(float(pause), kill).start() if float(pause) else kill()
sys.exit(train(config, out, RunOptions(device="cpu", threads=1, resume=resume != "0"), Killed()))
"""


def test_kill_9_at_random_moments_loses_nothing(
    config: Path, unbroken: dict[str, bytes], tmp_path: Path
) -> None:
    draw = random.Random(11)
    kills = 0
    while kills < 20:
        # The first one for certain, the others at a moment after a step: in a step, a checkpoint, a sample.
        steps, pause = draw.randrange(1, 16), draw.random() * 0.01 * (kills > 0)
        arguments = [str(config), str(tmp_path), str(steps), str(pause), str(kills)]
        done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False)
        if done.returncode == 0:
            break  # it was faster
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
    assert train(config, tmp_path, "--resume").returncode == 0
    assert kills > 0
    assert_equal(history(tmp_path), unbroken)
