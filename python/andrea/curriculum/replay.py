"""Reading a run's `.rows.jsonl`: replay every decision from the log alone, or find the one at a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from andrea.curriculum.policy import Curriculum
from andrea.curriculum.settings import Source
from andrea.errors import DataError


class _Row(msgspec.Struct):
    step: int
    source: str
    documents: int
    loss: float | None


@dataclass
class Replay:
    """What a replay found: how many decisions agree, and the first differences in words."""

    decisions: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Return whether every decision came out the same, bit for bit."""
        return self.decisions > 0 and not self.differences


def replay(lines: Iterable[bytes | str]) -> Replay:
    """Decide everything again from the rows of a log and compare with the decisions in it.

    The settings and sources stand in the first decision (and in the first after each resume). Raises
    DataError for a log whose first decision lacks them.
    """
    found, curriculum = Replay(), None
    waiting: list[_Row] = []
    rows = msgspec.json.Decoder(_Row)
    for line in lines:
        text = line if isinstance(line, bytes) else line.encode()
        if b'"kind":"phase"' not in text:
            if b'"source"' in text and b'"loss"' in text:
                waiting.append(rows.decode(text))
            continue
        decision = _decision(text)
        if "curriculum" in decision:
            curriculum = _from_header(decision["curriculum"], curriculum)
        if curriculum is None:
            raise DataError("the log's first decision names no settings; it cannot be replayed from here")
        curriculum.record(
            [row.step for row in waiting],
            [row.source for row in waiting],
            [row.documents for row in waiting],
            [row.loss for row in waiting],
        )
        waiting.clear()
        again = msgspec.json.decode(curriculum.begin_phase(decision["step"]).log_json())
        found.decisions += 1
        for key in ("steps", "dice", "roll", "focus", "C", "N", "arms"):
            if again.get(key) != decision.get(key):
                found.differences.append(f"step {decision['step']}: {key} differs")
                break
    return found


def decisions(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the decisions of a `.rows.jsonl`, oldest first; a torn last line is left out."""
    with path.open("rb") as lines:
        for line in lines:
            if b'"kind":"phase"' in line and line.endswith(b"\n"):
                yield _decision(line)


def _decision(line: bytes) -> dict[str, Any]:
    """Return the reasons of a decision; the engine wraps them: {"phase": reasons, "step": s}."""
    value: dict[str, Any] = msgspec.json.decode(line)
    wrapped = value.get("phase")
    return wrapped if isinstance(wrapped, dict) else value


def decision_at(path: Path, step: int | None) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the decision in force at `step` (the last one if None) and the rows each source got under it.

    The newest attempt of a step wins. Raises DataError if the log holds no such decision.
    """
    chosen: dict[str, Any] | None = None
    for decision in decisions(path):
        if step is None or decision["step"] <= step < decision["step"] + decision["steps"]:
            chosen = decision
    if chosen is None:
        where = "" if step is None else f" for step {step}"
        raise DataError(f"{path} holds no curriculum decision{where}; was the run trained with a curriculum?")
    counts: dict[str, int] = dict.fromkeys(chosen["arms"]["name"], 0)
    begin, end = chosen["step"], chosen["step"] + chosen["steps"]
    rows = msgspec.json.Decoder(_Row)
    with path.open("rb") as lines:
        for line in lines:
            if b'"kind":"phase"' in line or not line.endswith(b"\n") or b'"loss"' not in line:
                continue
            row = rows.decode(line)
            if begin <= row.step < end and row.source in counts:
                counts[row.source] += 1
    return chosen, counts


def _from_header(header: dict[str, Any], before: Curriculum | None) -> Curriculum:
    sources = [Source(**source) for source in header["sources"]]
    curriculum = Curriculum(header["settings"], sources, header["seed"])
    if before is not None:
        curriculum.restore(before.state())
    return curriculum
