"""The tensors of a model: names, shapes and their places in a .bin (docs/CHECKPOINT.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from andrea.checkpoint import Floats


@dataclass(frozen=True)
class ModelShape:
    """The `model` section of an experiment."""

    d_model: int
    n_head: int
    n_layer: int
    context: int
    vocab_size: int
    tie_embeddings: bool = True

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> ModelShape:
        """Take the shape from the `model` section of an effective experiment."""
        return cls(**{key: model[key] for key in cls.__dataclass_fields__})

    def specs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of each tensor in the order of the file; matrices are [out, in]."""
        d, v = self.d_model, self.vocab_size
        yield "tok_embed", (v, d)
        yield "pos_embed", (self.context, d)
        for index in range(self.n_layer):
            layer = f"layers.{index}."
            for name in ("ln1.gamma", "ln1.beta"):
                yield layer + name, (d,)
            for name in ("w_q", "w_k", "w_v", "w_o"):
                yield layer + name, (d, d)
            for name in ("ln2.gamma", "ln2.beta"):
                yield layer + name, (d,)
            yield layer + "w_1", (4 * d, d)
            yield layer + "w_2", (d, 4 * d)
        yield "lnf.gamma", (d,)
        yield "lnf.beta", (d,)
        if not self.tie_embeddings:
            yield "head", (v, d)

    @property
    def n_params(self) -> int:
        """Return the exact number of parameters."""
        return sum(math.prod(shape) for _, shape in self.specs())

    def split(self, weights: Floats) -> dict[str, Floats]:
        """Return views of flat weights [n_params] by name."""
        tensors, begin = {}, 0
        for name, shape in self.specs():
            end = begin + math.prod(shape)
            tensors[name] = weights[begin:end].reshape(shape)
            begin = end
        return tensors

    def join(self, tensors: Mapping[str, Floats]) -> Floats:
        """Return flat weights [n_params] from tensors by name, which must all be there in their shapes."""
        return np.concatenate([tensors[name].reshape(-1) for name, _ in self.specs()])
