"""A run's `.rows.jsonl`: the losses of rows by source, the decisions of the curriculum, the evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from andrea.curriculum.runs import DAMAGED
from andrea.dashboard.columns import Columns
from andrea.dashboard.curves import bucket_starts
from andrea.dashboard.lines import MAX_STEP, decode, number

MAX_SOURCES = 1000  # more names than this come from no run


_Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]


class _Line(msgspec.Struct):
    step: _Step | None = None
    source: str | None = None
    documents: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    loss: float | None = None
    phase: msgspec.Raw = msgspec.Raw(b"")
    eval: dict[str, Any] | None = None
    mean_bits_per_byte: float | None = None


@dataclass
class Decision:
    """A phase: its place, dice, focus, and figures by source name."""

    step: int
    steps: int
    policy: str
    dice: str
    roll: int
    warm_up: bool
    focus: list[str]
    arms: dict[str, list[Any]] = field(repr=False)  # "name" and columns beside it
    weight: dict[str, float] = field(repr=False)  # shares, summing to 1


class RowsLog:
    """Takes in lines; gives losses, drawn and asked-for shares by source over any range of steps."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.names: list[str] = []
        self.rows = Columns(step=np.int64, source=np.int32, documents=np.int32, loss=np.float32)
        self.decisions: list[Decision] = []
        self.evals: list[dict[str, Any]] = []
        self.damaged = 0  # lines that were passed over
        self._index: dict[str, int] = {}
        self._decoder = msgspec.json.Decoder(_Line)

    def take(self, lines: bytes) -> None:
        """Take in whole lines, in file order; lines that are none of such a log are passed over."""
        try:
            found: list[_Line] = self._decoder.decode_lines(lines)
        except DAMAGED:
            found = []
            for text in lines.split(b"\n"):
                try:
                    found.append(self._decoder.decode(text))
                except DAMAGED:
                    self.damaged += bool(text.strip())
        for line in found:
            if bytes(line.phase) and line.step is not None:
                self._take_decision(bytes(line.phase), line.step)
            elif line.eval is not None and line.step is not None:
                self.evals.append(
                    {"step": line.step, "mean": line.mean_bits_per_byte, "sources": _figures(line.eval)}
                )
        rows = [line for line in found if line.source is not None and line.step is not None]
        if rows:
            with np.errstate(over="ignore"):  # what no float holds is infinite
                losses = np.array([np.nan if line.loss is None else line.loss for line in rows])
                losses = losses.astype(np.float32)
            self.rows.append(
                step=[line.step or 0 for line in rows],
                source=[self._number(line.source) for line in rows],
                documents=[line.documents for line in rows],
                loss=losses,
            )

    def _number(self, name: str | None) -> int:
        name = name or ""
        if name not in self._index:
            if len(self.names) >= MAX_SOURCES:
                return MAX_SOURCES - 1
            self._index[name] = len(self.names)
            self.names.append(name)
        return self._index[name]

    def _take_decision(self, text: bytes, step: int) -> None:
        try:
            value = decode(text)
            decision = _decision(value, step) if isinstance(value, dict) else None
        except (*DAMAGED, KeyError, TypeError, OverflowError):
            self.damaged += 1
            return
        if decision is None:
            return
        for name in decision.weight:
            self._number(name)
        # A resume under other rules decides anew from its step on.
        while self.decisions and self.decisions[-1].step >= decision.step:
            self.decisions.pop()
        self.decisions.append(decision)

    def by_bucket(self, low: float, high: float, buckets: int, log: bool) -> dict[str, Any]:
        """Return, for at most `buckets` equal pieces of the steps [low, high], figures by source.

        `step` holds the middle of each piece; `loss` the mean of its rows (null: none), `drawn` their share,
        `weight` the share asked for, `focus` the share of steps in focus; each `[sources][pieces]`.
        """
        every = self.rows["step"]
        begin, end = np.searchsorted(every, low, side="left"), np.searchsorted(every, high, side="right")
        step, source = every[begin:end], self.rows["source"][begin:end]
        loss = self.rows["loss"][begin:end]
        count = len(self.names)
        if step.size == 0 or count == 0:
            return {"sources": self.names, "step": [], "loss": [], "drawn": [], "weight": [], "focus": []}
        starts = bucket_starts(step, max(1, min(buckets, int(step[-1] - step[0]) + 1)), log)
        pieces = starts.size
        piece = np.repeat(np.arange(pieces), np.diff(np.append(starts, step.size)))
        first, last = step[starts], step[np.append(starts[1:], step.size) - 1]
        cell = source.astype(np.int64) * pieces + piece
        good = np.isfinite(loss)
        shape = (count, pieces)
        sums = np.bincount(cell[good], weights=loss[good], minlength=count * pieces).reshape(shape)
        known = np.bincount(cell[good], minlength=count * pieces).reshape(shape)
        drawn = np.bincount(cell, minlength=count * pieces).reshape(shape)
        weight, focus = self._asked_for(first, last)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(known > 0, sums / known, np.nan)
            shares = drawn / drawn.sum(axis=0, keepdims=True)
        return {
            "sources": self.names,
            "step": ((first + last) / 2).tolist(),
            "loss": _rounded(means),
            "drawn": _rounded(shares),
            "weight": _rounded(weight),
            "focus": _rounded(focus),
        }

    def _asked_for(
        self, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return weight and focus `[sources][pieces]`: means over the phases in a piece, by their steps."""
        weight = np.full((len(self.names), first.size), np.nan)
        focus = np.full((len(self.names), first.size), np.nan)
        if not self.decisions:
            return weight, focus
        begins = np.array([decision.step for decision in self.decisions])
        for k in range(first.size):
            low, high = int(first[k]), int(last[k]) + 1
            at = max(0, int(np.searchsorted(begins, low, side="right")) - 1)
            total = 0
            weights, focused = np.zeros(len(self.names)), np.zeros(len(self.names))
            while at < len(self.decisions) and begins[at] < high:
                decision = self.decisions[at]
                until = begins[at + 1] if at + 1 < len(begins) else high
                steps = int(min(high, until) - max(low, decision.step))
                if steps > 0:
                    total += steps
                    for name, share in decision.weight.items():
                        weights[self._index[name]] += steps * share
                    for name in decision.focus:
                        if name in self._index:
                            focused[self._index[name]] += steps
                at += 1
            if total:
                weight[:, k], focus[:, k] = weights / total, focused / total
        return weight, focus

    def arms_over_time(self, key: str, low: float, high: float, most: int) -> dict[str, Any]:
        """Return one figure of every decision in [low, high] (at most `most`, evenly chosen), by source."""
        shown = [d for d in self.decisions if low <= d.step <= high and key in d.arms]
        if len(shown) > most:
            shown = [shown[i * len(shown) // most] for i in range(most - 1)] + shown[-1:]
        values: dict[str, list[Any]] = {name: [None] * len(shown) for name in self.names}
        for k, decision in enumerate(shown):
            for name, value in zip(decision.arms["name"], decision.arms[key], strict=False):
                if name in values and _plain(value):
                    values[name][k] = value
        return {"sources": self.names, "step": [d.step for d in shown], key: list(values.values())}

    def dice(self, low: float, high: float, most: int) -> list[dict[str, Any]]:
        """Return step, length, dice, roll and focus of the last `most` decisions in [low, high]."""
        shown = [d for d in self.decisions if d.dice and low <= d.step + d.steps and d.step <= high]
        return [
            {"step": d.step, "steps": d.steps, "dice": d.dice, "roll": d.roll, "focus": d.focus}
            for d in shown[-most:]
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return one row a source: its last decision, what was drawn under it, losses, documents."""
        if not self.decisions and not self.names:
            return []
        last = self.decisions[-1] if self.decisions else None
        step, source = self.rows["step"], self.rows["source"]
        begin = int(np.searchsorted(step, last.step)) if last else 0
        # A constant policy has one phase for ever; the share of its last thousand rows tells more.
        begin = max(begin, step.size - 1000) if last and len(self.decisions) == 1 else begin
        counts = np.bincount(source[begin:], minlength=len(self.names)).astype(np.float64)
        shares = counts / counts.sum() if counts.sum() else counts * np.nan
        recent = max(0, step.size - 20_000)
        losses, where = self.rows["loss"][recent:], source[recent:]
        table = []
        for k, name in enumerate(self.names):
            mine = losses[where == k]
            mine = mine[np.isfinite(mine)][-50:]
            row: dict[str, Any] = {
                "source": name,
                "loss": float(mine.mean()) if mine.size else None,
                "drawn": float(shares[k]) if shares.size and np.isfinite(shares[k]) else None,
                "weight": last.weight.get(name) if last else None,
                "focus": bool(last and name in last.focus),
            }
            if last and name in last.arms.get("name", []):
                place = last.arms["name"].index(name)
                for key in ("floor", "relative", "mean_reward", "epochs", "coverage", "score", "pulls"):
                    column = last.arms.get(key, [])
                    if place < len(column) and _plain(column[place]):
                        row[key] = column[place]
                total = sum(float(x) for x in last.arms.get("relative", []) if _plain(x))
                if "floor" in row and total > 0:
                    row["floor_share"] = row["floor"] / total
            table.append(row)
        return table


def _decision(value: dict[str, Any], step: int) -> Decision | None:
    """Read the reasons of a decision, of the curriculum or of a constant policy."""
    arms = value.get("arms")
    if isinstance(arms, dict) and isinstance(arms.get("name"), list):
        arms = {**arms, "name": list(map(str, arms["name"]))}
        weights = dict(zip(arms["name"], map(float, arms["weight"]), strict=True))
    elif isinstance(value.get("weights"), dict):
        weights = {str(name): float(weight) for name, weight in value["weights"].items()}
        arms = {"name": list(weights)}
    else:
        return None
    total = sum(weights.values())
    if not total > 0:
        return None
    return Decision(
        step=step,
        steps=int(value.get("steps", 0)),
        policy=str(value.get("policy", "")),
        dice=str(value.get("dice", "")),
        roll=int(value.get("roll", 0)),
        warm_up=bool(value.get("warm_up", False)),
        focus=[str(name) for name in value.get("focus", [])],
        arms={key: column for key, column in arms.items() if isinstance(column, list)},
        weight={name: weight / total for name, weight in weights.items()},
    )


def _figures(sources: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the numbers of an evaluation by source."""
    return {
        name: {key: value for key, value in figures.items() if _plain(value)}
        for name, figures in sources.items()
        if isinstance(figures, dict)
    }


def _plain(value: Any) -> bool:
    return number(value) is not None


def _rounded(values: npt.NDArray[np.float64]) -> list[list[float]]:
    result: list[list[float]] = np.round(values, 5).tolist()
    return result
