"""Learn a vocabulary: count the pre-tokens of weighted sources, then let C++ choose the segments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from andrea import __version__, _core
from andrea.errors import ConfigError, DataError, IoError

Text = str | bytes
Progress = Callable[[str, int, int], None]

BLOCK_BYTES = 16 << 20  # read, or gathered from documents, before the counting threads get it
STRIDE_BYTES = 1 << 20  # piece of a file that is sampled


@dataclass
class Source:
    """Text of one kind: a file, or any iterable of documents; `weight` is its share of the training mix.

    Without weights every source counts as much as it is long.
    """

    name: str
    texts: Path | Iterable[Text]
    weight: float | None = None


@dataclass(frozen=True)
class Settings:
    """Settings of learning; the defaults are those that docs/TOKENIZER.md measures."""

    rounds: int = 16
    boundary_weight: float = 1.4
    corpus_weight: float = 1.8
    gate_bits: float = 2.0
    most_types: int = 500_000
    least_count: int = 5
    seed: int = 1


@dataclass
class Counted:
    """Counts of one source, and what was read for them."""

    name: str
    counter: _core.WordCounter
    digest: str
    weight: float | None
    facts: dict[str, Any] = field(default_factory=dict)


def as_bytes(text: Text) -> bytes:
    """Bytes of a text; lone surrogates keep their three bytes."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _count_documents(
    counter: _core.WordCounter,
    texts: Iterable[Text],
    digest: Any,
    limit: int | None,
    tell: Callable[[int], None],
) -> None:
    batch: list[bytes] = []
    size = total = 0
    for text in texts:
        data = as_bytes(text)
        digest.update(data)
        batch.append(data)
        size += len(data)
        total += len(data)
        if size >= BLOCK_BYTES:
            counter.add(batch)
            tell(total)
            batch, size = [], 0
        if limit is not None and total >= limit:
            break
    counter.add(batch)


