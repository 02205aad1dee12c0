"""The curriculum against plain mixing, on real sources: same experiment, same tokens, several seeds.

    python bench/curriculum_compare.py CONFIG --out DIR [--seeds 1,2,3] [--steps N] [--device auto]
        [--only NAME[,NAME...]] [--floors keep|drop] [--json FILE]

Each variant trains the experiment CONFIG (its sources need `eval` files) with another `curriculum` section;
at the end every source's held-out bits per byte are read from the run's log. The table shows the mean over
sources and the worst source, mean +- standard deviation over the seeds, and how many documents of each
source were read how often. Runs that are finished already are not repeated, so it can be broken off.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from arguments import complain, ended, listed, one_of, output_file, read_experiment, whole

# What is compared; "ucb1_dice" is the policy as given.
VARIANTS: dict[str, dict[str, Any]] = {
    "ucb1_dice": {"policy": "ucb1_dice"},
    "uniform": {"policy": "uniform"},
    "proportional": {"policy": "proportional"},
    "dice, phase_mean": {"policy": "ucb1_dice", "reward": "phase_mean"},
    "dice, signed": {"policy": "ucb1_dice", "reward_sign": "change"},
    "dice, byte": {"policy": "ucb1_dice", "reward_unit": "byte"},
    "dice, signed byte": {"policy": "ucb1_dice", "reward_sign": "change", "reward_unit": "byte"},
    "dice, background 0.5": {"policy": "ucb1_dice", "background_weight": 0.5},
}


def variant_config(base: dict[str, Any], folder: Path, name: str, seed: int, steps: int, floors: str) -> Path:
    """Write the experiment of one run; paths become absolute, samples and the gate are off."""
    value = json.loads(json.dumps(base))
    value["train"] |= {"seed": seed, "steps": steps, "eval_every": steps}
    old = value.get("curriculum", {})
    warm_up = {k: old[k] for k in ("curriculum_warmup_steps", "curriculum_warmup_sources") if k in old}
    value["curriculum"] = {"curriculum_warmup_steps": 0, **warm_up, **VARIANTS[name]}
    value["samples"] = {"sample_every": 0}
    value["checkpoint"] = {"every": steps, "keep_last": 1}
    if floors == "drop":
        for source in value["data"]["sources"]:
            source.pop("floor", None)
            source.pop("cap", None)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "experiment.json"
    path.write_text(json.dumps(value, indent=1))
    return path


def absolute(base: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return the experiment with its data paths made absolute."""
    value: dict[str, Any] = json.loads(json.dumps(base))
    data = value["data"]
    if data.get("tokenizer"):
        data["tokenizer"] = str((directory / data["tokenizer"]).resolve())
    for source in data["sources"]:
        for part in ("train", "eval"):
            if source.get(part):
                source[part] = str((directory / source[part]).resolve())
    return value


def run(config: Path, folder: Path, name: str, steps: int, device: str) -> dict[str, Any]:
    """Train unless it is done; return the last evaluation and the rows drawn from each source."""
    log = folder / "run" / f"{name}.rows.jsonl"
    result = read_log(log, steps) if log.exists() else None
    if result is None:
        command = [sys.executable, "-m", "andrea", "train", str(config), "--out", str(folder / "run")]
        more = ["--resume"] if any(folder.glob("run/step_*.bin")) else []
        done = subprocess.run([*command, "--device", device, "--quiet", *more], check=False)
        if done.returncode != 0:
            complain(f"{folder}: andrea train ended with exit code {done.returncode}", 1)
        result = read_log(log, steps)
    if result is None:
        complain(f"{log}: no evaluation at step {steps}; do the sources have eval files?", 1)
    return result


def read_log(path: Path, steps: int) -> dict[str, Any] | None:
    """Return bits per byte by source at `steps`, rows and documents drawn; None if it is not there yet."""
    found: dict[str, float] | None = None
    rows: dict[str, int] = {}
    documents: dict[str, int] = {}
    with path.open() as lines:
        for line in lines:
            value = json.loads(line)
            if "eval" in value and value["step"] == steps:
                found = {name: figures["bits_per_byte"] for name, figures in value["eval"].items()}
            elif "row" in value:
                rows[value["source"]] = rows.get(value["source"], 0) + 1
                documents[value["source"]] = documents.get(value["source"], 0) + value["documents"]
    return None if found is None else {"bits_per_byte": found, "rows": rows, "documents": documents}


