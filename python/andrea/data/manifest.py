"""The manifest of a preparation (machines) and its report (people). Neither holds a time or a path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from andrea.data.btok import Btok
from andrea.data.files import sha256_of
from andrea.data.merge import Merged, Packed
from andrea.data.recipe import Plan, Recipe
from andrea.data.tally import Tally
from andrea.errors import DataError, IoError

VERSION = 1


class InputFile(msgspec.Struct, frozen=True):
    """A file that was read (a repository has no hash)."""

    name: str
    n_bytes: int
    sha256: str


class SourceEntry(msgspec.Struct, frozen=True):
    """One source of the manifest."""

    name: str
    reader: str
    origin: str
    licence: str
    filters: dict[str, Any]
    inputs: list[InputFile]
    train: Packed
    eval: Packed | None
    tally: dict[str, Any]


class Manifest(msgspec.Struct, frozen=True):
    """All that is needed to check, cite and repeat a preparation."""

    version: int
    name: str
    tokenizer_hash: str
    vocab_size: int
    context: int
    holdout: float
    sources: list[SourceEntry]


def build_manifest(
    recipe: Recipe, plans: Sequence[Plan], merged: Sequence[Merged], token_hash: int, vocab: int
) -> Manifest:
    """Put a manifest together; reads every input once more for its SHA-256."""
    entries = []
    for source, result in zip(plans, merged, strict=True):
        common = _common_folder(source.files)
        inputs = [
            InputFile(str(p.relative_to(common)), p.stat().st_size if p.is_file() else 0, _input_hash(p))
            for p in source.files
        ]
        entries.append(
            SourceEntry(
                source.name,
                source.reader,
                source.origin,
                source.licence,
                source.filters.model_dump(),
                inputs,
                result.train,
                result.eval,
                _relative(result.tally, common),
            )
        )
    return Manifest(
        VERSION, recipe.name, f"{token_hash:016x}", vocab, recipe.context, recipe.holdout, entries
    )


def _common_folder(files: Sequence[Path]) -> Path:
    folders = [p.parent for p in files]
    common = folders[0]
    while not all(common == f or common in f.parents for f in folders):
        common = common.parent
    return common


def _input_hash(path: Path) -> str:
    return sha256_of(path) if path.is_file() else ""


def _relative(tally: dict[str, Any], common: Path) -> dict[str, Any]:
    """Take this machine's folders out of the examples, so that equal data gives equal manifests."""
    prefix = f"{common}/"
    examples = {
        reason: [line.replace(prefix, "") for line in lines] for reason, lines in tally["examples"].items()
    }
    return {**tally, "examples": examples}


def report_text(manifest: Manifest) -> str:
    """Return the report in Markdown."""
    lines = [
        f"# {manifest.name}: prepared data",
        "",
        f"Tokenizer {manifest.tokenizer_hash} ({manifest.vocab_size:,} ids), documents of at most "
        f"{manifest.context:,} tokens, {manifest.holdout:.2%} held out.",
        "",
        "| source | documents | held out | bytes | tokens | bytes/token | dropped | mended |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for entry in manifest.sources:
        tally = Tally.from_json(entry.tally)
        train = entry.train
        lines.append(
            f"| {entry.name} | {train.n_docs:,} | {entry.eval.n_docs if entry.eval else 0:,} "
            f"| {train.n_bytes:,} | {train.n_tokens:,} | {train.n_bytes / train.n_tokens:.3f} "
            f"| {tally.dropped.total():,} | {tally.mended.total():,} |"
        )
    for entry in manifest.sources:
        tally = Tally.from_json(entry.tally)
        lines += ["", f"## {entry.name}", "", f"Origin: {entry.origin}. Licence: {entry.licence}.", ""]
        lines.append(
            f"Read with `{entry.reader}` from {len(entry.inputs):,} file(s), {tally.read_bytes:,} bytes."
        )
        if tally.layouts:
            found = ", ".join(f"{name} {count:,}" for name, count in sorted(tally.layouts.items()))
            lines.append(f"Layouts: {found}.")
        if tally.dropped or tally.mended:
            lines += ["", "```", *tally.lines(explain=True), "```"]
        lines += ["", "| tokens a document | documents |", "| ---: | ---: |"]
        lines += [f"| {low:,} - {high - 1:,} | {count:,} |" for low, high, count in entry.train.lengths]
    return "\n".join(lines) + "\n"


def load_manifest(path: Path) -> Manifest:
    """Read a manifest; DataError if it is none."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise IoError(f"{path}: cannot read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: not a manifest of andrea: {error}") from error
    if manifest.version != VERSION:
        raise DataError(f"{path}: manifest version {manifest.version}, this program reads {VERSION}")
    return manifest


def verify_manifest(path: Path) -> list[str]:
    """Check each packed file against the manifest; returns a line a file, DataError for the first bad one."""
    manifest = load_manifest(path)
    lines = []
    for entry in manifest.sources:
        for packed in (entry.train, entry.eval):
            if packed is None:
                continue
            file = path.parent / packed.file
            if not file.is_file():
                raise DataError(f"{file}: missing; run andrea data prep with --restart")
            found = sha256_of(file)
            if found != packed.sha256:
                raise DataError(
                    f"{file}: SHA-256 {found[:16]}..., the manifest says {packed.sha256[:16]}...; "
                    "the file was changed or damaged: prepare it again (andrea data prep --restart)"
                )
            header = Btok(file).header
            told = (packed.n_docs, packed.n_tokens, packed.n_bytes, int(manifest.tokenizer_hash, 16))
            if told != (header.n_docs, header.n_tokens, header.n_bytes, header.tokenizer_hash):
                raise DataError(f"{file}: counts or tokenizer differ from the manifest; prepare it again")
            lines.append(f"{packed.file}: good, {header.n_docs:,} documents, {header.n_tokens:,} tokens")
    return lines
