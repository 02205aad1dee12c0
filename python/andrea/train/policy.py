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
    """Return the coherence score (0..100, JSON of its parts); None without a tokenizer to make text.

    The lexicon of the training text is read at the first sample: by then the trainer has verified the data.
    """
    from andrea.curriculum.engine_policy import plan_from_effective, score_hook

    plan, _ = plan_from_effective(experiment.effective_json())
    if plan.tokenizer is None:
        return None
    made: list[Score] = []

    def score(text: str) -> tuple[float, str]:
        if not made:
            scorer = plan.scorer()
            assert scorer is not None
            made.append(score_hook(scorer))
        return made[0](text)

    return score