def spread_of(figures: np.ndarray[Any, Any]) -> float:
    """Return the standard deviation over seeds; 0 for a single one."""
    return float(figures.std(ddof=1)) if len(figures) > 1 else 0.0


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return mean and worst bits per byte with their spread over seeds, by variant, and each source's."""
    out: dict[str, Any] = {}
    for name, runs in results.items():
        sources = list(runs[0]["bits_per_byte"])
        table = np.array([[r["bits_per_byte"][source] for source in sources] for r in runs])
        rows = {source: float(np.mean([r["rows"].get(source, 0) for r in runs])) for source in sources}
        total = sum(rows.values())
        means, worst = table.mean(axis=1), table.max(axis=1)
        out[name] = {
            "mean": float(means.mean()),
            "mean spread": spread_of(means),
            "worst": float(worst.mean()),
            "worst spread": spread_of(worst),
            "sources": dict(zip(sources, table.mean(axis=0).tolist(), strict=True)),
            "share": {source: count / total for source, count in rows.items()},
        }
    return out


def show(figures: dict[str, Any]) -> None:
    """Print bits per byte as a table, then the shares."""
    sources = list(next(iter(figures.values()))["sources"])
    print(f"{'bits per byte':<24}{'mean':>17}{'worst':>17}" + "".join(f"{s[:11]:>12}" for s in sources))
    for name, row in sorted(figures.items(), key=lambda item: item[1]["mean"]):
        mean = f"{row['mean']:.4f} +- {row['mean spread']:.4f}"
        worst = f"{row['worst']:.4f} +- {row['worst spread']:.4f}"
        print(f"{name:<24}{mean:>17}{worst:>17}" + "".join(f"{row['sources'][s]:>12.4f}" for s in sources))
    print(f"{'share of rows':<58}" + "".join(f"{s[:11]:>12}" for s in sources))
    for name, row in figures.items():
        print(f"{name:<58}" + "".join(f"{row['share'][s]:>12.3f}" for s in sources))


def main() -> None:
    """Run all variants and seeds, then print and store the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path, help="an experiment whose sources have eval files")
    parser.add_argument("--out", type=Path, required=True, help="where the runs go")
    parser.add_argument("--seeds", type=listed(whole(0)), default="1,2,3", help="with commas")
    parser.add_argument("--steps", type=whole(), help="instead of the experiment's")
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    spelled = {name.replace(", ", "/"): name for name in VARIANTS}
    parser.add_argument(
        "--only",
        type=listed(one_of(list(spelled))),
        default=",".join(spelled),
        help="variants, comma and no space between: ucb1_dice,uniform",
    )
    parser.add_argument("--floors", choices=("keep", "drop"), default="keep")
    parser.add_argument("--json", type=output_file, help="write the figures there")
    arguments = parser.parse_args()
    base = read_experiment(arguments.config)
    if not any(source.get("eval") for source in base.get("data", {}).get("sources", [])):
        parser.error(f"{arguments.config}: no source has an eval file; name one at data.sources[].eval")
    base = absolute(base, arguments.config.parent)
    steps = arguments.steps or base["train"]["steps"]
    names = [name for spelling, name in spelled.items() if spelling in arguments.only]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in arguments.seeds:  # seed by seed, so that a run broken off still compares all variants
        for name in names:
            folder = arguments.out / f"{name.replace(', ', '-').replace(' ', '_')}-seed{seed}"
            config = variant_config(base, folder, name, seed, steps, arguments.floors)
            results[name].append(run(config, folder, base["name"], steps, arguments.device))
            mean = np.mean(list(results[name][-1]["bits_per_byte"].values()))
            print(f"{name}, seed {seed}: {mean:.4f} bits per byte", flush=True)
    figures = summary(results)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    ended(main)
