"""A whole training step on the CPU beside PyTorch eager: the same shape, threads, machine and run.

    python bench/cpu_step.py [--binary FILE] [--shapes NANO,12M] [--threads N] [--rounds N] [--clock wall|cpu]

Ours is the C++ program cpu_ops_bench (configure with -DANDREA_BENCH=ON). Each round times ours, then
PyTorch: forward, backward, global clipping and AdamW in float32, with torch's fused attention and fused
AdamW. The ratio printed is the median PyTorch step over our median step; above 1 ours is faster. On a busy
machine wall times say little: --clock cpu compares the CPU time of one thread of each.
Without PyTorch ours is timed alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_peer import gpt2_like

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {  # d_model, layers, heads, context, vocabulary, batch
    "NANO": (128, 4, 4, 256, 1281, 8),
    "12M": (384, 6, 12, 1024, 4353, 1),
}


def find_binary(given: str | None) -> Path:
    """The benchmark program: the one given, or the newest in a build folder of this clone."""
    found = (
        [Path(given)]
        if given
        else sorted(ROOT.glob("build*/bench/cpu_ops_bench"), key=lambda p: p.stat().st_mtime)
    )
    if not found or not found[-1].is_file():
        sys.exit(
            "cpu_ops_bench not found. Build it: cmake -B build -DANDREA_BENCH=ON && "
            "cmake --build build --target cpu_ops_bench"
        )
    return found[-1]


def ours(binary: Path, shape: str, threads: int, steps: int, clock: str) -> dict[str, Any]:
    """One run of the C++ program, its JSON line."""
    command = [str(binary), "--shape", shape, "--threads", str(threads), "--steps", str(steps)]
    command += ["--clock", clock, "--json"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(line)
    return result


def torch_step(shape: str, threads: int, clock: str) -> Callable[[], float]:
    """A PyTorch model of the shape; each call trains one step and returns its milliseconds."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    now = time.process_time if clock == "cpu" else time.perf_counter
    d, layers, heads, context, vocabulary, batch = SHAPES[shape]

    model = gpt2_like(d, layers, heads, context, vocabulary, batch)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.1, fused=True)
    ids = torch.randint(0, vocabulary, (batch, context))
    targets = torch.randint(0, vocabulary, (batch, context))

    def step() -> float:
        start = now()
        model(ids, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return (now() - start) * 1e3

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="a CPU training step beside PyTorch eager")
    parser.add_argument("--binary", help="the program cpu_ops_bench")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="comma-separated: NANO,12M")
    parser.add_argument("--threads", type=int, default=0, help="threads of both; 0: one a usable core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="steps of each in a round")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: CPU time, one thread")
    options = parser.parse_args()
    if options.clock == "cpu":
        options.threads = 1
    binary = find_binary(options.binary)
    has_torch = importlib.util.find_spec("torch") is not None
    if not has_torch:
        print("PyTorch is not installed: no ratio. pip install torch to compare.")
    for shape in options.shapes.split(","):
        if shape not in SHAPES:
            sys.exit(f"no shape {shape!r}; there are {', '.join(SHAPES)}")
        first = ours(binary, shape, options.threads, 1, options.clock)
        threads = int(first["threads"])
        print(
            f"{shape} B={first['batch']}, {threads} threads, {options.clock} time, {first['arithmetic']}",
            flush=True,
        )
        step = torch_step(shape, threads, options.clock) if has_torch else None
        our_ms: list[float] = []
        their_ms: list[float] = []
        if step is not None:
            step(), step()
        for number in range(options.rounds):
            result = ours(binary, shape, threads, options.steps, options.clock)
            our_ms.append(float(result["ms"]))
            line = f"  round {number + 1}: ours {our_ms[-1]:.1f} ms, {result['gflops']:.1f} GFLOP/s"
            if step is not None:
                their_ms.append(statistics.median(step() for _ in range(options.steps)))
                line += f"; PyTorch {their_ms[-1]:.1f} ms; ratio {their_ms[-1] / our_ms[-1]:.2f}"
            print(line, flush=True)
        if their_ms:
            ratio = statistics.median(their_ms) / statistics.median(our_ms)
            print(
                f"  ratio {ratio:.2f} (PyTorch's median step over ours; above 1 ours is faster)", flush=True
            )


if __name__ == "__main__":
    main()
