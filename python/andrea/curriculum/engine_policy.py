"""The curriculum as the engine's policy, in process: what `andrea train` hands to the trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from andrea.curriculum.experiment import CurriculumPlan, Scorer, plan_of
from andrea.curriculum.policy import Curriculum


class EnginePolicy:
    """A Curriculum with the engine's three calls; the proxy's session makes the same ones."""

    def __init__(self, curriculum: Curriculum) -> None:
        """Drive `curriculum`."""
        self.curriculum = curriculum

    def begin_phase(self, step: int, records: Mapping[str, Any]) -> tuple[int, list[float], str]:
        """Take in the rows since the last call, decide the phase at `step`: (steps, weights, log JSON)."""
        self.curriculum.record(records["step"], records["source"], records["documents"], records["loss"])
        phase = self.curriculum.begin_phase(step)
        return phase.steps, phase.weights.tolist(), phase.log_json()

    def state(self) -> str:
        """Return the policy's state as JSON text."""
        return self.curriculum.state()

    def restore(self, state: str) -> None:
        """Go on from `state`; "null" is that of a policy that keeps none (uniform, proportional, fixed)."""
        if state == "null":
            self.curriculum.notes.append("the run had a constant policy: nothing is known of the sources yet")
        else:
            self.curriculum.restore(state)


def make_policy(plan: CurriculumPlan, sources: Sequence[Mapping[str, Any]], seed: int) -> EnginePolicy:
    """Return the policy of a run; `sources` as the engine lists them (name, n_docs, n_tokens, n_bytes)."""
    sizes = [(s["name"], s["n_docs"], s["n_tokens"], s["n_bytes"]) for s in sources]
    return EnginePolicy(plan.curriculum(sizes, seed))


def plan_from_effective(text: str) -> tuple[CurriculumPlan, int]:
    """Return the plan and the seed of an effective config (JSON; its paths are resolved)."""
    return plan_of(text, Path()), int(msgspec.json.decode(text)["train"]["seed"])


def score_hook(scorer: Scorer) -> Any:
    """Return the trainer's `score(text) -> (score, JSON of its parts)`."""

    def score(text: str) -> tuple[float, str]:
        result = scorer(text)
        return result.score, msgspec.json.encode(result.as_json()).decode()

    return score
