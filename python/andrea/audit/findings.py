"""What the samples of a run amount to: collapsed or not, since when, copied or not, and the gate's worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from andrea.audit.copies import Copied, Place, find_copies
from andrea.audit.marks import Mark, marks_of
from andrea.audit.samples import History, Sample
from andrea.errors import Error

if TYPE_CHECKING:
    from andrea.tokenizer import Tokenizer

THRESHOLD, PATIENCE = 30.0, 5  # of the gate, where the run has none
COPIED = 0.5  # share of a sample's ids from which it counts as a copy


@dataclass(frozen=True)
class Judged:
    """A sample and what was seen in it. `copied`: share of its ids; None: not looked for."""

    sample: Sample
    marks: list[Mark]
    copied: float | None = None
    passages: list[tuple[int, int]] = field(default_factory=list)  # of `text` as UTF-8: begin, end
    place: Place | None = None

    @property
    def is_copy(self) -> bool:
        """Return whether half of it or more stands in the training data."""
        return self.copied is not None and self.copied >= COPIED


@dataclass(frozen=True)
class Step:
    """All samples of one step: the mean score, and whether at least half of them collapsed."""

    step: int
    score: float | None
    collapsed: bool
    copied: float | None


@dataclass(frozen=True)
class Gate:
    """The gate, run over the scores again: when it would have stopped, and what that saves."""

    threshold: float
    patience: int
    own: bool  # the run's own settings
    stops_at: int | None
    saved_steps: int


@dataclass(frozen=True)
class Audit:
    """The whole of it. `reasons` is empty for a healthy run."""

    history: History
    judged: list[Judged]
    steps: list[Step]
    collapsed_since: int | None
    episodes: list[tuple[int, int]]
    gate: Gate
    copies_of: int  # ids in a run that counts as copied
    held_out_copied: float | None
    reasons: list[str]
    notes: list[str]

    @property
    def healthy(self) -> bool:
        """Return whether nothing speaks against the run."""
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "name": self.history.run.name,
            "healthy": self.healthy,
            "reasons": self.reasons,
            "notes": self.notes,
            "last_step": self.history.last_step,
            "collapsed_since": self.collapsed_since,
            "episodes": [{"first": first, "last": last} for first, last in self.episodes],
            "gate": asdict(self.gate),
            "copies": {"run_of_ids": self.copies_of, "held_out_share": self.held_out_copied},
            "steps": [asdict(step) for step in self.steps],
            "samples": [
                asdict(one.sample)
                | {
                    "marks": [asdict(mark) for mark in one.marks],
                    "copied": one.copied,
                    "passages": one.passages,
                    "place": asdict(one.place) if one.place else None,
                }
                for one in self.judged
            ],
        }


def audit_run(
    history: History,
    *,
    copies: bool = True,
    run_of_ids: int = 16,
    threshold: float | None = None,
    patience: int | None = None,
) -> Audit:
    """Judge every sample and the run. Sources that cannot be read are noted, and copies not looked for."""
    notes = list(history.notes)
    gate_of_run = (history.settings or {}).get("samples", {})
    own = bool(gate_of_run.get("threshold"))
    limit = threshold if threshold is not None else gate_of_run["threshold"] if own else THRESHOLD
    length = patience if patience is not None else gate_of_run["patience"] if own else PATIENCE
    found, held_out = (None, None)
    if copies:
        found, held_out = _copies(history, run_of_ids, notes)
    judged = [_judge(sample, found[k] if found else None) for k, sample in enumerate(history.samples)]
    steps = _steps(judged, limit)
    scores = [(step.step, step.score) for step in steps if step.score is not None]
    stops_at = gate_stop(scores, limit, length)
    saved = history.last_step - stops_at if stops_at is not None else 0
    gate = Gate(limit, length, own and threshold is None and patience is None, stops_at, max(0, saved))
    since = collapsed_since([(step.step, step.collapsed) for step in steps], length)
    return Audit(
        history,
        judged,
        steps,
        since,
        _episodes(steps),
        gate,
        run_of_ids,
        held_out,
        _reasons(history, steps, since, length),
        notes,
    )


def gate_stop(scores: Sequence[tuple[int, float]], threshold: float, patience: int) -> int | None:
    """Return the step at which the gate stops a run with these (step, mean score), as the trainer counts."""
    below = 0
    for step, score in scores:
        below = below + 1 if score < threshold else 0
        if below >= patience:
            return step
    return None


def collapsed_since(steps: Sequence[tuple[int, bool]], window: int) -> int | None:
    """Return the step from which on a run is collapsed, None if its end is not.

    Collapsed is an end of which more than half of the last `window` sampled steps are; it began at the first
    collapsed step from which on more than half are.
    """
    flags = [collapsed for _, collapsed in steps]
    last = flags[-window:]
    if 2 * sum(last) <= len(last):
        return None
    begin = None
    collapsed = 0
    for back, (step, flag) in enumerate(reversed(steps), start=1):
        collapsed += flag
        if flag and 2 * collapsed > back:
            begin = step
    return begin


def _judge(sample: Sample, found: tuple[Copied, list[tuple[int, int]]] | None) -> Judged:
    own_part = sample.text.removeprefix(sample.prompt)
    if found is None:
        return Judged(sample, marks_of(own_part))
    copied, passages = found
    return Judged(sample, marks_of(own_part), copied.share, passages, copied.place)


def _steps(judged: Sequence[Judged], threshold: float) -> list[Step]:
    steps = []
    for step, group in groupby(judged, key=lambda one: one.sample.step):
        ones = list(group)
        scores = [one.sample.score for one in ones if one.sample.score is not None]
        score = sum(scores) / len(scores) if scores else None
        marked = 2 * sum(bool(one.marks) for one in ones) >= len(ones)
        copied = [one.copied for one in ones if one.copied is not None]
        steps.append(
            Step(
                step,
                score,
                marked or (score is not None and score < threshold),
                sum(copied) / len(copied) if copied else None,
            )
        )
    return steps


def _episodes(steps: Sequence[Step]) -> list[tuple[int, int]]:
    episodes = []
    for collapsed, group in groupby(steps, key=lambda step: step.collapsed):
        ones = list(group)
        if collapsed:
            episodes.append((ones[0].step, ones[-1].step))
    return episodes


def _reasons(history: History, steps: Sequence[Step], since: int | None, window: int) -> list[str]:
    last = list(steps)[-window:]
    reasons = []
    if since is not None:
        many = sum(step.collapsed for step in last)
        reasons.append(f"collapsed since step {since:,}: {many} of the last {len(last)} sampled steps")
    if history.stopped_by_gate:
        reasons.append(f"stopped by the coherence gate at step {history.last_step:,}")
    copied = [step.copied for step in last if step.copied is not None]
    if copied and sum(share >= COPIED for share in copied) * 2 > len(copied):
        mean = sum(copied) / len(copied)
        reasons.append(
            f"copies: {mean:.0%} of the last {len(copied)} sampled steps stands in the training data"
        )
    return reasons


def _copies(
    history: History, n: int, notes: list[str]
) -> tuple[list[tuple[Copied, list[tuple[int, int]]]] | None, float | None]:
    """Look for the samples in the training data; and for held-out text, as a measure of what chance gives."""
    data = (history.settings or {}).get("data", {})
    sources = [(source["name"], Path(source["train"])) for source in data.get("sources", ())]
    if not data.get("tokenizer") or not sources:
        notes.append("copies were not looked for: no state names tokenizer and sources")
        return None, None
    from andrea.data.btok import Btok
    from andrea.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.load(data["tokenizer"])
        for _, path in sources:
            Btok(path, verify=False).check_tokenizer(tokenizer)
        texts = [_own_ids(tokenizer, sample) for sample in history.samples]
        control = _held_out(data["sources"])
        found = find_copies([*(ids for ids, _ in texts), *control], sources, n)
    except (Error, OSError) as error:
        notes.append(f"copies were not looked for: {error}")
        return None, None
    with_passages = [
        (copied, _passages(tokenizer, ids, begin, copied))
        for copied, (ids, begin) in zip(found, texts, strict=False)
    ]
    held_out = found[len(texts) :]
    share = sum(one.covered.sum() for one in held_out) / max(1, sum(one.covered.size for one in held_out))
    return with_passages, float(share) if held_out else None


def _own_ids(tokenizer: Tokenizer, sample: Sample) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Return the ids of what the model wrote, and the bytes of the prompt before it."""
    own = sample.text.removeprefix(sample.prompt)
    begin = len((sample.text[: len(sample.text) - len(own)]).encode("utf-8", "surrogatepass"))
    return tokenizer.encode(own.encode("utf-8", "surrogatepass")).astype(np.int64), begin


def _held_out(sources: Sequence[dict[str, Any]], most: int = 64, length: int = 400) -> list[Any]:
    """Return beginnings of held-out documents of all sources, spread evenly; those too short left out."""
    from andrea.data.btok import Btok

    texts = []
    for source in sources:
        if not source.get("eval") or not Path(source["eval"]).is_file():
            continue
        packed = Btok(Path(source["eval"]), verify=False)
        wanted = min(most, len(packed))
        texts += [packed[k * len(packed) // wanted][:length].astype(np.int64) for k in range(wanted)]
    return texts


def _passages(tokenizer: Tokenizer, ids: Any, begin: int, copied: Copied) -> list[tuple[int, int]]:
    """Return the copied parts as bytes of the sample's text."""
    ends = begin + np.cumsum([len(tokenizer.token_bytes(int(i))) for i in ids], dtype=np.int64)
    passages = []
    at = 0
    for is_copy, group in groupby(copied.covered.tolist()):
        size = len(list(group))
        if is_copy:
            passages.append((int(ends[at - 1]) if at else begin, int(ends[at + size - 1])))
        at += size
    return passages
