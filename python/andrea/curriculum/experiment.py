"""What the curriculum takes from an experiment: its own section, the sources' limits, where the data is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from andrea.curriculum.collapse import Coherence, coherence
from andrea.curriculum.policy import Curriculum
from andrea.curriculum.settings import CurriculumSettings, Source
from andrea.errors import ConfigError, IoError

LEXICON_BYTES = 256 << 10  # text read of each source, in documents spread evenly over it

Scorer = Callable[[str], Coherence]


@dataclass(frozen=True)
class SourceLimits:
    """One entry of `data.sources`, paths as they stand after resolving."""

    name: str
    train: Path
    floor: float = 0.0
    cap: float = 1.0
    weight: float | None = None


@dataclass(frozen=True)
class CurriculumPlan:
    """The part of an experiment that the policy and the scorer need."""

    model: str
    settings: CurriculumSettings
    sources: tuple[SourceLimits, ...]
    tokenizer: Path | None
    origin: str = field(default="")
    gate: float = 0.0  # the threshold of the coherence gate; 0: none is wanted

    def curriculum(self, sizes: Sequence[tuple[str, int, int, int]], seed: int) -> Curriculum:
        """Build the policy for a run whose sources have `sizes` (name, documents, tokens, bytes).

        Raises ConfigError if they are not the sources of the experiment, in its order.
        """
        named = [name for name, *_ in sizes]
        expected = [source.name for source in self.sources]
        if named != expected:
            raise ConfigError(
                f"the trainer has the sources {', '.join(named)}; {self.origin or 'the experiment'} has "
                f"{', '.join(expected)}: start both with the same experiment"
            )
        sources = [
            Source(limits.name, documents, tokens, size, limits.floor, limits.cap, limits.weight)
            for limits, (_, documents, tokens, size) in zip(self.sources, sizes, strict=True)
        ]
        return Curriculum(self.settings, sources, seed)

    def scorer(self) -> Scorer | None:
        """Build the coherence scorer from the training text; None without a tokenizer.

        Raises DataError or IoError if tokenizer or sources cannot be read.
        """
        if self.tokenizer is None:
            return None
        from andrea.tokenizer import Tokenizer

        lexicon = training_lexicon(Tokenizer.load(str(self.tokenizer)), [s.train for s in self.sources])
        return lambda text: coherence(text, lexicon)


def read_plan(path: Path) -> CurriculumPlan:
    """Read and check an experiment file. Raises ConfigError or IoError."""
    from andrea._core import load_experiment

    return plan_of(load_experiment(str(path)).effective_json(), path.parent, str(path))


def plan_of(text: str | bytes, directory: Path, origin: str = "") -> CurriculumPlan:
    """Take the plan out of an experiment's JSON; relative paths are relative to `directory`."""
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise ConfigError(f"{origin or 'the experiment'} is no JSON: {wrong}") from wrong
    data = whole.get("data") if isinstance(whole, dict) else None
    entries = data.get("sources") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(entries, list):
        raise ConfigError(f"{origin or 'the experiment'}: data.sources must be a list of sources")
    settings = CurriculumSettings.parse(whole.get("curriculum") or {})
    sources = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not all(
            isinstance(entry.get(k), str) for k in ("name", "train")
        ):
            raise ConfigError(f"data.sources[{index}]: name and train must be given")
        sources.append(
            SourceLimits(
                entry["name"],
                directory / entry["train"],
                _number(entry, "floor", 0.0, index),
                _number(entry, "cap", 1.0, index),
                _number(entry, "weight", None, index),
            )
        )
    tokenizer = data.get("tokenizer")
    return CurriculumPlan(
        str(whole.get("name", "")),
        settings,
        tuple(sources),
        directory / tokenizer if isinstance(tokenizer, str) and tokenizer else None,
        origin,
        _gate(whole.get("samples")),
    )


def _gate(samples: Any) -> float:
    """Return the threshold of the coherence gate, 0 where the effective settings want none."""
    if not isinstance(samples, Mapping) or not (samples.get("sample_every") and samples.get("prompts")):
        return 0.0
    return float(samples.get("threshold", 0.0))


def training_lexicon(tokenizer: Any, paths: Sequence[Path]) -> frozenset[str]:
    """Return the words of the packed sources: documents spread evenly, up to LEXICON_BYTES of text each."""
    from andrea.curriculum.collapse import lexicon_of
    from andrea.data.btok import Btok

    words: set[str] = set()
    for path in paths:
        source = Btok(path, verify=False)
        header = source.header
        wanted = max(1, round(header.n_docs * min(1.0, LEXICON_BYTES / max(1, header.n_bytes))))
        words |= lexicon_of(
            tokenizer.decode_bytes(source[k * header.n_docs // wanted]) for k in range(wanted)
        )
    return frozenset(words)


def _number(entry: Mapping[str, Any], key: str, default: Any, index: int) -> Any:
    value = entry.get(key, default)
    if value is default or value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"data.sources[{index}].{key}: must be a number, is {value!r}")
    return float(value)


def refuse_missing_files(effective: str) -> None:
    """Raise IoError naming every tokenizer and source file that is not there, and how to get them.

    `effective` is an effective config (JSON, paths resolved). Said before a model is built, all at once.
    """
    data = msgspec.json.decode(effective)["data"]
    lost = [f"  tokenizer: {data['tokenizer']}"] if not _there(data.get("tokenizer")) else []
    for source in data.get("sources", ()):
        for part in ("train", "eval"):
            if not _there(source.get(part)):
                lost.append(f"  {source['name']} ({part}): {source[part]}")  # noqa: PERF401
    if lost:
        raise IoError(
            "files of the experiment are missing:\n"
            + "\n".join(lost)
            + "\n`andrea data list` shows the named sources, `andrea data pull NAME` fetches one, and "
            "`andrea data prep RECIPE.json` packs them (see experiments/recipes); a source you do not have "
            "can be left out of data.sources and of curriculum_warmup_sources"
        )


def _there(path: str | None) -> bool:
    return not path or Path(path).is_file()