def _file_blocks(path: Path, limit: int | None) -> Iterator[bytes]:
    """Blocks of a file; with a limit, pieces spread evenly, so that sorted files are sampled fairly."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if limit is None or size <= limit:
                while block := file.read(BLOCK_BYTES):
                    yield block
                return
            pieces = max(1, limit // STRIDE_BYTES)
            for piece in range(pieces):
                file.seek(piece * size // pieces)
                yield file.read(min(STRIDE_BYTES, limit))
    except OSError as error:
        raise IoError(f"{path}: cannot read: {error.strerror or error}") from error


def _count_file(
    counter: _core.WordCounter, path: Path, digest: Any, limit: int | None, tell: Callable[[int], None]
) -> None:
    carry = b""
    total = 0
    for block in _file_blocks(path, limit):
        digest.update(block)
        total += len(block)
        data = carry + block
        carry = data[counter.add_block(data, False) :]
        tell(total)
    counter.add_block(carry, True)


def count(
    source: Source, threads: int = 0, limit: int | None = None, progress: Progress | None = None
) -> Counted:
    """Count one source, at most about `limit` bytes of it."""
    counter = _core.WordCounter(threads)
    digest = xxhash.xxh64()
    path = Path(source.texts) if isinstance(source.texts, (str, os.PathLike)) else None
    total = path.stat().st_size if path is not None and path.exists() else 0
    if limit is not None and total:
        total = min(total, limit)

    def tell(done: int) -> None:
        if progress is not None:
            progress(f"count {source.name}", done, max(total, done))

    if path is not None:
        _count_file(counter, path, digest, limit, tell)
    elif not isinstance(source.texts, (str, os.PathLike)):
        _count_documents(counter, source.texts, digest, limit, tell)
    return Counted(source.name, counter, digest.hexdigest(), source.weight)


def _shares(counted: Sequence[Counted]) -> list[float]:
    """Factor for the counts of each source, so that its bytes weigh as its share of the mix."""
    weights = [one.weight for one in counted]
    if all(weight is None for weight in weights):
        return [1.0] * len(counted)
    for one in counted:
        if one.weight is None or not one.weight >= 0:
            raise ConfigError(
                f"source {one.name}: weight {one.weight}; give every source a number >= 0, or none"
            )
    total_weight = sum(weight or 0.0 for weight in weights)
    if total_weight <= 0:
        raise ConfigError("all source weights are 0; give at least one source a positive weight")
    total_bytes = sum(one.counter.bytes for one in counted)
    factors = []
    for one in counted:
        share = (one.weight or 0.0) / total_weight
        if share > 0 and one.counter.bytes == 0:
            raise DataError(f"source {one.name}: no text, yet it should be {share:.1%} of the mix")
        factors.append(share * total_bytes / one.counter.bytes if one.counter.bytes else 0.0)
    return factors


def train_counted(
    counted: Sequence[Counted],
    n_segments: int,
    *,
    settings: Settings | None = None,
    allow_fewer: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> _core.Tokenizer:
    """Learn from sources that were counted already; a sweep counts once and comes here often."""
    settings = settings or Settings()
    if not 1 <= n_segments <= 1 << 22:
        raise ConfigError(f"n_segments is {n_segments}; it must be between 1 and {1 << 22}")
    factors = _shares(counted)
    table = _core.TypeTable()
    for one, factor in zip(counted, factors, strict=True):
        if factor > 0:
            table.add(one.counter, factor)
    segments, counts, facts = _core.train_segments(
        table, n_segments, threads=threads, progress=progress, **vars(settings)
    )
    total_bytes = sum(one.counter.bytes for one in counted)
    if len(segments) < n_segments and not allow_fewer:
        raise DataError(
            f"found {len(segments)} < {n_segments}: saturated. {total_bytes:,} bytes of text hold no more "
            "segments that pay. Ask for fewer, give more text, or pass --allow-fewer (allow_fewer=True)"
        )
    weighed = sum(factor * one.counter.bytes for one, factor in zip(counted, factors, strict=True))
    training = {
        "andrea": __version__,
        "unicode": _core.UNICODE_VERSION,
        "requested": n_segments,
        "settings": vars(settings),
        **{name: facts[name] for name in ("types", "words", "candidates")},
        "sources": [
            {
                "name": one.name,
                "bytes": one.counter.bytes,
                "xxh64": one.digest,
                "share": round(factor * one.counter.bytes / weighed, 6) if weighed else 0.0,
            }
            for one, factor in zip(counted, factors, strict=True)
        ],
    }
    return _core.tokenizer_from_table(segments, counts, json.dumps(training, ensure_ascii=False))


def train(
    inputs: Iterable[Source | str | os.PathLike[str] | Iterable[Text]],
    n_segments: int,
    weights: Sequence[float] | None = None,
    *,
    sample_bytes: int | None = None,
    settings: Settings | None = None,
    allow_fewer: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> _core.Tokenizer:
    """Learn `n_segments` segments and return the tokenizer (V = 257 + n_segments); `.save` writes it.

    Each input is a file (a path, read as it is), an iterable of documents (str or bytes), or a Source.
    `weights` are the inputs' shares of the training mix. With `sample_bytes`, each source gives at most its
    share of so many bytes, and what it falls short of is made up by counting it more. The result is the same,
    byte for byte, for any number of threads. DataError if the text holds fewer segments that pay, unless
    `allow_fewer`.
    """
    sources = []
    for index, item in enumerate(inputs):
        if isinstance(item, Source):
            sources.append(item)
        elif isinstance(item, (str, os.PathLike)):
            sources.append(Source(Path(item).name, Path(item)))
        else:
            sources.append(Source(f"input {index}", item))
    if weights is not None:
        if len(weights) != len(sources):
            raise ConfigError(f"{len(weights)} weights for {len(sources)} inputs")
        for source, weight in zip(sources, weights, strict=True):
            source.weight = float(weight)
    total_weight = sum(source.weight or 0.0 for source in sources)
    counted = []
    for source in sources:
        limit = None
        if sample_bytes is not None:
            share = (source.weight or 0.0) / total_weight if total_weight > 0 else 1 / len(sources)
            limit = max(1, round(share * sample_bytes))
        counted.append(count(source, threads, limit, progress))
    return train_counted(
        counted, n_segments, settings=settings, allow_fewer=allow_fewer, threads=threads, progress=progress
    )
