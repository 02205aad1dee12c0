"""What the curriculum costs: microseconds a phase and a step, whatever the size of the sources.

    python bench/curriculum_cost.py [--step-ms 2.3] [--rows 8] [--sources 15]

With --step-ms (a measured time of one training step) it also says the share of a step.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from arguments import ended, number, whole

from andrea.curriculum import Curriculum, Source
from andrea.curriculum.engine_policy import EnginePolicy


def cost(sources: int, documents: int, rows: int, phases: int = 400) -> tuple[float, float]:
    """Return (microseconds a phase, microseconds a step): records in, decision, log line, state."""
    sizes = (documents, documents * 400, documents * 1600)
    limits = [Source(f"s{k}", *sizes, 0.1 * (k % 3)) for k in range(sources)]
    policy = EnginePolicy(Curriculum({"curriculum_warmup_steps": 0}, limits, 1))
    rng = np.random.default_rng(1)
    empty = np.zeros(0, dtype=np.int64)
    steps, weights, _ = policy.begin_phase(
        0, {"step": empty, "source": empty, "documents": empty, "loss": empty.astype(np.float32)}
    )
    step, spent, stepped = 0, 0.0, 0
    for _ in range(phases):
        end = step + steps
        count = steps * rows
        shown: dict[str, np.ndarray[Any, Any]] = {
            "step": np.repeat(np.arange(step, end), rows),
            "source": rng.choice(sources, size=count, p=weights),
            "documents": rng.integers(0, 3, count),
            "loss": (4 + rng.normal(0, 0.3, count)).astype(np.float32),
        }
        keep = shown["step"] <= end - 2
        shown = {key: values[keep] for key, values in shown.items()}
        begun = time.thread_time()  # this thread's own: a busy machine does not count
        steps, weights, _ = policy.begin_phase(end, shown)
        policy.state()  # the trainer keeps it with every phase
        spent += time.thread_time() - begun
        stepped += end - step
        step = end
    return spent / phases * 1e6, spent / stepped * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--step-ms", type=number(1e9), help="measured time of one training step")
    parser.add_argument("--rows", type=whole(), default=8, help="rows a step")
    parser.add_argument("--sources", type=whole(), default=15)
    arguments = parser.parse_args()
    for documents in (500, 500_000):
        phase, step = cost(arguments.sources, documents, arguments.rows)
        line = f"{arguments.sources} sources of {documents:,} documents: "
        line += f"{phase:.0f} us a phase, {step:.1f} us a step"
        if arguments.step_ms:
            line += f" = {step / arguments.step_ms / 10:.2f} % of {arguments.step_ms:g} ms"
        print(line)


if __name__ == "__main__":
    ended(main)
