"""Figures of a vocabulary: length, morpheme boundaries, evenness of use; two vocabularies; many sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from andrea._core import Tokenizer
from andrea.errors import DataError, IoError
from andrea.tokenizer.baselines import PART_CHARACTERS, Encoder
from andrea.tokenizer.training import Counted, Settings, train_counted

RENYI_ORDER = 2.5  # of Zouhar et al., "Tokenization and the Noiseless Channel", 2023


def read_text(path: Path) -> str:
    """A UTF-8 text; what is no UTF-8 becomes U+FFFD, for all vocabularies alike."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise IoError(f"{path}: cannot read: {error.strerror or error}") from error


def parts(text: str) -> Iterator[str]:
    """The text in parts that end at line ends where there are some."""
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + PART_CHARACTERS) + 1
        if end <= at:
            end = min(len(text), at + PART_CHARACTERS)
        yield text[at:end]
        at = end


def read_gold(path: Path) -> dict[str, set[int]]:
    """Words and their morpheme boundaries: one word a line, morphs separated by spaces."""
    gold: dict[str, set[int]] = {}
    for line in read_text(path).splitlines():
        ends, at = set(), 0
        for morph in line.split():
            at += len(morph)
            ends.add(at)
        if at > 0:
            gold["".join(line.split())] = ends - {at}
    if not any(gold.values()):
        raise DataError(
            f"{path}: no boundary in it; one word a line is expected, its morphs separated by spaces"
        )
    return gold


@dataclass(frozen=True)
class Boundaries:
    """Cuts against gold boundaries, summed over all words."""

    precision: float
    recall: float
    f1: float


def boundaries(encoder: Encoder, gold: Mapping[str, set[int]]) -> Boundaries:
    """Micro precision, recall and F1 of the cuts inside " word"."""
    right = cut = true = 0
    for word, wanted in gold.items():
        found = encoder.cuts(word)
        right += len(found & wanted)
        cut += len(found)
        true += len(wanted)
    precision = right / cut if cut else 0.0
    recall = right / true if true else 0.0
    return Boundaries(precision, recall, 2 * right / (cut + true) if cut + true else 0.0)


@dataclass
class Figures:
    """What one vocabulary does to the texts."""

    name: str
    vocab_size: int
    bytes_per_id: dict[str, float] = field(default_factory=dict)
    ids_per_word: float = 0.0
    renyi_efficiency: float = 0.0
    share_used: float = 0.0
    gold: Boundaries | None = None


def renyi_efficiency(counts: Iterable[int], vocab_size: int) -> float:
    """Renyi entropy of the ids over the logarithm of the vocabulary size; 1 if all ids are used alike."""
    values = list(counts)
    total = sum(values)
    if total == 0 or vocab_size < 2:
        return 0.0
    power_sum = sum((value / total) ** RENYI_ORDER for value in values)
    return math.log(power_sum) / (1 - RENYI_ORDER) / math.log(vocab_size)


def measure(encoder: Encoder, texts: Mapping[str, str], gold: Mapping[str, set[int]] | None) -> Figures:
    """All figures of one vocabulary."""
    figures = Figures(encoder.name, encoder.vocab_size)
    uses: Counter[int] = Counter()
    words = 0
    for kind, text in texts.items():
        n_ids = 0
        for part in parts(text):
            ids = encoder.encode(part)
            uses.update(ids)
            n_ids += len(ids)
        words += len(text.split())
        figures.bytes_per_id[kind] = len(text.encode()) / max(1, n_ids)
    figures.ids_per_word = uses.total() / max(1, words)
    figures.renyi_efficiency = renyi_efficiency(uses.values(), encoder.vocab_size)
    figures.share_used = len(uses) / encoder.vocab_size
    if gold is not None:
        figures.gold = boundaries(encoder, gold)
    return figures


@dataclass(frozen=True)
class Alignment:
    """How well the vocabulary of a model fits that of its data."""

    shared: int
    slots: int
    overlap: float  # share of the model's segments that the data's vocabulary has too
    waste: float  # 1 - overlap
    floats: float  # waste x V x d_model: parameters of the embedding that serve other data


def align(model: Tokenizer, data: Tokenizer, d_model: int) -> Alignment:
    """Compare the vocabulary of a model with one trained on the data it sees."""
    slots = len(model.segments)
    shared = len(set(model.segments) & set(data.segments))
    overlap = shared / slots if slots else 1.0
    return Alignment(shared, slots, overlap, 1 - overlap, (1 - overlap) * model.vocab_size * d_model)


@dataclass(frozen=True)
class SweepRow:
    """One size of a sweep. `gain`: bytes per id more than the size before, a thousand segments."""

    requested: int
    found: int
    bytes_per_id: float
    gain: float | None

    @property
    def saturated(self) -> bool:
        """Whether the text held fewer segments than were asked for."""
        return self.found < self.requested


def sweep(
    counted: Sequence[Counted],
    sizes: Sequence[int],
    test: str,
    *,
    settings: Settings | None = None,
    threads: int = 0,
    tell: Callable[[SweepRow], None] | None = None,
) -> list[SweepRow]:
    """Train each size on the same counts and measure it on `test`. Stops after the first saturated size."""
    rows: list[SweepRow] = []
    n_bytes = len(test.encode())
    for size in sorted(sizes):
        tokenizer = train_counted(counted, size, settings=settings, allow_fewer=True, threads=threads)
        found = len(tokenizer.segments)
        length = n_bytes / max(1, len(tokenizer.encode(test)))
        gain = None
        if rows and found > rows[-1].found:
            gain = 1000 * (length - rows[-1].bytes_per_id) / (found - rows[-1].found)
        rows.append(SweepRow(size, found, length, gain))
        if tell is not None:
            tell(rows[-1])
        if rows[-1].saturated:
            break
    return rows


def sweep_svg(rows: Sequence[SweepRow]) -> str:
    """A plot of bytes per id against the number of segments found, on a logarithmic axis."""
    width, height, margin = 640, 400, 56
    xs = [math.log2(max(1, row.found)) for row in rows]
    ys = [row.bytes_per_id for row in rows]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / (x1 - x0) if x1 > x0 else 0.5
        up = (y - y0) / (y1 - y0) if y1 > y0 else 0.5
        return margin + across * (width - 2 * margin), height - margin - up * (height - 2 * margin)

    points = [place(x, y) for x, y in zip(xs, ys, strict=True)]
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"#c33" if row.saturated else "#247"}"/>'
        f'<text x="{x:.1f}" y="{height - margin + 18}" text-anchor="middle">{row.found}</text>'
        f'<text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle">{row.bytes_per_id:.2f}</text>'
        for (x, y), row in zip(points, rows, strict=True)
    )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><polyline points="{line}" fill="none" stroke="#247" stroke-width="2"/>{marks}'
        f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">segments found (red: saturated)</text>'
        f'<text x="{margin}" y="24">bytes per id</text></svg>\n'
    )
