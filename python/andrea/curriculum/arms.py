"""What the curriculum remembers of each source: EMA, rewards, pulls, documents consumed.

Reward of one row (given): `reward = max(0, EMA_old - loss) * 1000`, then `EMA = 0.9 EMA_old + 0.1 loss`;
the first loss seeds the EMA: reward 0, one pull. Only the pulled source moves; rows count in row order.
A skipped row (loss not finite) still consumes its documents, but is no pull.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from andrea.curriculum.records import Rows
from andrea.curriculum.settings import CurriculumSettings, Source

Floats = npt.NDArray[np.float64]


def ema_step(ema: float, loss: float, alpha: float = 0.1, scale: float = 1000.0) -> tuple[float, float]:
    """Return (reward, new EMA) of one row with `loss` when the source's EMA was `ema`."""
    return max(0.0, ema - loss) * scale, (1.0 - alpha) * ema + alpha * loss


class Arms:
    """The statistics of all sources, in config order; plain numbers, so that every bit is reproducible."""

    def __init__(self, settings: CurriculumSettings, sources: Sequence[Source]) -> None:
        """Start with nothing seen."""
        count = len(sources)
        self.settings = settings
        self.ema: list[float | None] = [None] * count
        self.reward_sum = [0.0] * count
        self.pulls = [0] * count  # all pulls of the source's life
        self.effective = [0.0] * count  # pulls as UCB counts them: they fade if discount < 1
        self.consumed = [0] * count
        self.documents = [source.documents for source in sources]
        # Loss in nats a target -> bits a byte of the source's text, as the engine's evaluation does it.
        self._unit = [
            (source.tokens + source.documents) / (source.bytes * math.log(2.0)) for source in sources
        ]

    def absorb(self, rows: Rows) -> None:
        """Take in the rows of one phase, in row order."""
        settings, count = self.settings, len(self.documents)
        # Sums of whole numbers below 2^53, so exact in float64.
        begun = np.bincount(rows.source, weights=rows.documents, minlength=count).tolist()
        self.consumed = [was + int(more) for was, more in zip(self.consumed, begun, strict=True)]
        if settings.discount < 1.0:
            self.effective = [n * settings.discount for n in self.effective]
            self.reward_sum = [r * settings.discount for r in self.reward_sum]
        kept = rows.loss == rows.loss  # false where NaN
        sources, losses = rows.source[kept].tolist(), rows.loss[kept].tolist()
        if settings.reward_unit == "byte":
            losses = [x * self._unit[k] for k, x in zip(sources, losses, strict=True)]
        if settings.reward == "phase_mean":
            sources, losses = _means(sources, losses)
        alpha, scale, ema, rewards = settings.ema_alpha, settings.reward_scale, self.ema, self.reward_sum
        keep, gains_only = 1.0 - alpha, settings.reward_sign == "gain"
        # `ema_step`, inlined: this loop is what the controller costs.
        for k, x in zip(sources, losses, strict=True):
            old = ema[k]
            if old is None:
                ema[k] = x
                continue
            gain = old - x
            if gain > 0.0 or not gains_only:
                rewards[k] += gain * scale
            ema[k] = keep * old + alpha * x
        pulled = np.bincount(sources, minlength=count).tolist() if sources else [0] * count
        self.pulls = [was + more for was, more in zip(self.pulls, pulled, strict=True)]
        self.effective = [was + more for was, more in zip(self.effective, pulled, strict=True)]

    def counts_and_means(self) -> tuple[Floats, Floats]:
        """Return pulls as UCB counts them and mean rewards, NaN where a source has no pull."""
        means = [r / n if n > 0.0 else math.nan for r, n in zip(self.reward_sum, self.effective, strict=True)]
        return np.array(self.effective, dtype=np.float64), np.array(means, dtype=np.float64)

    def epochs(self) -> Floats:
        """Return documents consumed over the source's life / documents, never reset."""
        return np.array(self.consumed, dtype=np.float64) / np.array(self.documents, dtype=np.float64)

    def coverage(self) -> Floats:
        """Return the share of distinct documents seen: exact, since an epoch draws without replacement."""
        distinct = [min(c, d) for c, d in zip(self.consumed, self.documents, strict=True)]
        return np.array(distinct, dtype=np.float64) / np.array(self.documents, dtype=np.float64)


def _means(sources: list[int], losses: list[float]) -> tuple[list[int], list[float]]:
    """One pull for each source that had rows, in config order: the mean of its row losses."""
    by_source: dict[int, list[float]] = {}
    for k, x in zip(sources, losses, strict=True):
        by_source.setdefault(k, []).append(x)
    order = sorted(by_source)
    return order, [math.fsum(by_source[k]) / len(by_source[k]) for k in order]
