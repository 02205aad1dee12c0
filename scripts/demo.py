"""make demo: a small model learns text that every machine with Python has, in about a minute.

Texts, tokenizer and packed sources are made once and kept; each call trains a new run beside the old ones.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from andrea import Engine, Error, Tokenizer, load_experiment, tokenizer
from andrea._core import SignalHandlers, backends_present, parse_experiment
from andrea.cli import explain
from andrea.data.btok import Btok
from andrea.data.demo import collect
from andrea.data.prep import prepare
from andrea.generate.model import TrainedModel, load_model
from andrea.generate.sample import Choice, write_sample
from andrea.train.display import make_display
from andrea.train.held_out import has_a_window
from andrea.train.run import RunOptions, train
from andrea.train.sizes import SIZES
from andrea.train.starter import first_experiment, texts_of

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "experiments" / "recipes" / "demo.json"
NAME = "ANDREA-NANO-DEMO"
SECONDS = 60.0
FEWEST_STEPS, MOST_STEPS = 200, 5000
NATS_BELOW = 0.3  # a full demo must beat guessing by frequency by this much
LAST = 20
PROMPTS = ("", "Return the ")


def make_data(out: Path) -> Path:
    """Make texts, tokenizer and packed sources; returns the experiment that they are for."""
    config = out / f"{NAME}-TRAIN.json"
    if config.exists():
        return config
    print("Text: the standard library of this Python")
    collected = collect(out / "text")
    for one in collected:
        print(f"  {one.name}: {one.documents:,} documents, {one.n_bytes:,} bytes")
    size = SIZES["NANO"]
    print("Tokenizer: 1,024 segments, learned from it")
    texts = texts_of([one.path for one in collected])
    coder = tokenizer.train(
        [tokenizer.Source(text.name, text.documents()) for text in texts], size.segments, allow_fewer=True
    )
    coder.save(str(out / "harris_segments.json"))
    pieces = "|".join(coder.decode([token]) for token in coder.encode("the tokenizer's own pieces"))
    print(f"  {pieces}   ({coder.vocab_size:,} ids)")
    recipe = recipe_for(out)
    print(f"Packed by {shown(recipe)}, as andrea data prep does it:")
    manifest = prepare(recipe, resume=True, say=lambda line: print(f"  {line}"))
    entries = []
    for source in manifest.sources:
        entry = {"name": source.name, "train": f"data/{source.train.file}"}
        if source.eval is not None and has_a_window(source.eval, size.context):
            entry["eval"] = f"data/{source.eval.file}"
        entries.append(entry)
    settings = first_experiment(
        NAME, size, coder.vocab_size, entries, any("eval" in entry for entry in entries)
    )
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return config


def recipe_for(out: Path) -> Path:
    """Return the shipped recipe; for another folder than demo/, a copy in it whose paths lead there."""
    if out.resolve() == ROOT / "demo":
        return RECIPE
    copy = out / "recipe.json"
    copy.write_text(RECIPE.read_text(encoding="utf-8").replace("../../demo/", ""), encoding="utf-8")
    return copy


def shown(path: Path) -> Path:
    """Return a path as it is typed from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def unigram_entropy(experiment: dict[str, Any]) -> float:
    """Return the entropy in nats of the ids of all sources, BOS of each document included.

    This is the loss of a model that knows how often each id comes, and nothing of what stands before it.
    """
    counts = np.zeros(experiment["model"]["vocab_size"], np.int64)
    for source in experiment["data"]["sources"]:
        packed = Btok(Path(source["train"]))
        counts[256] += len(packed)
        for document in range(len(packed)):
            counts += np.bincount(packed[document], minlength=len(counts))
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def with_steps(config: Path, steps: int) -> str:
    """Return the experiment with this many steps, and with what follows from it."""
    experiment = json.loads(config.read_text(encoding="utf-8"))
    experiment["train"] |= {
        "steps": steps,
        "batch_size": 4,  # twice the steps of 8 learn more from the same text
        "smma": 20,
        "lr": {"peak": 3e-3, "min": 3e-4, "warmup_steps": min(30, max(1, steps // 4))},
        "eval_every": -(-steps // 2),
        "eval_batches": 4,
    }
    experiment["samples"] = {"sample_every": -(-steps // 3), "tokens": 48, "prompts": [PROMPTS[1]]}
    return json.dumps(experiment, indent=2) + "\n"


def steps_in_a_minute(config: Path) -> int:
    """Time a few steps on ids that mean nothing; the fastest counts."""
    engine = Engine(parse_experiment(with_steps(config, FEWEST_STEPS), str(config.parent), str(config)))
    settings = json.loads(engine.experiment.effective_json())
    rows = settings["train"]["batch_size"] * settings["train"]["micro_batches"]
    ids = np.random.default_rng(0).integers(0, 256, (rows, settings["model"]["context"] + 1))
    times = []
    for _ in range(6):
        begun = time.perf_counter()
        engine.train_batch(ids)
        times.append(time.perf_counter() - begun)
    return int(round(min(max(SECONDS / min(times), FEWEST_STEPS), MOST_STEPS), -1))


def new_run(out: Path) -> Path:
    """Return the name of a run directory that is not there yet."""
    number = 1
    while (out / f"run-{number}").exists():
        number += 1
    return out / f"run-{number}"


def show_samples(title: str, model: TrainedModel) -> None:
    """Print one sample for each prompt."""
    for prompt in PROMPTS:
        pieces: list[str] = []
        write_sample(model, prompt, Choice(tokens=60), 7, pieces.append)
        text = (prompt + "".join(pieces)).replace("\n", "\n    ")
        print(f"{title}, {prompt!r} goes on as:\n    {text}")


def next_commands(config: Path, run: Path) -> None:
    """Print what to try next."""
    print("\nNext, with the environment that make made (source .venv/bin/activate):")
    again = run.with_name("again")
    for command, what in (
        (f"andrea sample {run} --prompt 'def ' -n 3", "more of it"),
        (f"andrea train {config} --out {again} --seed 7", "another start; Ctrl-C saves, --resume goes on"),
        ("andrea init --size 12M --data YOUR.txt --out mine", "your own text, a larger model"),
        ("andrea doctor", "what this machine has"),
    ):
        print(f"  {command}\n      {what}")


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--steps", type=int, help="instead of about a minute's worth")
    options = parser.parse_args()

    base = make_data(options.out)
    steps = options.steps or steps_in_a_minute(base)
    run = new_run(options.out)
    config = run.with_suffix(".json")  # beside the base, so that relative paths hold
    config.write_text(with_steps(base, steps), encoding="utf-8")
    experiment = load_experiment(str(config))
    settings = json.loads(experiment.effective_json())
    entropy = unigram_entropy(settings)
    print(f"Training on {'the GPU' if 'cuda' in backends_present() else 'the CPU'}: {steps} steps")

    untrained = TrainedModel(Engine(experiment), Tokenizer.load(settings["data"]["tokenizer"]), config)
    show_samples("Before training", untrained)
    del untrained
    display = make_display(settings["model"]["vocab_size"])
    with SignalHandlers():
        code = train(experiment, run, RunOptions(), display)
    if code != 0:
        print(f"Stopped early; go on with: andrea train {config} --out {run} --resume")
        return code
    show_samples("After training", load_model(run))

    losses = [loss for _, loss in json.loads((run / f"{NAME}.loss.json").read_text()) if loss is not None]
    mean = sum(losses[-LAST:]) / len(losses[-LAST:])
    print(f"\nloss at the start               {losses[0]:.3f} nats a token")
    print(f"knowing nothing, ln V           {math.log(settings['model']['vocab_size']):.3f}")
    print(f"knowing only the frequencies    {entropy:.3f}  (entropy of this text's ids)")
    print(f"mean of the last {min(LAST, len(losses))} losses        {mean:.3f}")
    print(f"checkpoint                      {run / f'{NAME}.bin'}")
    limit = entropy - NATS_BELOW if options.steps is None else losses[0] - 1.0
    if mean > limit:
        print(f"The demo failed: the mean of the last losses should be {limit:.3f} or lower", file=sys.stderr)
        return 1
    next_commands(config, run)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        message, code = explain(error)
        print(f"demo: {message}", file=sys.stderr)
        sys.exit(code)
