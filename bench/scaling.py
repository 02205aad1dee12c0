"""How the time of a training step grows with the batch, the micro-batches and the context.

    python bench/scaling.py EXPERIMENT.json [--device cuda] [--precisions fp16] [--batches 1,2,4,8,16,32,64]
                            [--micro-batches 1,2,4,8] [--contexts 256,512,1024,2048,4096]
                            [--json FILE] [--figure FILE.svg] [--from FILE]

Three series of `microgpt_train --bench`: the batch at the experiment's context with one micro-batch; the
micro-batches with a batch of 8 each; the context with as many tokens a step as 8 sequences of the
experiment's have. What the memory does not hold is listed, not measured. Prints Markdown tables; --json keeps
the figures, from which --from and --figure draw without measuring again (pip install matplotlib).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
from arguments import PRECISIONS, ended, listed, one_of, read_experiment, whole
from engine_process import report_of, run_engine
from kept_figures import keep, parser_of, show

from andrea.errors import ConfigError

SEQUENCES = 8  # of the series that do not vary it
BAD_CONFIG = 78  # microgpt_train's exit code where the plan does not fit


@dataclass(frozen=True)
class Setting:
    """One measured point."""

    series: str
    precision: str
    batch_size: int
    micro_batches: int
    context: int

    @property
    def varied(self) -> int:
        """Return what the series varies."""
        values = {
            "batch": self.batch_size,
            "micro-batches": self.micro_batches,
            "context": self.context,
        }
        return values[self.series]


class Point(TypedDict):
    """What is kept of every point."""

    series: Literal["batch", "micro-batches", "context"]
    varied: int
    precision: str
    batch_size: int
    micro_batches: int
    context: int


class Refused(Point):
    """What is kept of a point that the memory does not hold."""

    refused: str


class Measured(Point):
    """What is kept of a point that was measured."""

    ms: float
    tokens: int
    recompute: str


class Kept(TypedDict):
    """What is kept of an experiment: its points, and the device that has measured them."""

    name: str
    device: str | None
    points: list[dict[str, Any]]


def check(figures: dict[str, Any]) -> None:
    """Raise ValueError if figures are not of the shape Kept, or nothing was measured."""
    kept = msgspec.convert(figures, Kept)
    reasons = []
    for number, point in enumerate(kept["points"]):
        try:
            if "refused" in point:
                reasons.append(msgspec.convert(point, Refused)["refused"])
                continue
            measured = msgspec.convert(point, Measured)
        except ValueError as wrong:
            raise ValueError(f"points[{number}]: {wrong}") from None
        if measured["ms"] <= 0 or measured["tokens"] <= 0:
            raise ValueError(f"points[{number}]: ms and tokens must be above 0")
    if len(reasons) == len(kept["points"]):
        raise ValueError("nothing was measured" + (f": {reasons[0]}" if reasons else ""))


def settings(given: argparse.Namespace, context: int) -> list[Setting]:
    """Return the points of all series, in order."""
    points = []
    for precision in given.precisions:
        points += [Setting("batch", precision, batch, 1, context) for batch in given.batches]
        points += [
            Setting("micro-batches", precision, SEQUENCES, micro, context) for micro in given.micro_batches
        ]
        for length in given.contexts:
            if (SEQUENCES * context) % length == 0:
                points.append(Setting("context", precision, SEQUENCES * context // length, 1, length))
    if not points:
        raise ConfigError(
            f"--contexts: none divides the {SEQUENCES * context} tokens of a step "
            f"({SEQUENCES} sequences of {given.experiment}); name one that does"
        )
    return points


def measure(point: Setting, experiment: dict[str, Any], given: argparse.Namespace, folder: Path) -> Any:
    """Return the report of one benchmark; the reason if the plan does not fit."""
    path = folder / f"context-{point.context}.json"
    changed = {**experiment, "model": {**experiment["model"], "context": point.context}}
    path.write_text(json.dumps(changed), encoding="utf-8")
    command = ["--bench", "--json", "--bench-only", "none", "--config", path]
    command += ["--device", given.device, "--precision", point.precision, "--bench-steps", given.steps]
    command += ["--batch-size", point.batch_size, "--micro-batches", point.micro_batches]
    done = run_engine(given.binary, *command)
    if done.returncode == BAD_CONFIG:
        return done.stderr.strip().splitlines()[-1]
    return report_of(done)


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Measure all points."""
    experiment = read_experiment(given.experiment)
    result: dict[str, Any] = {"name": experiment["name"], "device": None, "points": []}
    with tempfile.TemporaryDirectory() as folder:
        for point in settings(given, experiment["model"]["context"]):
            report = measure(point, experiment, given, Path(folder))
            entry: dict[str, Any] = {**vars(point), "varied": point.varied}
            if isinstance(report, str):
                entry["refused"] = report
            else:
                result["device"] = report["device"]["name"]
                entry["ms"] = report["step"]["median_ms"]
                entry["tokens"] = point.batch_size * point.micro_batches * point.context
                entry["share_of_gemm_peak"] = report["share_of_gemm_peak"]
                entry["recompute"] = report["recompute"]
            result["points"].append(entry)
            keep(given, result)
            print(f"{point}: {entry.get('ms', entry.get('refused'))}", file=sys.stderr, flush=True)
    return result


