"""Small models with weights that matter everywhere, as checkpoint and experiment on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from andrea import Engine, Tokenizer
from andrea.export.layout import ModelShape
from andrea.export.source import Trained, load_trained

# Head dims 8, 32, 12; vocabularies 257 + N with N odd and even, none a multiple of 8; both kinds of head.
SHAPES = {
    "tied": ModelShape(32, 4, 2, 64, 0, True),
    "untied": ModelShape(64, 2, 2, 48, 0, False),
    "odd": ModelShape(36, 3, 3, 40, 0, True),
}
WORDS = [
    f" {a}{b}" for a in ("st", "tr", "m", "l", "sh") for b in ("one", "ale", "ore", "ing", "eet", "ow", "ay")
]


@dataclass(frozen=True)
class Model:
    """A checkpoint, its experiment, and an engine that holds it."""

    checkpoint: Path
    config: Path
    engine: Engine
    tokenizer: Tokenizer

    def trained(self) -> Trained:
        """Return it as something to export."""
        return load_trained(self.checkpoint, self.config)


def make_model(folder: Path, which: str, seed: int = 9) -> Model:
    """Write tokenizer, experiment and a checkpoint of random weights to `folder`."""
    segments = WORDS[: {"tied": 30, "untied": 35, "odd": 17}[which]]
    tokenizer = Tokenizer.from_segments(segments)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "harris_segments.json"))
    shape = ModelShape(**{**vars(SHAPES[which]), "vocab_size": tokenizer.vocab_size})
    experiment = {
        "name": f"model-{which}",
        "model": vars(shape),
        "train": {"steps": 10, "batch_size": 2},
        "data": {"tokenizer": "harris_segments.json", "sources": [{"name": "a", "train": "a.btok"}]},
    }
    config = folder / "experiment.json"
    config.write_text(json.dumps(experiment))
    engine = Engine(str(config), "cpu", 1)
    rng = np.random.default_rng(seed)
    drawn = {
        # Wide enough that GELU bends, attention chooses, and beta is no zero.
        name: rng.normal(1.0 if name.endswith("gamma") else 0.0, 0.25, value.shape).astype(np.float32)
        for name, value in engine.parameters().items()
    }
    engine.load_parameters(drawn)
    checkpoint = folder / "model.bin"
    engine.save(checkpoint)
    return Model(checkpoint, config, engine, tokenizer)
