"""What fits in the memory of a GPU: largest batches at context 1024, planned by rule, no GPU needed.

    python bench/fits.py [--cards 8,12,24] [--reserve 0.75] [--sizes 12M,120M,480M] [--precisions fp32,fp16]
                         [--check]

Memory of cards and the reserve are GiB. The reserve is what the CUDA context, the kernels, cuBLASLt and the
desktop take beside the plan. Each cell: the largest batch with activations kept (in fp32 all but GELU) / with
LayerNorm and GELU computed again / with whole layers computed again.
In fp8 the first number keeps activations as factors of products. Prints a Markdown table.
--check, on a GPU: the first batch of each cell is allocated and trained for a step, and one more must be
refused; the device memory that the driver counts stands beside the plan's.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from arguments import PRECISIONS, complain, ended, listed, number, one_of
from engine_process import fail, report_of, run_engine

from andrea._core import plan_report
from andrea.binary import path_of_binary
from andrea.train.sizes import SIZES

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
CONTEXT = 1024
LARGEST_CARD = 1e6  # GiB


def experiment(size: str) -> str:
    """Return the path of a named size's experiment."""
    return str(EXPERIMENTS / f"ANDREA-{size}-TRAIN.json")


def largest(size: str, precision: str, budget: int, recompute: str) -> int:
    """Return the largest batch of a plan within a budget in bytes; 0: not even 1."""
    report = plan_report(
        experiment(size), "cuda", None, budget, precision=precision, batch_size=1, recompute=recompute
    )
    return int(report.data["largest_batch_size"])


def kept_level(precision: str) -> str:
    """Return the level that keeps activations: in fp32 all but GELU, which costs no time there."""
    return "gelu" if precision == "fp32" else "nothing"


def cell(size: str, precision: str, budget: int) -> str:
    """Return the three largest batches of one size, precision and budget in bytes; "-": not even 1."""
    batches = [largest(size, precision, budget, level) for level in (kept_level(precision), "cheap", "layer")]
    return " / ".join(str(batch) if batch else "-" for batch in batches)


def step(size: str, precision: str, budget: int, batch: int) -> subprocess.CompletedProcess[str]:
    """Allocate a batch on the GPU and train one step of it."""
    command = ["--bench", "--json", "--bench-only", "none", "--bench-steps", 1]
    command += ["--config", experiment(size), "--device", "cuda", "--precision", precision]
    command += ["--memory", budget, "--batch-size", batch, "--micro-batches", 1]
    command += ["--recompute", kept_level(precision)]
    return run_engine(path_of_binary(), *command)


def check(size: str, precision: str, card: float, budget: int) -> None:
    """Print what the driver counts for the largest batch; exit if it does not run or one more is taken."""
    batch = largest(size, precision, budget, kept_level(precision))
    if batch == 0:
        return
    done, more = step(size, precision, budget, batch), step(size, precision, budget, batch + 1)
    if done.returncode != 0:
        fail(done, f"{size} {precision} {card:g} GiB, batch {batch}: ")
    if more.returncode != 78:
        complain(f"{size} {precision} {card:g} GiB: batch {batch + 1} was not refused", 1)
    memory = report_of(done)["memory"]
    plan, taken = (memory[key] / 2**20 for key in ("plan_bytes", "taken_bytes"))
    print(f"| {size} | {precision} | {card:g} GiB | {batch} | {plan:.0f} | {taken:.0f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cards", type=listed(number(LARGEST_CARD)), default="8,12,24", help="GiB, with commas"
    )
    parser.add_argument(
        "--reserve", type=number(LARGEST_CARD, zero=True), default=0.75, help="GiB beside the plan"
    )
    sizes = [name for name, size in SIZES.items() if size.context == CONTEXT]
    parser.add_argument(
        "--sizes",
        type=listed(one_of(sizes)),
        default="12M,120M,480M",
        help=f"with commas: {', '.join(sizes)}",
    )
    parser.add_argument(
        "--precisions",
        type=listed(one_of(PRECISIONS)),
        default="fp32,fp16",
        help=f"with commas: {', '.join(PRECISIONS)}",
    )
    parser.add_argument("--check", action="store_true", help="allocate them on this GPU")
    given = parser.parse_args()
    budgets = {card: int((card - given.reserve) * 2**30) for card in given.cards}
    for card, budget in budgets.items():
        if budget <= 0:
            parser.error(f"--cards: {card:g} GiB leave nothing beside the --reserve of {given.reserve:g} GiB")
    print("| size | precision | " + " | ".join(f"{card:g} GiB" for card in budgets) + " |")
    print("|---|---|" + "---|" * len(budgets))
    for size in given.sizes:
        for precision in given.precisions:
            cells = [cell(size, precision, budget) for budget in budgets.values()]
            print(f"| {size} | {precision} | " + " | ".join(cells) + " |")
    if given.check:
        print("\n| size | precision | card | largest batch | plan, MiB | taken, MiB |")
        print("|---|---|---|---|---|---|")
        for size in given.sizes:
            for precision in given.precisions:
                for card, budget in budgets.items():
                    check(size, precision, card, budget)


if __name__ == "__main__":
    ended(main)
