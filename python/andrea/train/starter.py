"""A first experiment from nothing but text: tokenizer, packed sources, config."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.data.files import write_bytes
from andrea.errors import ConfigError, DataError, IoError
from andrea.train.sizes import SIZES, Size

if TYPE_CHECKING:
    from andrea.data.btok import BtokHeader
    from andrea.data.pack import Packed
    from andrea.tokenizer import Tokenizer

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".jsonl", ".ndjson", ".py")
PACKED = (".gz", ".zst")


@dataclass(frozen=True)
class Text:
    """One source: a name and the files it is made of."""

    name: str
    files: tuple[Path, ...]

    def documents(self) -> Iterator[str]:
        """Yield its documents."""
        from andrea.data.readers import documents_of
        from andrea.data.tally import Tally

        tally = Tally()
        for path in self.files:
            yield from documents_of(path, tally)


@dataclass(frozen=True)
class Prepared:
    """What was made."""

    config: Path
    tokenizer: Tokenizer
    sources: dict[str, Packed]  # by name
    measured: frozenset[str]  # sources whose held-out part stands in the experiment

    @property
    def n_tokens(self) -> int:
        """Return the ids of all training parts, without BOS."""
        return sum(packed.train.n_tokens for packed in self.sources.values())


def texts_of(paths: Sequence[Path]) -> list[Text]:
    """Turn files and folders into sources, one each. IoError: not there; DataError: no text in it."""
    texts: list[Text] = []
    names: set[str] = set()
    for path in paths:
        if not path.exists():
            raise IoError(f"{path}: there is no such file or folder")
        if not path.is_dir() and not path.is_file():
            raise IoError(f"{path} is a device or a pipe, and the text is read more than once; give a file")
        files = tuple(sorted(filter(_is_text, path.rglob("*")))) if path.is_dir() else (path,)
        if not files:
            raise DataError(f"{path}: no text in this folder; looked for {', '.join(TEXT_SUFFIXES)} files")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", _bare(path)).strip("-.") or "text"
        while name in names:
            name += "-2"
        names.add(name)
        texts.append(Text(name, files))
    return texts


def _bare(path: Path) -> str:
    name = path.resolve().name
    for suffix in (*PACKED, *TEXT_SUFFIXES):
        name = name.removesuffix(suffix)
    return name


def _is_text(path: Path) -> bool:
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return path.is_file() and name.endswith(TEXT_SUFFIXES)


def prepare(
    size: Size,
    texts: Sequence[Text],
    out: Path,
    *,
    segments: int | None = None,
    holdout: float = 0.01,
) -> Prepared:
    """Learn a tokenizer, pack every source and write the experiment into `out`.

    Where no source has enough held out to evaluate on, more of each is: small texts are measured too.
    Raises ConfigError if an experiment is there already, DataError if there is too little text.
    """
    from andrea.data.pack import check_holdout, held_out_path, pack_files
    from andrea.tokenizer import Source, train
    from andrea.train.held_out import has_a_window, pack_source, share_for_a_small_text

    check_holdout(holdout)
    title = f"ANDREA-{size.name}"
    config = out / f"{title}-TRAIN.json"
    # Another size's experiment needs the tokenizer and the packed files that this one would replace.
    if there := sorted(out.glob("ANDREA-*-TRAIN.json")):
        raise ConfigError(f"{there[0]} is there already; choose another --out, or remove it")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; give a folder, which is made where it is missing")
    for text in texts:
        if not any(document.strip() for document in text.documents()):
            more = f" and {len(text.files) - 1:,} more" if len(text.files) > 1 else ""
            raise DataError(f"{text.files[0]}{more}: no text in it; leave it out of --data")
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train(
        [Source(text.name, text.documents()) for text in texts], segments or size.segments, allow_fewer=True
    )
    tokenizer.save(str(out / "harris_segments.json"))
    targets = {text.name: out / "data" / f"{text.name}.btok" for text in texts}
    (out / "data").mkdir(exist_ok=True)

    def windows(packed: Packed) -> bool:
        return packed.eval is not None and has_a_window(packed.eval, size.context)

    made = {t.name: pack_source(t.files, tokenizer, targets[t.name], holdout, size.context) for t in texts}
    if holdout > 0 and not any(map(windows, made.values())):
        for text in texts:
            if share := share_for_a_small_text(text.files, tokenizer, size.context):
                made[text.name] = pack_files(text.files, tokenizer, targets[text.name], share, size.context)
    in_training = any(map(windows, made.values()))
    entries: list[dict[str, Any]] = []
    for name, packed in made.items():
        entry = {"name": name, "train": f"data/{targets[name].name}"}
        # Training refuses less than a window, `andrea eval` reads it as one that is shorter.
        if windows(packed) or (packed.eval is not None and not in_training):
            entry["eval"] = f"data/{held_out_path(targets[name]).name}"
        entries.append(entry)
    settings = first_experiment(title, size, tokenizer.vocab_size, entries, in_training)
    write_bytes(config, (json.dumps(settings, indent=2) + "\n").encode())
    measured = frozenset(entry["name"] for entry in entries if "eval" in entry)
    return Prepared(config, tokenizer, made, measured)


def first_experiment(
    name: str, size: Size, vocab_size: int, sources: list[dict[str, Any]], evaluated: bool
) -> dict[str, Any]:
    """Return an experiment to begin with; `sources` are the entries of data.sources.

    `evaluated`: training measures the held-out parts too.
    """
    return {
        "name": name,
        "model": {
            "d_model": size.d_model,
            "n_head": size.n_head,
            "n_layer": size.n_layer,
            "context": size.context,
            "vocab_size": vocab_size,
        },
        "train": {
            "steps": size.steps,
            "batch_size": size.batch_size,
            "micro_batches": size.micro_batches,
            "lr": {"peak": size.peak, "min": size.peak / 10, "warmup_steps": size.warmup_steps},
            "eval_every": max(1, size.steps // 20) if evaluated else 0,
        },
        "data": {"tokenizer": "harris_segments.json", "sources": sources},
        "curriculum": {"policy": "proportional"},
        "samples": {"sample_every": max(1, size.steps // 20), "tokens": 120},
        "checkpoint": {},
    }


def start(
    size_name: str, paths: Sequence[Path], out: Path, segments: int | None, holdout: float
) -> Iterator[str]:
    """Prepare an experiment from the user's files, and say what was made and what to type next."""
    size = SIZES[size_name]
    texts = texts_of(paths)
    yield f"Learning the tokenizer and packing {len(texts)} source{'s' if len(texts) > 1 else ''} ..."
    made = prepare(size, texts, out, segments=segments, holdout=holdout)
    vocab_size = made.tokenizer.vocab_size
    wanted = segments or size.segments
    if vocab_size < 257 + wanted:
        yield (
            f"  the text holds {vocab_size - 257:,} segments worth having, fewer than the {wanted:,} asked "
            "for: the vocabulary is smaller"
        )
    for name, packed in made.sources.items():
        held = _counts(packed.eval) if packed.eval else "none"
        if packed.eval and name not in made.measured:
            held += f" (too few for a window of {size.context}, not measured)"
        yield f"  {name}: {_counts(packed.train)}; held out: {held}"
    if holdout > 0 and all(packed.eval is None for packed in made.sources.values()):
        yield "  too little text to hold any out: `andrea eval` needs other text (it says how)"
    tokens = size.steps * size.batch_size * size.micro_batches * size.context
    yield f"{made.config}: {size.n_params(vocab_size):,} parameters, vocabulary {vocab_size:,}"
    yield (
        f"  {size.steps:,} steps of {size.batch_size * size.micro_batches * size.context:,} tokens: "
        f"{tokens / made.n_tokens:,.1f} times through this text; train.steps in the file changes that"
    )
    yield "Next:"
    yield f"  andrea plan {made.config}"
    yield f"  andrea train {made.config} --out {out / 'run'}"
    yield f"  andrea sample {out / 'run'} --prompt 'Once'"
    if any(packed.eval is not None for packed in made.sources.values()):
        yield f"  andrea eval {out / 'run'}"


def _counts(part: BtokHeader) -> str:
    return f"{part.n_docs:,} documents, {part.n_tokens:,} tokens, {part.n_bytes:,} bytes"
