"""What the curriculum is told: the `curriculum` section of an experiment and its sources, checked.

All faults are reported at once, each with its JSON path and, for a misspelt key or name, the nearest
right one. The keys and their defaults are those of the experiment file; the options after
`background_weight` are off by default.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from andrea.errors import ConfigError

POLICIES = ("ucb1_dice", "uniform", "proportional", "fixed")
MAX_SOURCES = 65_536
MAX_WEIGHT = 1e9  # of floors, caps and fixed weights
MAX_DICE = 64
MAX_SIDES = 65_536

_DICE = re.compile(r"([1-9][0-9]{0,3})d([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class PhaseKind:
    """One row of the phase table: a length in steps and the dice rolled for it, as in "1d3"."""

    steps: int
    dice: str

    @property
    def count_and_sides(self) -> tuple[int, int]:
        """Return how many dice are rolled and how many sides each has."""
        count, sides = self.dice.split("d")
        return int(count), int(sides)


# Given by the mission: three short lengths roll 1d3, the two long ones 1d4.
GIVEN_PHASES = (
    PhaseKind(7, "1d3"),
    PhaseKind(14, "1d3"),
    PhaseKind(21, "1d3"),
    PhaseKind(28, "1d4"),
    PhaseKind(42, "1d4"),
)


@dataclass(frozen=True)
class Source:
    """One data source as the policy sees it: sizes of its training part and its limits.

    `floor` and `cap` bound the relative weight before normalising; `weight` is that of policy `fixed`.
    """

    name: str
    documents: int
    tokens: int
    bytes: int
    floor: float = 0.0
    cap: float = 1.0
    weight: float | None = None


@dataclass(frozen=True)
class CurriculumSettings:
    """The `curriculum` section of an experiment, every key with its default."""

    policy: str = "ucb1_dice"
    ucb_c: float | str = "auto"
    ema_alpha: float = 0.1
    reward_scale: float = 1000.0
    background_weight: float = 0.1
    phases: tuple[PhaseKind, ...] = GIVEN_PHASES
    curriculum_warmup_steps: int = 20_000
    curriculum_warmup_sources: tuple[str, ...] = ()
    # Options, off by default.
    discount: float = 1.0  # of past pulls and rewards at each phase; below 1: discounted UCB
    epoch_penalty: str = "reciprocal"  # or "exponential": exp(-max(0, epochs - 1) / 5)
    reward: str = "row"  # or "phase_mean": one pull a source and phase, by the mean of its rows
    reward_unit: str = "token"  # or "byte": losses become bits a byte first
    reward_sign: str = "gain"  # or "change": a loss that rises counts against its source

    @staticmethod
    def parse(section: Mapping[str, Any]) -> CurriculumSettings:
        """Check a `curriculum` section and fill in defaults; raises ConfigError naming every fault."""
        faults: list[str] = []
        values: dict[str, Any] = {}
        for key, value in section.items():
            check = _CHECKS.get(key)
            if check is None:
                faults.append(f"curriculum.{key}: unknown key{_nearest(key, _CHECKS)}")
                continue
            try:
                values[key] = check(value)
            except ValueError as wrong:
                faults.append(f"curriculum.{key}: {wrong}")
        if faults:
            raise ConfigError("the curriculum cannot be used:\n  " + "\n  ".join(faults))
        return CurriculumSettings(**values)

    def as_json(self) -> dict[str, Any]:
        """Return the section with all its keys, as JSON values."""
        out: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        out["phases"] = [{"steps": kind.steps, "dice": kind.dice} for kind in self.phases]
        out["curriculum_warmup_sources"] = list(self.curriculum_warmup_sources)
        return out


def check_sources(sources: Sequence[Source], settings: CurriculumSettings) -> None:
    """Refuse, all at once, sources that no policy can weigh; raises ConfigError."""
    faults: list[str] = []
    if not sources:
        faults.append("data.sources: at least one source is needed")
    if len(sources) > MAX_SOURCES:
        faults.append(f"data.sources: {len(sources)} sources, at most {MAX_SOURCES} are possible")
    names = [source.name for source in sources]
    seen: set[str] = set()
    for index, source in enumerate(sources):
        where = f"data.sources[{index}] ({source.name})"
        if not source.name or source.name in seen:
            faults.append(f"{where}: every source needs a name of its own")
        seen.add(source.name)
        faults.extend(
            f"{where}: {what} must be at least 1; the source is empty, leave it out"
            for what in ("documents", "tokens", "bytes")
            if getattr(source, what) < 1
        )
        for what in ("floor", "cap"):
            value = getattr(source, what)
            if not 0.0 <= value <= MAX_WEIGHT:
                faults.append(f"{where}.{what}: must lie between 0 and {MAX_WEIGHT:g}, is {value}")
        if source.floor > source.cap:
            faults.append(
                f"{where}: floor {source.floor:g} is above cap {source.cap:g}; lower one or raise the other"
            )
        if source.weight is not None and not 0.0 <= source.weight <= MAX_WEIGHT:
            faults.append(f"{where}.weight: must lie between 0 and {MAX_WEIGHT:g}, is {source.weight}")
    for index, name in enumerate(settings.curriculum_warmup_sources):
        if name not in seen:
            where = f"curriculum.curriculum_warmup_sources[{index}]"
            faults.append(f"{where}: no source is named {name!r}{_nearest(name, names)}")
    if not faults:
        faults.extend(_weightless(sources, settings))
    if faults:
        raise ConfigError("the curriculum cannot be used:\n  " + "\n  ".join(faults))


def _weightless(sources: Sequence[Source], settings: CurriculumSettings) -> Iterable[str]:
    """Yield the reasons why no row could be drawn at all."""
    if settings.policy == "fixed":
        if not any(fixed_weight(source) > 0.0 for source in sources):
            yield "data.sources: policy fixed needs a weight above 0 on at least one source"
        return
    if settings.policy != "ucb1_dice":
        return
    if not any(source.cap > 0.0 for source in sources):
        yield "data.sources: every cap is 0, so no source may be drawn; raise one"
    elif settings.curriculum_warmup_steps > 0 and settings.curriculum_warmup_sources:
        warm = set(settings.curriculum_warmup_sources)
        if not any(source.cap > 0.0 for source in sources if source.name in warm):
            yield "curriculum.curriculum_warmup_sources: every one of them has cap 0; raise one"


def fixed_weight(source: Source) -> float:
    """Return the source's weight under policy `fixed`: as given, else 1."""
    return 1.0 if source.weight is None else source.weight


