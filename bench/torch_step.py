"""A training step of an experiment beside PyTorch's on the same device, in one run.

    python bench/torch_step.py EXPERIMENT.json [--device cuda|cpu] [--precision fp16,bf16,fp8]
                               [--batch-size 8] [--threads N]

Ours is `microgpt_train --bench`, in each precision of --precision. PyTorch trains the same shape with fused
AdamW and global clipping: on a GPU compiled and recorded as one CUDA graph a step, under bf16 autocast where
ours has 16 or 8 bits, in strict float32 for fp32; on the CPU eager float32. Rounds alternate, so that clocks
and neighbours trouble all. Above 1 a ratio says that ours is faster. Without PyTorch ours is timed alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import PRECISIONS, ended, listed, one_of, read_experiment, whole
from engine_process import report_of, run_engine
from torch_peer import gpt2_like

from andrea.binary import path_of_binary

WARM_UP = 8


def ours(given: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Return the report of our benchmark, without its operations."""
    command = ["--bench", "--json", "--bench-only", "none", "--config", given.experiment]
    command += ["--device", given.device, "--precision", precision, "--micro-batches", 1]
    command += ["--batch-size", given.batch_size, "--bench-steps", given.steps]
    command += ["--threads", given.threads] if given.threads else []
    return report_of(run_engine(given.binary, *command))


def torch_missing(device: str) -> str | None:
    """Return why PyTorch cannot be timed on a device; None if it can."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed; pip install torch to compare"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no GPU; install it with CUDA to compare"
    return None


def torch_step(shape: dict[str, Any], threads: int, given: argparse.Namespace) -> Callable[[], None]:
    """Return a function that trains a PyTorch model of the shape for one step, without waiting for it."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    d, heads, context, batch = shape["d_model"], shape["n_head"], shape["context"], given.batch_size
    gpu = given.device == "cuda"

    model = gpt2_like(d, shape["n_layer"], heads, context, shape["vocab_size"], batch).to(given.device)
    forward: Any = torch.compile(model) if gpu else model
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.1, fused=True, capturable=gpu)
    ids, targets = (
        torch.randint(0, shape["vocab_size"], (batch, context), device=given.device) for _ in range(2)
    )

    def work() -> None:
        narrow = given.precision != ["fp32"]
        with torch.autocast("cuda", torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = forward(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if not gpu:
        return work
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], None] = graph.replay
    return replay


def torch_ms(step: Callable[[], None], given: argparse.Namespace) -> float:
    """Return the mean milliseconds of a step, queued one behind the other as ours are."""
    import torch

    wait: Callable[[], None] = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    for _ in range(WARM_UP if given.device == "cuda" else 1):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(given.steps):
        step()
    wait()
    spent = (time.perf_counter() - start) * 1e3
    return spent / int(given.steps)


def main() -> None:
    """Alternate the two and print their times and the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--precision",
        type=listed(one_of(PRECISIONS)),
        help="ours, with commas; default: fp16, on the CPU fp32",
    )
    parser.add_argument("--batch-size", type=whole(), default=8)
    parser.add_argument(
        "--threads", type=whole(0), default=0, help="of both, on the CPU; 0: one a usable core"
    )
    parser.add_argument("--rounds", type=whole(), default=3)
    parser.add_argument(
        "--steps", type=whole(), help="timed steps of each in a round; default: 40, on the CPU 5"
    )
    parser.add_argument("--binary", default=str(path_of_binary()), help="microgpt_train")
    given = parser.parse_args()
    on_cpu = given.device == "cpu"
    given.precision = given.precision or ["fp32" if on_cpu else "fp16"]
    given.steps = given.steps or (5 if on_cpu else 40)
    if on_cpu and given.precision != ["fp32"]:
        parser.error("on the CPU: --precision fp32")
    if "fp32" in given.precision and given.precision != ["fp32"]:
        parser.error("--precision: PyTorch beside fp32 is another one than beside the others; run fp32 alone")
    shape = read_experiment(given.experiment)["model"]
    step = missing = None
    our_ms: dict[str, list[float]] = {precision: [] for precision in given.precision}
    their_ms: list[float] = []
    for number in range(given.rounds):
        for precision, times in our_ms.items():
            report = ours(given, precision)
            times.append(float(report["step"]["mean_ms"]))
        if number == 0:
            print(f"{report['name']} B={given.batch_size}, {report['device']['name']}")
            missing = torch_missing(given.device)
            if missing is None:
                step = torch_step(shape, report["device"]["threads"], given)
        line = f"  round {number + 1}: "
        line += ", ".join(f"{precision} {times[-1]:.3f} ms" for precision, times in our_ms.items())
        if step is not None:
            their_ms.append(torch_ms(step, given))
            line += f", PyTorch {their_ms[-1]:.3f} ms"
        print(line, flush=True)
    if not their_ms:
        print(f"  no ratio: {missing}")
        return
    for precision, times in our_ms.items():
        ratio = statistics.median(their_ms) / statistics.median(times)
        print(f"  {precision}: ratio {ratio:.3f} (PyTorch's median round over ours)")


if __name__ == "__main__":
    ended(main)
