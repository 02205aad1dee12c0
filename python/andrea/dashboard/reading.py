"""One run as a dashboard sees it: its files followed, its figures ready at any resolution."""

from __future__ import annotations

import hashlib
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.curriculum.runs import DAMAGED, Run, newest_states
from andrea.dashboard.columns import Columns
from andrea.dashboard.curves import Floats, parse_rows, smma, thin_out
from andrea.dashboard.event_log import EventLog
from andrea.dashboard.levels import Levels
from andrea.dashboard.lines import MAX_STEP, decode, left_out, number, whole
from andrea.dashboard.liveness import state_of
from andrea.dashboard.rows_log import RowsLog
from andrea.dashboard.samples import Samples
from andrea.dashboard.tail import FollowedFile, open_regular

SERIES = ("loss", "smma", "grad_norm", "lr", "loss_scale", "rate", "replaced", "skips")
AXES = ("step", "time", "tokens")
DEFAULT_SMMA = 100
MAX_STATE = 64 << 20


def id_of(run: Run) -> str:
    """Return a name that is stable over restarts, and nothing that a client could walk a path with."""
    return hashlib.sha256(str(run.loss.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:16]


class RunReader:
    """Follows the files of a run. All public calls may come from any thread."""

    def __init__(self, run: Run) -> None:
        """Follow `run`; nothing is read before `poll`."""
        self.run = run
        self.id = id_of(run)
        self.lock = threading.RLock()
        self.version = 0
        self.loading = True
        self.losses = Columns(step=np.int64, loss=np.float64)
        self.log, self.rows, self.samples = EventLog(), RowsLog(), Samples()
        self.levels = Levels()
        self._files = {
            "loss": FollowedFile(run.loss),
            "samples": FollowedFile(run.samples),
            "events": FollowedFile(run.directory / f"{run.name}.events.jsonl"),
            "rows": FollowedFile(run.rows),
        }
        self._smooth: dict[float, Columns] = {}
        self._config: dict[str, Any] | None = None
        self._config_tried = False
        self._state = ""
        self._damaged_losses = 0
        self.samples.begin_anew(run)

    # ---- reading

    def poll(self, everything: bool = True) -> bool:
        """Take in what is new, one block a file; returns whether anything changed.

        With `everything` false only losses are read, so that the main curve is there at once.
        """
        changed, waiting = False, False
        for kind, file in self._files.items():
            if kind != "loss" and not everything:
                break
            tail = file.poll()
            with self.lock:
                if tail.anew:
                    self._forget(kind)
                    changed = True
                if tail.lines:
                    self._take(kind, tail.lines)
                    changed = waiting = True
        state = self.state
        with self.lock:
            if changed or state != self._state or (everything and self.loading and not waiting):
                self.version += 1
                changed = True
            self._state = state
            if not waiting and everything:
                self.loading = False
        return changed

    @property
    def behind(self) -> int:
        """Return the bytes still to be read."""
        return sum(max(0, file.behind - 1) for file in self._files.values())

    def _take(self, kind: str, lines: bytes) -> None:
        if kind == "loss":
            rows = parse_rows(lines, 2)
            rows = rows[(rows[:, 0] >= 0) & (rows[:, 0] <= MAX_STEP)]
            self._damaged_losses += left_out(lines, len(rows))
            with np.errstate(over="ignore"):  # what no float holds is infinite
                losses = rows[:, 1].astype(np.float32)
            self.losses.append(step=rows[:, 0], loss=losses)
        elif kind == "events":
            self.log.take(lines)
        elif kind == "rows":
            self.rows.take(lines)
        else:
            self.samples.take(lines)

    def _forget(self, kind: str) -> None:
        if kind == "loss":
            self.losses.clear()
            self._damaged_losses = 0
            self._smooth.clear()
            self.levels.forget_crossings()
        elif kind == "events":
            self.log = EventLog()
        elif kind == "rows":
            self.rows = RowsLog()
        else:
            self.samples.begin_anew(self.run)

    # ---- what it tells

    @property
    def state(self) -> str:
        """Return running, finished, stopped, gate, failed, dead, silent, unknown, or gone with its files."""
        with self.lock:
            if self.losses.length == 0 and not any(self._files[kind].there for kind in ("loss", "events")):
                return "gone"
            return state_of(self.run.directory, self.log.start, self.log.end, self.log.newest, self.steps)

    @property
    def steps(self) -> int | None:
        """Return the steps that the experiment asks for; None where that is not known."""
        return whole(self.setting("train", "steps"))

    @property
    def damaged(self) -> int:
        """Return how many lines of the run's files were cut or damaged, and left out."""
        return self._damaged_losses + self.log.damaged + self.rows.damaged + self.samples.damaged

    @property
    def name(self) -> str:
        """Return the run's name as text, whatever bytes its files are named with."""
        return _text(self.run.name)

    @property
    def config(self) -> dict[str, Any]:
        """Return the effective experiment, from the event log or a state file; {} if there is neither."""
        start = self.log.start
        if start is not None and isinstance(start.get("config"), dict):
            config: dict[str, Any] = start["config"]
            return config
        if self._config is None and not (self._config_tried and self.loading):
            self._config_tried = True
            self._config = _config_of_state(self.run.directory)
        return self._config or {}

    def setting(self, *path: str, default: Any = None) -> Any:
        """Return a value of the experiment by its path."""
        value: Any = self.config
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return default
            value = value[key]
        return value

    @property
    def smma_steps(self) -> float:
        """Return the experiment's `train.smma`."""
        value = number(self.setting("train", "smma"))
        return value if value is not None and value >= 1 else DEFAULT_SMMA

    def smoothed(self, n: float | None = None) -> Floats:
        """Return the SMMA of the losses over `n` steps (the experiment's if None)."""
        with self.lock:
            n = float(n or self.smma_steps)
            if n not in self._smooth:
                if len(self._smooth) >= 4:
                    self._smooth.pop(next(iter(self._smooth)))
                self._smooth[n] = Columns(value=np.float64)
            column = self._smooth[n]
            if column.length < self.losses.length:
                before = float(column["value"][-1]) if column.length else math.nan
                column.append(value=smma(self.losses["loss"][column.length :], n, before))
            return column["value"]

    def summary(self) -> dict[str, Any]:
        """Return everything that is shown at one glance."""
        with self.lock:
            step = int(self.losses["step"][-1]) + 1 if self.losses.length else 0
            smooth = self.smoothed()
            finite = self.losses["loss"][-50:]
            finite = finite[np.isfinite(finite)]
            steps, state = self.steps, self.state
            end = whole((self.log.start or {}).get("end")) or steps
            pace = self.log.seconds_per_step()
            tokens = self.log.tokens_per_step()
            if state == "running" and self.log.start is not None:
                step = max(step, int(self.log.start["step"]))
            left = (end - step) * pace if state == "running" and end is not None else math.nan
            in_force = self.log.in_force
            vocab = self.setting("model", "vocab_size")
            self.levels.look(self.losses["step"], smooth, vocab)
            last = self.rows.decisions[-1] if self.rows.decisions else None
            return {
                "id": self.id,
                "version": self.version,
                "name": self.name,
                "directory": _text(str(self.run.directory)),
                "state": state,
                "why": (self.log.end or {}).get("message", ""),
                "loading": self.loading,
                "behind": self.behind,
                "damaged": self.damaged,
                "step": step,
                "steps": steps,
                "loss": float(finite[-1]) if finite.size else None,
                "smma": float(smooth[-1]) if smooth.size else None,
                "smma_steps": self.smma_steps,
                "levels": self.levels.as_json(),
                "tokens_per_step": tokens,
                "tokens_per_second": tokens / pace if pace > 0 else None,
                "seconds_left": left if left >= 0 else None,
                "grad_norm": _last(in_force["grad_norm"]),
                "lr": _last(in_force["lr"]),
                "loss_scale": _last(in_force["loss_scale"]),
                "skipped": int(np.isnan(self.losses["loss"]).sum()),
                "replaced": int(self.log.replaced["step"].size),
                "bits_per_byte": self.rows.evals[-1]["mean"] if self.rows.evals else None,
                "newest": self.log.newest or None,
                "n_params": whole((self.log.start or {}).get("n_params")),
                "device": (self.log.start or {}).get("device"),
                "host": (self.log.start or {}).get("host"),
                "gpu": str((self.log.start or {}).get("pci_bus_id") or "").lower() or None,
                "precision": (self.log.start or {}).get("precision"),
                "policy": self.setting("curriculum", "policy"),
                "warmup": number(self.setting("train", "lr", "warmup_steps")) or 0,
                "events": len(self.log.events),
                "samples": len(self.samples),
                "rows": self.rows.rows.length,
                "phase": None
                if last is None
                else {
                    "step": last.step,
                    "steps": last.steps,
                    "policy": last.policy,
                    "dice": last.dice,
                    "roll": last.roll,
                    "warm_up": last.warm_up,
                    "focus": last.focus,
                },
            }

    def axis_of(self, steps: npt.NDArray[Any], axis: str) -> Floats:
        """Return where `steps` lie on the axis: steps, tokens, or hours of training without pauses."""
        if axis == "tokens":
            return np.asarray(steps * self.log.tokens_per_step(), dtype=np.float64)
        if axis == "time":
            known, hours = self._hours()
            if known.size == 0:
                return np.full(len(steps), np.nan)
            return np.asarray(np.interp(steps, known, hours), dtype=np.float64)
        return np.asarray(steps, dtype=np.float64)

    def _hours(self) -> tuple[Floats, Floats]:
        step, time = self.log.in_force["step"], self.log.in_force["time"]
        if step.size == 0:
            return step, time
        gaps = np.diff(time, prepend=time[0])
        # Between two attempts the clock of training stands still (or was set back).
        usual = float(np.median(gaps[1:])) if step.size > 1 else 0.0
        rates = self.log.attempt_edges(step)
        gaps[rates] = usual
        return step, np.cumsum(np.maximum(gaps, 0.0)) / 3600.0

    def series(
        self,
        name: str,
        axis: str = "step",
        low: float = -math.inf,
        high: float = math.inf,
        buckets: int = 1000,
        log: bool = False,
        smooth: float | None = None,
    ) -> dict[str, list[Any]]:
        """Return `x` and `y` of a curve in [low, high] of the axis, thinned to `buckets` pixels.

        One point beyond each end is kept, so that a line runs to the edge. Raises KeyError for a name that is
        none.
        """
        with self.lock:
            steps, y = self.whole_series(name, smooth)
            x = self.axis_of(steps, axis)
            if name == "replaced":  # several attempts, one after the other: each is cut by a gap
                keep = (x >= low) & (x <= high)
                x, y = x[keep], y[keep]
                breaks = np.flatnonzero(np.diff(x) <= 0) + 1
                pieces = [
                    thin_out(a, b, buckets, log)
                    for a, b in zip(np.split(x, breaks), np.split(y, breaks), strict=True)
                ]
                gap = np.array([np.nan])
                x = np.concatenate([part for a, _ in pieces for part in (a, gap)])[:-1]
                y = np.concatenate([part for _, b in pieces for part in (b, gap)])[:-1]
            else:
                begin = max(0, int(np.searchsorted(x, low)) - 1)
                end = int(np.searchsorted(x, high, side="right")) + 1
                x, y = thin_out(x[begin:end], y[begin:end], buckets, log)
            digits = 7 if axis == "time" else 0
            return {"x": [_short(v, digits) for v in x.tolist()], "y": [_figure(v) for v in y.tolist()]}

    def events_on(self, axis: str, after: int, most: int) -> dict[str, Any]:
        """Return the newest `most` events from index `after` on, each with its `x` on the axis."""
        with self.lock:
            first = max(after, len(self.log.events) - most)
            events = self.log.events[first:]
            x = self.axis_of(np.array([event["step"] for event in events], dtype=np.float64), axis)
            return {
                "first": first,
                "events": [{**event, "x": at} for event, at in zip(events, x.tolist(), strict=True)],
            }

    def whole_series(self, name: str, smooth: float | None = None) -> tuple[npt.NDArray[Any], Floats]:
        """Return steps and values of a curve at full resolution. Raises KeyError."""
        if name == "loss":
            return self.losses["step"], self.losses["loss"]
        if name == "smma":
            return self.losses["step"], self.smoothed(smooth)
        if name == "skips":
            return self.losses["step"], np.cumsum(np.isnan(self.losses["loss"])).astype(np.float64)
        if name == "rate":
            return self.log.in_force["step"], self.log.rates()
        if name == "replaced":
            return self.log.replaced["step"], self.log.replaced["loss"]
        if name not in SERIES:
            raise KeyError(name)
        return self.log.in_force["step"], self.log.in_force[name]


def _config_of_state(directory: Path) -> dict[str, Any] | None:
    for path in newest_states(directory)[:3]:
        try:
            if path.stat().st_size > MAX_STATE:
                continue
            with open_regular(path) as file:
                config = decode(file.read())["config"]
        except (OSError, *DAMAGED, KeyError, TypeError):
            continue
        if isinstance(config, dict):
            return config
    return None


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _last(values: Floats) -> float | None:
    return float(values[-1]) if values.size else None


def _figure(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _short(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    return round(value, digits) if digits else int(value)
