"""UCB1, epoch penalty, coverage bonus: the score by which sources are ranked (Auer et al., 2002).

    UCB(k)  = mean_reward(k) + C sqrt(ln N / n_k)        n_k = 0 ranks before every number
    penalty = 1 / (1 + epochs)                           bonus = 1 + 0.3 (1 - c / 0.5) for coverage c < 0.5
    score   = UCB x penalty x bonus

Only + - * / and sqrt touch the arrays (correctly rounded everywhere), sums are `math.fsum`: the same
bits whatever SIMD unit numpy uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from andrea.curriculum.arms import Arms, Floats
from andrea.curriculum.settings import CurriculumSettings

COVERAGE_GOAL = 0.5
COVERAGE_BONUS = 0.3
REPEATS_SCALE = 5.0  # epochs after which a repeat is worth 1/e under the exponential penalty
MIN_COUNT = 1e-12  # a faded count: its exploration is then very large, never infinite


def epoch_penalty(epochs: Floats, settings: CurriculumSettings) -> Floats:
    """Return 1 / (1 + epochs), or exp(-repeats / 5), repeats = max(0, epochs - 1), by the option."""
    if settings.epoch_penalty == "reciprocal":
        return 1.0 / (1.0 + epochs)
    # math.exp, one by one: numpy's own exp differs between SIMD units.
    return np.array([math.exp(-max(0.0, e - 1.0) / REPEATS_SCALE) for e in epochs.tolist()], dtype=np.float64)


def coverage_bonus(coverage: Floats) -> Floats:
    """Return 1 + 0.3 (1 - c / 0.5) for coverage c below one half, else 1."""
    raised = 1.0 + COVERAGE_BONUS * (1.0 - coverage / COVERAGE_GOAL)
    return np.where(coverage < COVERAGE_GOAL, raised, 1.0)


def exploration_constant(means: Floats, settings: CurriculumSettings) -> float:
    """Return C: the number given, or sqrt(2) x the mean of the arms' mean rewards, at least 1."""
    if not isinstance(settings.ucb_c, str):
        return settings.ucb_c
    known = [mean for mean in means.tolist() if mean == mean]
    if not known:
        return 1.0
    return max(1.0, math.sqrt(2.0) * (math.fsum(known) / len(known)))


@dataclass(frozen=True)
class Scores:
    """All that decides the ranking, one value a source in config order; NaN where n_k = 0."""

    c: float
    total: float
    counts: Floats
    means: Floats
    exploration: Floats
    ucb: Floats
    epochs: Floats
    penalty: Floats
    coverage: Floats
    bonus: Floats
    score: Floats


def score_arms(arms: Arms, settings: CurriculumSettings) -> Scores:
    """Score every source from what is known of it."""
    counts, means = arms.counts_and_means()
    epochs, coverage = arms.epochs(), arms.coverage()
    penalty, bonus = epoch_penalty(epochs, settings), coverage_bonus(coverage)
    c = exploration_constant(means, settings)
    total = math.fsum(counts.tolist())
    log_total = math.log(total) if total > 1.0 else 0.0
    exploration = np.where(means == means, c * np.sqrt(log_total / np.maximum(counts, MIN_COUNT)), np.nan)
    ucb = means + exploration
    factor = penalty * bonus
    # A UCB below 0 exists only with reward_sign "change"; repetition must lower it all the same.
    score = np.where(ucb < 0.0, ucb / np.maximum(factor, MIN_COUNT), ucb * factor)
    return Scores(c, total, counts, means, exploration, ucb, epochs, penalty, coverage, bonus, score)


def rank(score: Floats, eligible: npt.NDArray[np.bool_]) -> list[int]:
    """Return eligible sources, best first: those without a pull, then by score; ties by config order."""
    order = [k for k in range(len(score)) if eligible[k]]
    values = score.tolist()
    order.sort(key=lambda k: (0, 0.0) if values[k] != values[k] else (1, -values[k]))
    return order
