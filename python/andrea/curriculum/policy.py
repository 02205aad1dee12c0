"""The curriculum: which share of the rows each source gets, phase by phase.

A pure function of (state, records, step): the weights of the phase that starts at step s depend on the
records of steps <= s - 2 only, so it may be asked for one step early, and on Philox draws of s itself.
The same object serves the engine in process and the proxy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from andrea.curriculum.arms import Arms, Floats
from andrea.curriculum.philox import StepDraws
from andrea.curriculum.records import PendingRecords
from andrea.curriculum.scoring import rank, score_arms
from andrea.curriculum.settings import CurriculumSettings, Source, check_sources, fixed_weight
from andrea.curriculum.state import read_state, write_state
from andrea.errors import ConfigError

RECORDS_LAG = 2  # a phase at step s knows records of steps <= s - RECORDS_LAG


@dataclass(frozen=True)
class Phase:
    """One decision. `weights` are probabilities `[sources]` in config order, constant within the phase."""

    step: int
    steps: int
    weights: Floats
    relative: Floats  # before normalising: floor <= relative <= cap for every eligible source
    focus: tuple[str, ...]
    die: str  # such as "1d3"; "" where the policy rolls none
    roll: int
    reasons: dict[str, Any]

    @property
    def end(self) -> int:
        """Return the first step after the phase."""
        return self.step + self.steps

    def log_json(self) -> str:
        """Return the decision with its reasons as one line of JSON."""
        return msgspec.json.encode(self.reasons).decode()


class Curriculum:
    """The policy of one run; see `begin_phase` and `record`.

    `config` is the experiment's `curriculum` section (or CurriculumSettings), `sources` the run's sources
    in config order, `seed` that of the run. Raises ConfigError naming every fault.
    """

    def __init__(
        self, config: Mapping[str, Any] | CurriculumSettings, sources: Sequence[Source], seed: int
    ) -> None:
        """Check everything and start with nothing seen."""
        self.settings = config if isinstance(config, CurriculumSettings) else CurriculumSettings.parse(config)
        self.sources = tuple(sources)
        check_sources(self.sources, self.settings)
        self.seed = seed
        self.names = [source.name for source in self.sources]
        self.index = {name: k for k, name in enumerate(self.names)}
        self.phase: Phase | None = None
        self.absent: dict[str, dict[str, Any]] = {}  # what is remembered of sources no longer in the config
        self.arms = Arms(self.settings, self.sources)
        self.pending = PendingRecords(len(self.sources))
        self.notes: list[str] = []  # what `restore` found changed; goes into the next decision's reasons
        self._floors = np.array([source.floor for source in self.sources], dtype=np.float64)
        self._caps = np.array([source.cap for source in self.sources], dtype=np.float64)
        warm = set(self.settings.curriculum_warmup_sources)
        self._drawable = self._caps > 0.0
        self._warm = np.array([name in warm for name in self.names], dtype=np.bool_) & self._drawable
        self._header_due = True
        limits = {"floor": self._floors.tolist(), "cap": self._caps.tolist()}
        self.constant_json = {  # written with every state, so made into text once
            "settings": msgspec.Raw(msgspec.json.encode(self.settings.as_json())),
            "limits": msgspec.Raw(msgspec.json.encode(limits)),
            "name": msgspec.Raw(msgspec.json.encode(self.names)),
        }

    def record(self, step: Any, source: Any, documents: Any, loss: Any) -> None:
        """Take in rows in row order: scalars, or arrays of one length.

        `step` is the row's step (steps never fall), `source` its index or name, `documents` how many
        documents began in the row, `loss` its mean loss as float32, None or NaN where the step was
        skipped. Raises ConfigError for values that cannot be.
        """
        if isinstance(source, str):
            source = self._index_of(source)
        elif isinstance(source, (list, tuple)) and source and isinstance(source[0], str):
            source = [self._index_of(name) for name in source]
        self.pending.add(step, source, documents, loss)

    def begin_phase(self, step: int) -> Phase:
        """Decide the phase that starts at `step`, from records of steps <= `step` - 2.

        Usually `step` is where the last phase ends; a phase may be cut short or held on to, steps only never
        go back.
        """
        if step < 0 or (self.phase is not None and step < self.phase.step):
            after = f"step {self.phase.step} has begun" if self.phase else "steps start at 0"
            raise ConfigError(f"a phase cannot begin at step {step}: {after}")
        rows = self.pending.take_through(step - RECORDS_LAG)
        self.arms.absorb(rows)
        draws = StepDraws(self.seed, step)
        kind = self.settings.phases[draws.below(len(self.settings.phases))]
        reasons: dict[str, Any] = {
            "kind": "phase",
            "step": step,
            "steps": kind.steps,
            "policy": self.settings.policy,
            "rows": len(rows.source),
        }
        if self._header_due:
            reasons["curriculum"] = self.header()
            self._header_due = False
        if self.notes:
            reasons["notes"], self.notes = self.notes, []
        if self.settings.policy == "ucb1_dice":
            phase = self._dice_phase(step, kind.steps, kind.dice, kind.count_and_sides, draws, reasons)
        else:
            phase = self._constant_phase(step, kind.steps, reasons)
        self.phase = phase
        return phase

    def header(self) -> dict[str, Any]:
        """Return what, with the rows, is enough to replay every decision."""
        return {
            "seed": self.seed,
            "settings": self.settings.as_json(),
            "sources": [
                {
                    "name": source.name,
                    "documents": source.documents,
                    "tokens": source.tokens,
                    "bytes": source.bytes,
                    "floor": source.floor,
                    "cap": source.cap,
                    "weight": source.weight,
                }
                for source in self.sources
            ],
        }

    def state(self) -> str:
        """Return all that a bit-exact continuation needs, as JSON text."""
        return write_state(self)

    def restore(self, state: str | bytes) -> None:
        """Go on from `state`; sources are matched by name. Raises CheckpointError if it is not whole.

        A source that is new starts without a pull; one that is gone is kept aside and comes back with
        its numbers if it returns to the config; `notes` tells.
        """
        read_state(self, state)

    def _index_of(self, name: str) -> int:
        if name not in self.index:
            raise ConfigError(f"a record names source {name!r}; the run has {', '.join(self.names)}")
        return self.index[name]

    def _eligible(self, step: int) -> tuple[npt.NDArray[np.bool_], bool]:
        warming = step < self.settings.curriculum_warmup_steps and bool(
            self.settings.curriculum_warmup_sources
        )
        return (self._warm if warming else self._drawable), warming

    def _dice_phase(
        self,
        step: int,
        steps: int,
        dice: str,
        count_and_sides: tuple[int, int],
        draws: StepDraws,
        reasons: dict[str, Any],
    ) -> Phase:
        """Roll for the number of focus sources, take the best by score, floor, cap, normalise."""
        count, sides = count_and_sides
        roll = sum(1 + draws.below(sides) for _ in range(count))
        scores = score_arms(self.arms, self.settings)
        eligible, warming = self._eligible(step)
        focus = rank(scores.score, eligible)[:roll]
        tentative = self.settings.background_weight * scores.penalty * scores.bonus
        tentative[focus] = 1.0
        relative = np.where(eligible, np.minimum(np.maximum(tentative, self._floors), self._caps), 0.0)
        weights = relative / math.fsum(relative.tolist())
        reasons |= {
            "dice": dice,
            "roll": roll,
            "focus": [self.names[k] for k in focus],
            "warm_up": warming,
            "C": scores.c,
            "N": scores.total,
            "arms": {
                "name": self.names,
                "eligible": eligible.tolist(),
                "pulls": scores.counts.tolist(),
                "mean_reward": _null(scores.means),
                "exploration": _null(scores.exploration),
                "ucb": _null(scores.ucb),
                "epochs": scores.epochs.tolist(),
                "penalty": scores.penalty.tolist(),
                "coverage": scores.coverage.tolist(),
                "bonus": scores.bonus.tolist(),
                "score": _null(scores.score),
                "floor": self._floors.tolist(),
                "cap": self._caps.tolist(),
                "relative": relative.tolist(),
                "weight": weights.tolist(),
            },
        }
        return Phase(step, steps, weights, relative, tuple(self.names[k] for k in focus), dice, roll, reasons)

    def _constant_phase(self, step: int, steps: int, reasons: dict[str, Any]) -> Phase:
        """Serve the plain baselines: no floors, caps or warm-up touch them."""
        if self.settings.policy == "uniform":
            raw = [1.0] * len(self.sources)
        elif self.settings.policy == "proportional":
            raw = [float(source.tokens) for source in self.sources]
        else:
            raw = [fixed_weight(source) for source in self.sources]
        relative = np.array(raw, dtype=np.float64)
        weights = relative / math.fsum(raw)
        _, means = self.arms.counts_and_means()
        reasons |= {
            "arms": {
                "name": self.names,
                "pulls": list(self.arms.effective),
                "mean_reward": _null(means),
                "epochs": self.arms.epochs().tolist(),
                "coverage": self.arms.coverage().tolist(),
                "relative": raw,
                "weight": weights.tolist(),
            }
        }
        return Phase(step, steps, weights, relative, (), "", 0, reasons)


def _null(values: Floats) -> list[float | None]:
    """JSON has no NaN: what does not exist yet is null."""
    return [x if x == x else None for x in values.tolist()]
