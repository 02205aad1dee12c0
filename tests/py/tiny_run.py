"""A run small enough to be repeated often: tokenizer, two packed sources and an experiment in a folder."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TEXT = (
    "the of and to in is that it was for on are as with his they at be this from have or by one "
    "had not but what all were when we there can an your which their said if do will each about "
    "how up out them then she many some so these would other into has more her two like him see "
    "time could no make than first been its who now"
)
WORDS = TEXT.split()


def words(count: int, seed: int) -> str:
    """Return sentences that a small model can learn something from."""
    draw = random.Random(seed)
    text, here = [], 0
    for _ in range(count):
        here = (here * 3 + draw.randrange(4)) % len(WORDS)
        text.append(WORDS[here] + (".\n" if draw.random() < 0.1 else ""))
    return " ".join(text)


def make_experiment(folder: Path, name: str = "tiny", **changes: Any) -> Path:
    """Write tokenizer, sources and experiment to `folder`; `changes` replace values, as train__steps=40."""
    from andrea import Tokenizer
    from andrea.data.pack import pack_documents

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_path = folder / "harris_segments.json"
    if not tokenizer_path.exists():
        tokenizer = Tokenizer.from_segments([f" {word}" for word in WORDS])
        tokenizer.save(str(tokenizer_path))
        for index, source in enumerate(("alpha", "beta")):
            documents = [words(40 + 7 * k, 100 * index + k).encode() for k in range(30)]
            pack_documents(documents, tokenizer, folder / f"{source}.btok", holdout=0.2, context=64)
    vocab_size = 257 + len(WORDS)
    experiment: dict[str, Any] = {
        "name": name,
        "model": {"d_model": 16, "n_head": 2, "n_layer": 2, "context": 32, "vocab_size": vocab_size},
        "train": {
            "steps": 60,
            "batch_size": 2,
            "micro_batches": 2,
            "seed": 7,
            "smma": 10,
            "lr": {"peak": 0.003, "min": 0.0003, "warmup_steps": 5},
            "eval_every": 20,
            "eval_batches": 2,
        },
        "data": {
            "tokenizer": "harris_segments.json",
            "sources": [
                {"name": "alpha", "train": "alpha.btok", "eval": "alpha.eval.btok"},
                {"name": "beta", "train": "beta.btok", "eval": "beta.eval.btok"},
            ],
        },
        "curriculum": {"policy": "proportional"},
        "samples": {"sample_every": 15, "tokens": 40, "threshold": 0, "prompts": ["", " the"]},
        "checkpoint": {"every": 10, "min_seconds": 0, "keep_last": 3, "keep_every": 20},
    }
    for path, value in changes.items():
        *sections, key = path.split("__")
        place = experiment
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    path_of_config = folder / f"{name}.json"
    path_of_config.write_text(json.dumps(experiment, indent=1), encoding="utf-8")
    return path_of_config


def cli(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the `andrea` command in a process of its own."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, env=os.environ | environment
    )


def command(*arguments: object) -> list[str]:
    """Return the command line of `andrea`."""
    return [sys.executable, "-m", "andrea", *map(str, arguments)]


def train(config: Path, out: Path, *flags: object) -> subprocess.CompletedProcess[str]:
    """Train with the `andrea` command on one thread of the CPU."""
    return cli("train", config, "--out", out, "--device", "cpu", "--threads", 1, *flags)


def start(config: Path, out: Path, *flags: object) -> subprocess.Popen[str]:
    """Start the same and leave it alone."""
    return subprocess.Popen(
        command("train", config, "--out", out, "--device", "cpu", "--threads", 1, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    """Wait until `condition`, or fail with what the process said."""
    end = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"it did not come to it: {process.communicate()}")
        time.sleep(0.005)


def history(run: Path, name: str = "tiny") -> dict[str, bytes]:
    """Return the files of a run that must be equal between equal runs: history and weights by step."""
    files = [run / f"{name}{suffix}" for suffix in (".loss.json", ".samples.json", ".rows.jsonl")]
    files += sorted(run.glob("step_*.bin"))
    return {path.name: path.read_bytes() for path in files}


def on_terminal(columns: int, rows: int, arguments: list[str], **environment: str) -> tuple[int, bytes]:
    """Run on a terminal of a size; returns exit code and what was shown."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        arguments, stdout=follower, stderr=follower, env=kept | {"TERM": "xterm"} | environment
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    return process.wait(), shown


def make_wild_checkpoint(folder: Path, spread: float) -> Path:
    """Write an experiment, returned, and beside it x.bin: initial weights and noise of `spread`."""
    from andrea import Engine, load_experiment

    config = make_experiment(folder)
    engine = Engine(load_experiment(str(config)), "cpu", 1)
    wild = np.random.default_rng(1)
    engine.load_parameters(
        {name: values + wild.normal(0, spread, values.shape) for name, values in engine.parameters().items()}
    )
    engine.save(config.with_name("x.bin"))
    return config
