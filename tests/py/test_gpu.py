"""Runs on a GPU: killed and resumed bit for bit in every precision, beside the CPU, and measured.

Without a GPU they are skipped; with ANDREA_TEST_DEVICE=cuda (scripts/gpu-check.sh) its absence is a failure.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from andrea import _core
from tiny_run import cli, command, history, make_experiment

MISSING = [line for line in _core.backends_missing() if line.startswith("cuda")]
pytestmark = pytest.mark.skipif(
    bool(MISSING) and os.environ.get("ANDREA_TEST_DEVICE") != "cuda", reason="".join(MISSING)
)

# Head dim 32, as the named sizes have it.
SHAPE = {
    "model__d_model": 64,
    "train__steps": 300,
    "samples__sample_every": 75,
    "checkpoint__keep_every": 100,
}


def gpu_train(config: Path, out: Path, *flags: object) -> None:
    """Train on the GPU to the end."""
    result = cli("train", config, "--out", out, "--device", "cuda", *flags)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_killed_and_resumed_is_the_same_run(tmp_path: Path, precision: str) -> None:
    import subprocess

    config = make_experiment(tmp_path / "data", **SHAPE, train__precision=precision)
    started = time.monotonic()
    gpu_train(config, tmp_path / "whole")
    seconds = time.monotonic() - started
    draw = random.Random(precision)
    out = tmp_path / "killed"
    for index in range(3):
        flags = ["--resume"] if index else []
        process = subprocess.Popen(
            command("train", config, "--out", out, "--device", "cuda", *flags),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seconds * draw.uniform(0.4, 0.9))
        process.send_signal(signal.SIGKILL)
        process.wait()
    gpu_train(config, out, "--resume")
    whole, killed = history(tmp_path / "whole"), history(out)
    for name in ("tiny.loss.json", "tiny.samples.json", "tiny.rows.jsonl", "step_000300.bin"):
        assert killed[name] == whole[name], name


def test_losses_follow_those_of_the_cpu(tmp_path: Path) -> None:
    from andrea import Engine

    config = make_experiment(tmp_path, **SHAPE)
    curves = {}
    for device, precision in (("cpu", "fp32"), ("cuda", "fp32"), ("cuda", "bf16"), ("cuda", "fp16")):
        engine = Engine(config, device, precision=precision)
        curves[device + precision] = np.array([engine.step().loss for _ in range(20)])
    reference = curves.pop("cpufp32")
    for name, tolerance in (("cudafp32", 1e-4), ("cudabf16", 3e-2), ("cudafp16", 5e-3)):
        assert np.abs(curves[name] / reference - 1).max() < tolerance, name


def test_the_state_holds_the_products(tmp_path: Path) -> None:
    config = make_experiment(tmp_path, **SHAPE, train__precision="fp16")
    gpu_train(config, tmp_path / "run")
    state = json.loads((tmp_path / "run" / "step_000300.state.json").read_text())
    assert state["gemm_table"]["library"].startswith("cuBLASLt")
    assert len(state["gemm_table"]["products"]) > 10


def test_the_benchmark_measures_the_gpu(tmp_path: Path) -> None:
    config = make_experiment(tmp_path, **SHAPE)
    result = cli("bench", config, "--device", "cuda", "--precision", "fp16", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["device"]["backend"] == "cuda"
    assert report["memory"]["taken_bytes"] < report["memory"]["plan_bytes"] + (16 << 20)
    assert {"attn_bwd", "mlp_fwd", "adamw"} <= {operation["name"] for operation in report["operations"]}
