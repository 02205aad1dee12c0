"""What fits in the memory of a GPU: largest batches at context 1024, planned by rule, no GPU needed.

    python bench/fits.py [--cards 8,12,24] [--reserve 0.75] [--sizes 12M,120M,480M] [--precisions fp32,fp16]

Memory of cards and the reserve are GiB. The reserve is what the CUDA context, the kernels, cuBLASLt and the
desktop take beside the plan. Each cell: the largest batch with activations kept (in fp32 all but GELU) / with
LayerNorm and GELU computed again / with whole layers computed again. Prints a Markdown table.
"""

from __future__ import annotations

import argparse

from andrea._core import plan_report
from andrea.train.sizes import SIZES


def experiment(size: str) -> str:
    """Return the path of a named size's experiment."""
    return f"experiments/ANDREA-{size}-TRAIN.json"


def cell(size: str, precision: str, budget: int) -> str:
    """Return the three largest batches of one size, precision and budget in bytes; "-": not even 1."""

    def largest(recompute: str) -> int:
        report = plan_report(
            experiment(size), "cuda", None, budget, precision=precision, batch_size=1, recompute=recompute
        )
        return int(report.data["largest_batch_size"])

    kept = max(largest("nothing"), largest("gelu") if precision == "fp32" else 0)
    return " / ".join(str(batch) if batch else "-" for batch in (kept, largest("cheap"), largest("layer")))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cards", default="8,12,24", help="GiB, with commas")
    parser.add_argument("--reserve", type=float, default=0.75, help="GiB beside the plan")
    parser.add_argument("--sizes", default="12M,120M,480M")
    parser.add_argument("--precisions", default="fp32,fp16")
    given = parser.parse_args()
    cards = [float(card) for card in given.cards.split(",")]
    print("| size | precision | " + " | ".join(f"{card:g} GiB" for card in cards) + " |")
    print("|---|---|" + "---|" * len(cards))
    for size in given.sizes.split(","):
        if SIZES[size].context != 1024:
            parser.error(f"{size} has context {SIZES[size].context}, the table is for 1024")
        for precision in given.precisions.split(","):
            cells = [cell(size, precision, int((card - given.reserve) * 2**30)) for card in cards]
            print(f"| {size} | {precision} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