def series_of(result: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the points by series and precision."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in result["points"]:
        found.setdefault((point["series"], point["precision"]), []).append(point)
    return found


def print_tables(result: dict[str, Any]) -> None:
    """Print a Markdown table for each series and precision."""
    for (series, precision), points in series_of(result).items():
        print(f"\n{result['name']}, {precision}, {result['device']}: {series}\n")
        print("| " + series + " | B x T x micro | ms a step | us a 1,000 tokens | tokens/s | recompute |")
        print("|---|---|---|---|---|---|")
        for point in points:
            shape = f"{point['batch_size']} x {point['context']} x {point['micro_batches']}"
            if "refused" in point:
                print(f"| {point['varied']} | {shape} | {point['refused']} | | | |")
                continue
            rate = point["ms"] * 1e6 / point["tokens"]
            print(
                f"| {point['varied']} | {shape} | {point['ms']:.3f} | {rate:.1f} | "
                f"{point['tokens'] / point['ms'] / 1e3:.2f}M | {point['recompute']} |"
            )


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the time of 1,000 tokens over what each series varies, one panel a series."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    titles = {
        "batch": "batch",
        "micro-batches": "micro-batches of 8",
        "context": "context, same tokens a step",
    }
    for axes, (series, title) in zip(panels, titles.items(), strict=True):
        for result in results:
            for (of, precision), points in series_of(result).items():
                there = [point for point in points if "ms" in point]
                if of != series or not there:
                    continue
                axes.plot(
                    [point["varied"] for point in there],
                    [point["ms"] * 1e6 / point["tokens"] for point in there],
                    marker="o",
                    markersize=3,
                    label=f"{result['name'].removeprefix('ANDREA-')} {precision}",
                )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(title)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(visible=True, which="both", alpha=0.25)
    panels[0].set_ylabel("us a 1,000 tokens")
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panels[0].yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "235" else "")
    panels[0].legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    """Measure or read, and show."""
    parser = parser_of(__doc__)
    parser.add_argument("--precisions", type=listed(one_of(PRECISIONS)), default="fp16", help="with commas")
    for flag, points in (
        ("--batches", "1,2,4,8,16,32,64"),
        ("--micro-batches", "1,2,4,8"),
        ("--contexts", "256,512,1024,2048,4096"),
    ):
        without = 'with commas; "" leaves this series out'
        parser.add_argument(flag, type=listed(whole(), empty=True), default=points, help=without)
    parser.add_argument("--steps", type=whole(), default=20, help="timed steps of a point")
    given = parser.parse_args()
    if not (given.batches or given.micro_batches or given.contexts):
        parser.error("nothing to measure: name --batches, --micro-batches or --contexts")
    show(parser, given, measured, print_tables, draw, check)


if __name__ == "__main__":
    ended(main)