def _nearest(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""


def _number(low: float, high: float, open_low: bool = False) -> Any:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"must be a number, is {type(value).__name__}")
        inside = (low < value if open_low else low <= value) and value <= high
        if not (math.isfinite(value) and inside):
            raise ValueError(f"must lie between {low:g} and {high:g}, is {value}")
        return float(value)

    return check


def _choice(*known: str) -> Any:
    def check(value: Any) -> str:
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}; is {value!r}")
        return str(value)

    return check


def _ucb_c(value: Any) -> float | str:
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        raise ValueError(f'must be a number or "auto", is {value!r}')
    return float(_number(0.0, 1e12)(value))


def _steps(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"must be a whole number of steps >= 0, is {value!r}")
    return value


def _phases(value: Any) -> tuple[PhaseKind, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError("must be a list of at least one {steps, dice}")
    kinds = []
    for index, item in enumerate(value):
        if isinstance(item, PhaseKind):
            kinds.append(item)
            continue
        if not isinstance(item, Mapping) or set(item) != {"steps", "dice"}:
            raise ValueError(f"[{index}] must have exactly the keys steps and dice")
        steps, dice = item["steps"], item["dice"]
        if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps < 2**31:
            raise ValueError(f"[{index}].steps must be a whole number >= 1, is {steps!r}")
        if isinstance(dice, int) and not isinstance(dice, bool):
            dice = f"1d{dice}"
        match = _DICE.fullmatch(dice) if isinstance(dice, str) else None
        if match is None or int(match[1]) > MAX_DICE or int(match[2]) > MAX_SIDES:
            raise ValueError(
                f'[{index}].dice must be like "1d3" (up to {MAX_DICE} dice of {MAX_SIDES} sides), is {dice!r}'
            )
        kinds.append(PhaseKind(steps, dice))
    return tuple(kinds)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError("must be a list of source names")
    if not all(isinstance(name, str) for name in value):
        raise ValueError("must hold names only")
    return tuple(value)


_CHECKS: dict[str, Any] = {
    "policy": _choice(*POLICIES),
    "ucb_c": _ucb_c,
    "ema_alpha": _number(0.0, 1.0, open_low=True),
    "reward_scale": _number(0.0, 1e12, open_low=True),
    "background_weight": _number(0.0, 1e6),
    "phases": _phases,
    "curriculum_warmup_steps": _steps,
    "curriculum_warmup_sources": _names,
    "discount": _number(0.0, 1.0, open_low=True),
    "epoch_penalty": _choice("reciprocal", "exponential"),
    "reward": _choice("row", "phase_mean"),
    "reward_unit": _choice("token", "byte"),
    "reward_sign": _choice("gain", "change"),
}
