"""Speed of generation at a named size with initial weights: one text alone, and several at once.

Needs no data. Each figure is the best of some rounds, since whatever else runs can only slow it down:

    python bench/generation.py --size 12M --threads 2
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `andrea sample` has it, before the engine is loaded

from arguments import PRECISIONS, ended, whole

from andrea._core import VERSION, Engine, parse_experiment
from andrea.train.sizes import SIZES

TOKENS = 256


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="12M")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "auto"])
    parser.add_argument("--threads", type=whole())
    parser.add_argument("--precision", choices=PRECISIONS)
    parser.add_argument("--batches", type=whole(), nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=whole(), default=5)
    options = parser.parse_args()

    size = SIZES[options.size]
    model = {
        "d_model": size.d_model,
        "n_head": size.n_head,
        "n_layer": size.n_layer,
        "context": size.context,
        "vocab_size": 257 + size.segments,
    }
    experiment = {
        "name": "bench",
        "model": model,
        "train": {"steps": 1, "batch_size": 1},
        "data": {"tokenizer": "none.json", "sources": [{"name": "none", "train": "none.btok"}]},
    }
    for batch in options.batches:
        engine = Engine(
            parse_experiment(json.dumps(experiment)),
            options.device,
            options.threads,
            precision=options.precision,
            training=False,
            sequences=batch,
        )
        seconds = []
        for _ in range(options.rounds):
            begun = time.perf_counter()
            engine.generate_batch([[]] * batch, TOKENS, seeds=list(range(batch)))
            seconds.append(time.perf_counter() - begun)
        best, middle = min(seconds), sorted(seconds)[len(seconds) // 2]
        device = engine.device
        print(
            f"{options.size} ({engine.n_params:,} parameters), {batch} texts x {TOKENS} tokens: "
            f"{batch * TOKENS / best:.0f} tokens/s best, {batch * TOKENS / middle:.0f} in the middle of "
            f"{options.rounds} rounds; {device['name']}, {device['threads']} threads, "
            f"{device['arithmetic']}, andrea {VERSION}, load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    ended(main)
