"""What the trainer asks of Python: the curriculum's policy, and a score for each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from andrea._core import Experiment

Score = Callable[[str], tuple[float, str]]


def make_policy(experiment: Experiment, sources: Sequence[Mapping[str, Any]]) -> Any:
    """Return the bandit, or None where the policy is one of the constant ones, which the engine has."""
    from andrea.curriculum.engine_policy import make_policy as bandit
    from andrea.curriculum.engine_policy import plan_from_effective

    plan, seed = plan_from_effective(experiment.effective_json())
    return bandit(plan, sources, seed) if plan.settings.policy == "ucb1_dice" else None


def make_scorer(experiment: Experiment) -> Score | None:
    """Return the coherence score (0..100, JSON of its parts); None without a tokenizer to make text."""
    from andrea.curriculum.engine_policy import plan_from_effective, score_hook

    plan, _ = plan_from_effective(experiment.effective_json())
    scorer = plan.scorer()
    if scorer is None:
        return None
    hook: Score = score_hook(scorer)
    return hook
