"""How far a model has come, in the words of its loss: knowing nothing, knowing frequencies, using context."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.dashboard.curves import Floats

SAMPLE_IDS = 4_000_000  # ids looked at for the frequencies, over all sources
MAX_VOCAB = 1 << 24  # 128 MiB of counts; no model of this family comes near
_PIECES = 64  # evenly spread pieces of a source


class Levels:
    """ln V, the entropy of the ids' frequencies, and when the smoothed loss came below each."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self.nothing: float | None = None
        self.frequencies: float | None = None
        self._below: dict[str, int] = {}
        self._seen = 0

    def forget_crossings(self) -> None:
        """Look at the losses from the beginning again."""
        self._below.clear()
        self._seen = 0

    def set_frequencies(self, entropy: float | None) -> None:
        """Take in what `entropy_of_sources` found."""
        self.frequencies = entropy
        self._seen = 0

    def look(self, steps: npt.NDArray[Any], smooth: Floats, vocab_size: Any) -> None:
        """Note where the smoothed loss first came below a level; only new steps are looked at."""
        if isinstance(vocab_size, int) and vocab_size > 1:
            self.nothing = math.log(vocab_size)
        for name in ("nothing", "frequencies"):
            level = getattr(self, name)
            if level is not None and name not in self._below:
                below = smooth[self._seen :] < level
                if below.any():
                    self._below[name] = int(steps[self._seen + int(below.argmax())])
        self._seen = smooth.size

    def as_json(self) -> dict[str, Any]:
        """Return the levels in nats and the first step below each (null: not yet)."""
        return {
            "nothing": self.nothing,
            "frequencies": self.frequencies,
            "below_nothing": self._below.get("nothing"),
            "below_frequencies": self._below.get("frequencies"),
        }


def entropy_of_sources(config: dict[str, Any]) -> float | None:
    """Return the entropy in nats of the ids of all sources, each by its size; None where they are not there.

    An estimate from about SAMPLE_IDS ids in evenly spread pieces: what a model loses that knows how often
    each id comes, and nothing else. The curriculum's mix is not looked at.
    """
    from andrea.data.btok import Btok
    from andrea.errors import Error

    try:
        paths = [Path(source["train"]) for source in config["data"]["sources"]]
        if not all(path.is_file() for path in paths):  # a pipe would hold this reader
            return None
        sources = [Btok(path, verify=False) for path in paths]
        vocab = int(config["model"]["vocab_size"])
        if vocab > MAX_VOCAB:
            return None
        total = sum(source.header.n_tokens for source in sources)
        counts = np.zeros(vocab)
        for source in sources:
            ids = source.ids
            share = len(ids) / total
            piece = max(1, min(len(ids) // _PIECES, int(SAMPLE_IDS * share) // _PIECES))
            found = np.zeros(vocab)
            for begin in np.linspace(0, len(ids) - piece, _PIECES).astype(np.int64).tolist():
                found += np.bincount(ids[begin : begin + piece], minlength=vocab)[:vocab]
            counts += share * found / found.sum()
    except (Error, OSError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    shares = counts[counts > 0]
    return float(-(shares * np.log(shares)).sum())
