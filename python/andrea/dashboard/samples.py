"""A run's samples, those archived at a polish included: texts with loss, prompt and coherence."""

from __future__ import annotations

from typing import Any

import msgspec

from andrea.curriculum.runs import Run

PARTS = ("bigrams", "trigrams", "words", "characters")


class Samples:
    """Takes in lines of `.samples.json`; hands out an index for the slider and one text at a time."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._archived: list[dict[str, Any]] = []
        self._now: list[dict[str, Any]] = []

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self._archived) + len(self._now)

    def take(self, lines: bytes) -> None:
        """Take in whole lines, in file order."""
        self._now += _decode(lines)

    def begin_anew(self, run: Run) -> None:
        """Forget the live file's samples and read what a polish archived."""
        self._now, self._archived = [], []
        for path in run.sample_archives():
            self._archived += _decode(path.read_bytes())

    def index(self) -> list[dict[str, Any]]:
        """Return for each sample its step, prompt, loss, score and parts, in order; no texts."""
        return [
            {
                "step": sample["step"],
                "prompt": str(sample.get("prompt", "")),
                "loss": _number(sample.get("loss")),
                "score": _number(_coherence(sample).get("score")),
                "parts": {part: _number(_coherence(sample).get(part)) for part in PARTS},
            }
            for sample in self._archived + self._now
        ]

    def text(self, number: int) -> str:
        """Return the text of a sample, or its ids where the run knew no tokenizer. Raises IndexError."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        sample = (self._archived + self._now)[number]
        text = sample.get("text")
        return text if isinstance(text, str) else " ".join(map(str, sample.get("ids", [])))


def _decode(lines: bytes) -> list[dict[str, Any]]:
    samples = []
    for line in lines.split(b"\n"):
        try:
            value = msgspec.json.decode(line.strip().removesuffix(b","))
        except msgspec.DecodeError:
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            samples.append(value)
    return samples


def _coherence(sample: dict[str, Any]) -> dict[str, Any]:
    value = sample.get("coherence")
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
