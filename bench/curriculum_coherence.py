"""How real text fares at the coherence gate: windows of each source's held-out text, scored as samples are.

    python bench/curriculum_coherence.py CONFIG [--tokens 420] [--windows 200]

Prints, by source, the share of windows at or above the experiment's threshold, the lowest and the median.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import msgspec
from arguments import ended, whole

from andrea._core import load_experiment
from andrea.curriculum.experiment import plan_of
from andrea.data.btok import Btok
from andrea.tokenizer import Tokenizer


def main() -> None:
    """Score and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--tokens", type=whole(), default=420)
    parser.add_argument("--windows", type=whole(), default=200, help="at most so many a source")
    arguments = parser.parse_args()
    effective = load_experiment(str(arguments.config)).effective_json()
    settings = msgspec.json.decode(effective)
    scorer = plan_of(effective, Path(), str(arguments.config)).scorer()
    if scorer is None:
        parser.error(f"{arguments.config} names no tokenizer; its text cannot be read without one")
    tokenizer = Tokenizer.load(settings["data"]["tokenizer"])
    threshold = settings["samples"]["threshold"]
    for source in settings["data"]["sources"]:
        ids = Btok(Path(source.get("eval") or source["train"])).ids
        count = max(1, min(arguments.windows, len(ids) // arguments.tokens))
        scores = []
        for k in range(count):
            begin = k * len(ids) // count
            text = tokenizer.decode_bytes(ids[begin : begin + arguments.tokens].astype("int64"))
            scores.append(scorer(text.decode("utf-8", errors="replace")).score)
        passed = sum(score >= threshold for score in scores) / count
        print(
            f"{source['name']:<20}{count:>5} windows  {passed:7.1%} pass  "
            f"lowest {min(scores):5.1f}  median {statistics.median(scores):5.1f}"
        )


if __name__ == "__main__":
    ended(main)
