"""`andrea data ...`: the commands of the data room. Errors are raised; the caller turns them into codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Prepare, pack, inspect and verify training data.", no_args_is_help=True)
console = Console(highlight=False, markup=False, soft_wrap=True)


@app.command()
def pack(
    files: Annotated[list[Path], typer.Argument(help="Text, .jsonl or .py files (.gz and .zst too).")],
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="harris_segments.json")],
    out: Annotated[Path, typer.Option("--out", help="The .btok to write.")],
    holdout: Annotated[float, typer.Option(help="Share of documents set aside in X.eval.btok.")] = 0.0,
    context: Annotated[int | None, typer.Option(help="Most tokens a document [default: 1024].")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show examples of what was left out.")] = False,
) -> None:
    """Pack files into one .btok; long texts are cut at paragraph or sentence ends."""
    from andrea.data.btok import load_tokenizer
    from andrea.data.pack import held_out_path, pack_files

    packed = pack_files(files, load_tokenizer(tokenizer), out, holdout, context)
    parts = [(out, packed.train)]
    if packed.eval is not None:
        parts.append((held_out_path(out), packed.eval))
    for name, head in parts:
        console.print(
            f"{name}: {head.n_docs:,} documents, {head.n_tokens:,} tokens, {head.n_bytes:,} bytes "
            f"({head.n_bytes / head.n_tokens:.3f} bytes a token)"
        )
    for line in packed.tally.lines(explain):
        console.print(line)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="X.btok")],
    doc: Annotated[int | None, typer.Option("--doc", help="Show document N.")] = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Show K documents, evenly drawn.")] = 0,
    stats: Annotated[bool, typer.Option("--stats", help="Show figures and the length histogram.")] = False,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Needed to show text.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of --sample.")] = 0,
) -> None:
    """Verify a .btok and look inside. Without a tokenizer, documents show as ids."""
    from andrea.data.btok import Btok, load_tokenizer
    from andrea.data.inspect import document_text, find_tokenizer, sample_documents, stats_lines
    from andrea.errors import ConfigError

    packed = Btok(path)
    found = tokenizer or find_tokenizer(path)
    coder = load_tokenizer(found) if found else None
    if coder is not None:
        if tokenizer is None and coder.hash != packed.header.tokenizer_hash:
            coder = None
        else:
            packed.check_tokenizer(coder)
    wanted = sample_documents(packed, sample, seed)
    if doc is not None:
        if not 0 <= doc < len(packed):
            raise ConfigError(f"{path}: document {doc} is not there; it has documents 0..{len(packed) - 1}")
        wanted = [doc]
    if stats or not wanted:
        for line in stats_lines(packed):
            console.print(line)
    for number in wanted:
        console.print(f"--- document {number}: {len(packed[number]):,} tokens")
        console.print(
            " ".join(map(str, packed[number].tolist()))
            if coder is None
            else document_text(packed, coder, number)
        )
    if wanted and coder is None:
        console.print("(ids; give --tokenizer harris_segments.json to see text)")


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", help="Folder for the text files.")]) -> None:
    """Write the sources of `make demo`: text that every machine with Python has."""
    from andrea.data.demo import collect

    for source in collect(out):
        console.print(f"{source.path}: {source.documents:,} documents, {source.n_bytes:,} bytes")


@app.command()
def prep(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.json")],
    processes: Annotated[int, typer.Option("--processes", "-j", min=0, help="0: one a core.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with unfinished work.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Throw earlier work away.")] = False,
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Keep OUT/.work when done.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show examples of what was dropped.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Instead of the recipe's out.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Instead of the recipe's.")] = None,
) -> None:
    """Prepare all sources of a recipe: filter, deduplicate, pack, report."""
    import os

    from andrea.data.prep import prepare
    from andrea.data.tally import Tally

    count = processes or len(os.sched_getaffinity(0))
    manifest = prepare(recipe, count, resume, restart, keep_work, console.print, out, tokenizer)
    for source in manifest.sources:
        lines = Tally.from_json(source.tally).lines(explain)
        for line in lines:
            console.print(f"{source.name}: {line}")


@app.command()
def verify(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The file, or the folder it is in.")],
) -> None:
    """Check every packed file against a manifest: SHA-256, header, offsets, ids."""
    from andrea.data.manifest import verify_manifest

    for line in verify_manifest(manifest / "manifest.json" if manifest.is_dir() else manifest):
        console.print(line)


@app.command(name="list")
def list_sources() -> None:
    """Show the named sources: origin, licence, layout, and what of them is on this machine."""
    from andrea.data.sources import SOURCES, data_root, state_of

    console.print(f"folder of the named sources: {data_root()} (set ANDREA_DATA to change it)")
    for source in SOURCES.values():
        console.print(f"{source.name}  (reader {source.reader})")
        console.print(f"    origin   {source.origin}")
        console.print(f"    licence  {source.licence}")
        console.print(f"    layout   {source.layout}")
        console.print(f"    state    {state_of(source)}")


@app.command()
def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A named source, or hermes3 for its three.")],
    root: Annotated[Path | None, typer.Option("--to", help="Folder of the sources.")] = None,
) -> None:
    """Fetch a named source: resumable, checksummed; offline it says what to fetch and where to put it."""
    from andrea.data.pull import pull as fetch

    fetch(name, root, say=console.print)
