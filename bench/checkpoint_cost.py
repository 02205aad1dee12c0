"""What a checkpoint costs the run that takes it: milliseconds beyond a common step, around every save.

    python bench/checkpoint_cost.py EXPERIMENT.json [--every 150] [--steps 600] [--device cuda]
                                    [--precision fp16]

Trains the experiment in a temporary folder with a checkpoint every so many steps, and takes the time at which
each step ends. The two steps before a save and the five after it are compared with the median of all: a
snapshot is copied while the next steps run, so what it costs may show in any of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from arguments import PRECISIONS, complain, ended, read_experiment, whole

from andrea._core import parse_experiment
from andrea.train.display import QuietDisplay
from andrea.train.run import RunOptions, train

if TYPE_CHECKING:
    from andrea._core import Progress

BEFORE, AFTER = 2, 5  # steps around a save


class Clock(QuietDisplay):
    """Notes when each step ended, in seconds."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self.ends: list[float] = []

    def progress(self, progress: Progress) -> None:
        """Note the time."""
        del progress
        self.ends.append(time.perf_counter())


def main() -> None:
    """Train, and print the cost of each save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--every", type=whole(BEFORE + 1), default=150, help="steps from save to save")
    parser.add_argument("--steps", type=whole(), default=600)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", choices=PRECISIONS)
    given = parser.parse_args()
    if given.steps <= given.every + AFTER:
        parser.error(f"--steps must be more than {given.every + AFTER}: a save and {AFTER} steps after it")
    experiment = read_experiment(given.experiment)
    if not experiment.get("data", {}).get("sources"):
        parser.error(f"{given.experiment} has no data.sources to train on")
    experiment["train"].update(steps=given.steps, eval_every=0)
    experiment["samples"] = {"sample_every": 0}
    experiment["curriculum"] = {"policy": "uniform"}
    experiment["checkpoint"] = {"every": given.every, "min_seconds": 0, "keep_last": 1}
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        changed = parse_experiment(
            json.dumps(experiment), str(given.experiment.parent), str(given.experiment)
        )
        code = train(changed, folder, RunOptions(device=given.device, precision=given.precision), clock)
    if code != 0:
        complain(f"the run of {given.experiment} ended with exit code {code}", code)
    took = [(end - begin) * 1e3 for begin, end in zip(clock.ends, clock.ends[1:], strict=False)]
    common = statistics.median(took)  # took[i]: from the end of step i to that of step i + 1
    print(f"{experiment['name']} {given.precision or experiment['train'].get('precision', 'fp32')}")
    print(f"median step {common:.2f} ms, 99th percentile {statistics.quantiles(took, n=100)[-1]:.2f} ms")
    for save in range(given.every, given.steps - AFTER, given.every):
        around = took[save - 1 - BEFORE : save - 1 + AFTER]
        longer = ", ".join(f"{ms - common:+.2f}" for ms in around)
        print(f"save after step {save}: {sum(around) - common * len(around):+.2f} ms in all; {longer}")


if __name__ == "__main__":
    ended(main)
