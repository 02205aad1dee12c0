"""One experiment trained in several precisions, same seed and same data order: loss curves side by side.

    python bench/precisions.py EXPERIMENT.json --out DIR [--device cuda] [--precisions fp16,bf16,fp8,fp32]
                               [--reference fp16] [--steps N] [--json FILE] [--figure FILE.svg] [--from FILE]

Each precision is a run of `microgpt_train`, with policy uniform, in a folder of DIR which must not hold one
yet. Prints a Markdown table: mean loss of the last 100 steps and its gap to the reference, mean distance of a
step's loss from the reference's, held-out bits per byte, and values that FP8 saturated. --json keeps the
losses, from which --from and --figure draw without training again (pip install matplotlib).
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from arguments import PRECISIONS, ended, listed, one_of, read_experiment, read_json, whole
from engine_process import fail, run_engine
from kept_figures import keep, parser_of, show

LAST = 100  # steps whose mean loss is compared
SMOOTHED = 50  # steps in a point of the figure


class Run(TypedDict):
    """What is kept of a run in one precision."""

    seconds: float
    losses: list[tuple[int, float | None]]
    bits_per_byte: float | None
    saturated: int | None


class Kept(TypedDict):
    """What is kept of an experiment: a run for each precision, that of reference among them."""

    name: str
    reference: str
    runs: dict[str, Run]


def check(figures: dict[str, Any]) -> None:
    """Raise ValueError if figures are not of the shape Kept, or hold nothing that can be compared."""
    kept = msgspec.convert(figures, Kept)
    if kept["reference"] not in kept["runs"]:
        raise ValueError(f"holds no run in {kept['reference']}, with which the others are compared")
    reference = by_step(figures["runs"][kept["reference"]])
    for precision, run in figures["runs"].items():
        if reference.keys().isdisjoint(by_step(run)):
            raise ValueError(f"the run in {precision} has no loss at a step of that in {kept['reference']}")


def trained(name: str, precision: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train experiment `name` in one precision; return its losses and what the run said of itself."""
    out = given.out / precision
    command = ["--config", given.experiment, "--out", out, "--device", given.device]
    command += ["--precision", precision, "--policy", "uniform"] + (
        ["--steps", given.steps] if given.steps else []
    )
    begun = time.perf_counter()
    done = run_engine(given.binary, *command)
    if done.returncode != 0:
        fail(done, f"{precision}: ")
    events = (out / f"{name}.events.jsonl").read_text(encoding="utf-8")
    held_out = re.findall(r"held-out text: ([\d.]+) bits per byte", events)
    saturated = re.findall(r"FP8: (\d+) values saturated", events)
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "losses": read_json(out / f"{name}.loss.json"),
        "bits_per_byte": float(held_out[-1]) if held_out else None,
        "saturated": int(saturated[-1]) if saturated else None,
    }


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Train in every precision."""
    name = read_experiment(given.experiment)["name"]
    result: dict[str, Any] = {"name": name, "reference": given.reference, "runs": {}}
    for precision in given.precisions:
        run = result["runs"][precision] = trained(name, precision, given)
        keep(given, result)
        print(f"{name} {precision}: {run['seconds']} s", file=sys.stderr, flush=True)
    return result


def by_step(run: dict[str, Any]) -> dict[int, float]:
    """Return the losses of a run by step; a step that was skipped has none."""
    return {step: loss for step, loss in run["losses"] if loss is not None}


def print_table(result: dict[str, Any]) -> None:
    """Print the comparison with the reference."""
    reference = by_step(result["runs"][result["reference"]])
    print(f"\n{result['name']}, {max(reference) + 1} steps\n")
    print(
        f"| precision | process, s | mean loss of the last {LAST} | gap to {result['reference']} | "
        "mean distance of a step | held-out bits per byte | FP8 saturated |"
    )
    print("|---|---|---|---|---|---|---|")
    final = statistics.fmean(list(reference.values())[-LAST:])
    for precision, run in result["runs"].items():
        losses = by_step(run)
        mean = statistics.fmean(list(losses.values())[-LAST:])
        apart = statistics.fmean(abs(losses[step] - reference[step]) for step in losses if step in reference)
        held_out = "-" if run["bits_per_byte"] is None else f"{run['bits_per_byte']:.4f}"
        saturated = "" if run["saturated"] is None else run["saturated"]
        print(
            f"| {precision} | {run['seconds']} | {mean:.4f} | {100 * (mean / final - 1):+.2f} % | "
            f"{apart:.4f} | {held_out} | {saturated} |"
        )


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the losses of every precision, and below their difference from the reference."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    import matplotlib.pyplot as plt

    size = (5.5 * len(results), 5)
    figure, panels = plt.subplots(
        2,
        len(results),
        figsize=size,
        sharex="col",
        squeeze=False,
        height_ratios=[2, 1],
        layout="constrained",
    )
    for column, result in enumerate(results):
        above, below = panels[0][column], panels[1][column]
        reference = by_step(result["runs"][result["reference"]])
        for precision, run in result["runs"].items():
            losses = by_step(run)
            steps = sorted(set(losses) & set(reference))
            parts = [steps[at : at + SMOOTHED] for at in range(0, len(steps), SMOOTHED)]
            middle = [statistics.fmean(part) for part in parts]
            above.plot(
                middle, [statistics.fmean(losses[step] for step in part) for part in parts], label=precision
            )
            below.plot(
                middle, [statistics.fmean(losses[step] - reference[step] for step in part) for part in parts]
            )
        above.set_title(result["name"])
        above.set_ylabel("loss, nats")
        above.legend()
        below.set_ylabel(f"less {result['reference']}")
        below.set_xlabel("step")
        for axes in (above, below):
            axes.grid(visible=True, alpha=0.25)
    figure.savefig(path)


def main() -> None:
    """Train or read, and compare."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="folder of the runs")
    parser.add_argument(
        "--precisions", type=listed(one_of(PRECISIONS)), default="fp16,bf16,fp8,fp32", help="with commas"
    )
    parser.add_argument(
        "--reference",
        default="fp16",
        choices=PRECISIONS,
        help="the precision that the others are compared with",
    )
    parser.add_argument("--steps", type=whole(), help="end each run after this step")
    given = parser.parse_args()
    if given.experiment is not None and given.out is None:
        parser.error("--out: where the runs go")
    if given.experiment is not None and given.reference not in given.precisions:
        parser.error(f"--reference {given.reference} is not among --precisions")
    for precision in given.precisions if given.experiment is not None else ():
        if (given.out / precision).exists():
            parser.error(f"{given.out / precision} is there already: choose another --out")
    show(parser, given, measured, print_table, draw, check)


if __name__ == "__main__":
    ended(main)
