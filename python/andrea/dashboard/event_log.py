"""A run's `.events.jsonl`: the steps of every attempt with their times, and the events."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.curriculum.runs import DAMAGED
from andrea.dashboard.columns import Columns
from andrea.dashboard.curves import Floats, parse_rows
from andrea.dashboard.lines import MAX_STEP, MAX_TIME, decode, number, whole

WIDTH = 6  # numbers of a step: step, loss, gradient norm, LR, loss scale, Unix time
NAMES = ("step", "loss", "grad_norm", "lr", "loss_scale", "time")
_RATE_STEPS = 20  # the window of the tokens a second


class EventLog:
    """Takes in lines; knows which steps are in force and which a later attempt replaced."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.steps = Columns(**dict.fromkeys(NAMES, np.float64))
        self.events: list[dict[str, Any]] = []  # all but "start" and "end" keep their own fields only
        self.start: dict[str, Any] | None = None
        self.end: dict[str, Any] | None = None
        self.newest = 0.0  # time of the last line
        self.damaged = 0  # lines that were passed over
        self._attempts: list[tuple[int, float]] = []  # first index in `steps`, first step
        self._in_force: tuple[tuple[int, int], dict[str, Floats], dict[str, Floats]] | None = None

    def take(self, lines: bytes) -> None:
        """Take in whole lines, in file order; what is no line of such a log is passed over."""
        numbers: list[bytes] = []
        for line in lines.split(b"\n"):
            if line[:1] == b"[":
                numbers.append(line)
            elif line[:1] == b"{":
                self._take_steps(numbers)
                self._take_event(line)
            elif line.strip():
                self.damaged += 1
        self._take_steps(numbers)

    def _take_steps(self, lines: list[bytes]) -> None:
        if not lines:
            return
        rows = parse_rows(b"\n".join(lines), WIDTH)
        step, time = rows[:, 0], rows[:, 5]
        rows = rows[(step >= 0) & (step <= MAX_STEP) & (time >= 0) & (time <= MAX_TIME)]
        self.damaged += len(lines) - len(rows)
        lines.clear()
        if rows.size:
            values = rows[:, 1:5]  # of the engine, in 32 bits
            values[np.abs(values) > np.finfo(np.float32).max] = np.inf
            self.steps.append(**{name: rows[:, k] for k, name in enumerate(NAMES)})
            self.newest = float(rows[-1, 5])

    def _take_event(self, line: bytes) -> None:
        try:
            event = decode(line)
        except DAMAGED:
            event = None
        if not _is_event(event):
            self.damaged += 1
            return
        kind = event["kind"]
        if kind == "start":
            self.start, self.end = event, None
            self._attempts.append((self.steps.length, float(event["step"])))
        elif kind == "end":
            self.end = event
        self.newest = max(self.newest, float(event["time"]))
        shown = {key: event[key] for key in ("kind", "step", "time", "message")}
        if kind == "end":
            shown["code"] = event.get("code")
        self.events.append(shown)

    def _parts(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return the steps in force and the replaced ones; kept until something is added."""
        key = (self.steps.length, len(self._attempts))
        if self._in_force is None or self._in_force[0] != key:
            mask = np.ones(self.steps.length, dtype=np.bool_)
            limit = np.inf
            ends = [*(begin for begin, _ in self._attempts), self.steps.length][1:]
            step = self.steps["step"]
            for (begin, first), end in zip(reversed(self._attempts), reversed(ends), strict=True):
                mask[begin:end] = step[begin:end] < limit
                limit = min(limit, first)
            if mask.all():
                parts = {name: self.steps[name] for name in NAMES}, {name: np.empty(0) for name in NAMES}
            else:
                parts = (
                    {name: self.steps[name][mask] for name in NAMES},
                    {name: self.steps[name][~mask] for name in NAMES},
                )
            self._in_force = (key, *parts)
        return self._in_force[1], self._in_force[2]

    @property
    def in_force(self) -> dict[str, Floats]:
        """Return the columns of the steps that the newest attempts made, steps rising."""
        return self._parts()[0]

    @property
    def replaced(self) -> dict[str, Floats]:
        """Return the columns of the steps that a later attempt made again, in file order."""
        return self._parts()[1]

    def tokens_per_step(self) -> float:
        """Return rows x context; NaN if no attempt has told."""
        start = self.start or {}
        rows, context = whole(start.get("rows")), whole(start.get("context"))
        return float("nan") if rows is None or context is None else float(rows * context)

    def attempt_edges(self, step: Floats) -> npt.NDArray[np.int64]:
        """Return the indices in `step` (rising) at which another attempt goes on."""
        firsts = np.unique(np.array([first for _, first in self._attempts] or [0.0]))
        edges = np.flatnonzero(np.diff(np.searchsorted(firsts, step, side="right"))) + 1
        return edges.astype(np.int64)

    def rates(self) -> Floats:
        """Return tokens a second for each step in force, over the 20 steps before it within its attempt."""
        step, time = self.in_force["step"], self.in_force["time"]
        begins = np.zeros(step.size, dtype=np.int64)
        edges = self.attempt_edges(step)
        begins[edges] = edges
        back = np.maximum(np.arange(step.size) - _RATE_STEPS, np.maximum.accumulate(begins))
        seconds = time - time[back]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(seconds > 0, (step - step[back]) * self.tokens_per_step() / seconds, np.nan)

    def seconds_per_step(self, window: int = 200) -> float:
        """Return the mean of the last steps of this attempt, pauses included; NaN if there are not two."""
        begin = self._attempts[-1][0] if self._attempts else 0
        begin = max(begin, self.steps.length - window)
        step, time = self.steps["step"][begin:], self.steps["time"][begin:]
        if step.size < 2 or step[-1] <= step[0]:
            return float("nan")
        return float((time[-1] - time[0]) / (step[-1] - step[0]))


def _is_event(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("message"), str)
        and whole(value.get("step")) is not None
        and 0 <= _time(value) <= MAX_TIME
        and (value["kind"] != "end" or whole(value.get("code")) is not None)
    )


def _time(event: dict[str, Any]) -> float:
    time = number(event.get("time"))
    return -1.0 if time is None else time
