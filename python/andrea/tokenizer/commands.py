"""`andrea tokenizer ...`: learn, use, measure and export. Errors are raised; the caller shows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Learn segments from text; encode, decode, measure, export.", no_args_is_help=True)

TokenizerFile = Annotated[Path, typer.Option("--tokenizer", "-t", help="harris_segments.json")]


def _text_options(options: list[str]) -> dict[str, list[Path]]:
    from andrea.errors import ConfigError

    texts: dict[str, list[Path]] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"--text {option}: write --text NAME=FILE")
        texts.setdefault(name, []).append(Path(path))
    return texts


@app.command()
def train(
    files: Annotated[list[Path], typer.Argument(help="Text files, or one experiment (.json): its sources.")],
    n: Annotated[
        int, typer.Option("--n", "-n", help="Number of segments; the vocabulary has 257 more.")
    ] = 8192,
    out: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("harris_segments.json"),
    weights: Annotated[str, typer.Option(help="Shares of the files in the mix, such as 3,1,1.")] = "",
    text: Annotated[list[str] | None, typer.Option(help="NAME=FILE: text of an experiment's source.")] = None,
    sample: Annotated[int | None, typer.Option(help="Take about so many MB in all, by weight.")] = None,
    allow_fewer: Annotated[
        bool, typer.Option("--allow-fewer", help="Accept a saturated vocabulary.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Read files as plain UTF-8, fast.")] = False,
    threads: Annotated[int, typer.Option(help="0 takes all cores; the result is the same.")] = 0,
) -> None:
    """Learn N segments from files, or from the sources of an experiment by their curriculum weights."""
    import json

    from andrea.errors import ConfigError
    from andrea.tokenizer.inputs import experiment_sources, file_sources
    from andrea.tokenizer.progress import show_progress
    from andrea.tokenizer.training import train as learn

    shares = [float(share) for share in weights.split(",")] if weights else None
    if len(files) == 1 and files[0].suffix == ".json":
        if shares is not None:
            raise ConfigError("--weights: the experiment's curriculum gives the weights")
        sources = experiment_sources(files[0], _text_options(text or []))
    else:
        sources = file_sources(files, raw)
    with show_progress() as progress:
        tokenizer = learn(
            sources,
            n,
            shares,
            sample_bytes=sample * 1_000_000 if sample else None,
            allow_fewer=allow_fewer,
            threads=threads,
            progress=progress,
        )
    tokenizer.save(str(out))
    facts = json.loads(tokenizer.training_json)
    for source in facts["sources"]:
        typer.echo(f"  {source['share']:6.1%}  {source['bytes']:>14,} bytes  {source['name']}")
    found = len(tokenizer.segments)
    short = f" (found {found} < {n}: saturated)" if found < n else ""
    typer.echo(f"{out}: N = {found}{short}, V = {tokenizer.vocab_size}, hash {tokenizer.hash:016x}")


@app.command()
def encode(
    tokenizer: TokenizerFile,
    text: Annotated[str | None, typer.Argument(help="Text; without it standard input is read.")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show the pieces instead of the ids.")] = False,
) -> None:
    """Print the ids of a text on one line."""
    from andrea._core import Tokenizer

    coder = Tokenizer.load(str(tokenizer))
    data = sys.stdin.buffer.read() if text is None else text.encode("utf-8", "surrogateescape")
    ids = coder.encode(data).tolist()
    if pieces:
        typer.echo(" ".join(repr(coder.token_bytes(i).decode("utf-8", "backslashreplace")) for i in ids))
    else:
        typer.echo(" ".join(map(str, ids)))


@app.command()
def decode(
    tokenizer: TokenizerFile,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids; without them standard input is read.")] = None,
) -> None:
    """Write the exact bytes of ids to standard output."""
    from andrea._core import Tokenizer
    from andrea.errors import DataError

    coder = Tokenizer.load(str(tokenizer))
    if not ids:
        words = sys.stdin.read().split()
        wrong = next((word for word in words if not word.lstrip("-").isdigit()), None)
        if wrong is not None:
            raise DataError(
                f"standard input: {wrong!r} is no id; whole numbers with spaces between are expected"
            )
        ids = [int(word) for word in words]
    sys.stdout.buffer.write(coder.decode_bytes(ids))
    sys.stdout.buffer.flush()
