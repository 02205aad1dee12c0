"""A run's samples, those archived at a polish included: texts with loss, prompt and coherence."""

from __future__ import annotations

from typing import Any

from andrea.curriculum.runs import DAMAGED, Run
from andrea.dashboard.lines import decode, left_out, number, whole
from andrea.dashboard.tail import open_regular

PARTS = ("bigrams", "trigrams", "words", "characters")


class Samples:
    """Takes in lines of `.samples.json`; hands out an index for the slider and one text at a time."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._archived: list[dict[str, Any]] = []
        self._now: list[dict[str, Any]] = []
        self.damaged = 0  # lines that were passed over

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self._archived) + len(self._now)

    def take(self, lines: bytes) -> None:
        """Take in whole lines, in file order."""
        self._now += self._decode(lines)

    def begin_anew(self, run: Run) -> None:
        """Forget the live file's samples and read what a polish archived."""
        self._now, self._archived, self.damaged = [], [], 0
        for path in run.sample_archives():
            try:
                with open_regular(path) as file:
                    content = file.read()
            except OSError:
                continue
            self._archived += self._decode(content)

    def index(self) -> list[dict[str, Any]]:
        """Return for each sample its step, prompt, loss, score and parts, in order; no texts."""
        return [
            {
                "step": sample["step"],
                "prompt": str(sample.get("prompt", "")),
                "loss": number(sample.get("loss")),
                "score": number(_coherence(sample).get("score")),
                "parts": {part: number(_coherence(sample).get(part)) for part in PARTS},
            }
            for sample in self._archived + self._now
        ]

    def text(self, number: int) -> str:
        """Return the text of a sample, or its ids where the run knew no tokenizer. Raises IndexError."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        sample = (self._archived + self._now)[number]
        text = sample.get("text")
        ids = sample.get("ids")
        return text if isinstance(text, str) else " ".join(map(str, ids if isinstance(ids, list) else []))

    def _decode(self, lines: bytes) -> list[dict[str, Any]]:
        samples = []
        for line in lines.split(b"\n"):
            try:
                value = decode(line)
            except DAMAGED:
                continue
            if isinstance(value, dict) and whole(value.get("step")) is not None:
                samples.append(value)
        self.damaged += left_out(lines, len(samples))
        return samples


def _coherence(sample: dict[str, Any]) -> dict[str, Any]:
    value = sample.get("coherence")
    return value if isinstance(value, dict) else {}
