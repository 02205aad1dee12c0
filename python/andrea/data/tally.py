"""What was kept, dropped and mended, by reason, with a few examples of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

EXAMPLES_KEPT = 3  # a reason
EXCERPT_CHARACTERS = 160


def shown(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    """Return one line that is safe on a terminal: controls, bidi marks and line ends as escapes."""
    part = text[:limit]
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in part)
    return line + (f"... ({len(text)} characters)" if len(text) > limit else "")


def printable(text: str) -> str:
    """Return a text with its lines, but without anything that acts on a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text
    )


@dataclass
class Tally:
    """Counts of one source or of a part of it; parts are added in a fixed order, so the sum is too."""

    kept: int = 0
    read_bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, reason: str, place: str, text: str = "", count: int = 1) -> None:
        """Count `count` dropped documents; `place` is `file:line` or the like."""
        self.dropped[reason] += count
        self._example(reason, place, text)

    def mend(self, what: str, place: str, text: str = "", count: int = 1) -> None:
        """Count something changed or guessed in text that was kept (an encoding, a missing mark)."""
        self.mended[what] += count
        self._example(what, place, text)

    def _example(self, reason: str, place: str, text: str) -> None:
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES_KEPT:
            kept.append(f"{shown(place, 300)}: {shown(text)}" if text else shown(place, 300))

    def add(self, other: Tally) -> None:
        """Add the counts of `other`."""
        self.kept += other.kept
        self.read_bytes += other.read_bytes
        self.dropped.update(other.dropped)
        self.mended.update(other.mended)
        self.layouts.update(other.layouts)
        for reason, lines in other.examples.items():
            mine = self.examples.setdefault(reason, [])
            mine.extend(lines[: EXAMPLES_KEPT - len(mine)])

    def to_json(self) -> dict[str, Any]:
        """Return plain data, sorted, for the report and for parts on disk."""
        return {
            "kept": self.kept,
            "read_bytes": self.read_bytes,
            "dropped": dict(sorted(self.dropped.items())),
            "mended": dict(sorted(self.mended.items())),
            "layouts": dict(sorted(self.layouts.items())),
            "examples": dict(sorted(self.examples.items())),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tally:
        """Rebuild what `to_json` gave."""
        return cls(
            data["kept"],
            data["read_bytes"],
            Counter(data["dropped"]),
            Counter(data["mended"]),
            Counter(data["layouts"]),
            {reason: list(lines) for reason, lines in data["examples"].items()},
        )

    def lines(self, explain: bool = False) -> list[str]:
        """Return lines for people: every reason with its count, and with `explain` its examples."""
        out: list[str] = []
        for verb, counts in (("dropped", self.dropped), ("mended", self.mended)):
            for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
                out.append(f"{verb} {count:>8,}  {reason}")
                if explain:
                    out.extend(f"    {line}" for line in self.examples.get(reason, []))
        return out
