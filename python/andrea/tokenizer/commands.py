"""`andrea tokenizer ...`: learn, use, measure and export. Errors are raised; the caller shows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from andrea.tokenizer.training import Source

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
    sample: Annotated[
        int | None, typer.Option(min=1, help="Take about so many MB in all, by weight.")
    ] = None,
    allow_fewer: Annotated[
        bool, typer.Option("--allow-fewer", help="Accept a saturated vocabulary.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Read files as plain UTF-8, fast.")] = False,
    boundary_weight: Annotated[float, typer.Option(help="0: shortest text; more: better morphemes.")] = 1.4,
    threads: Annotated[
        int, typer.Option(min=0, max=4096, help="0 takes all cores; the result is the same.")
    ] = 0,
) -> None:
    """Learn N segments from files, or from the sources of an experiment by their curriculum weights."""
    import json

    from andrea.errors import ConfigError
    from andrea.tokenizer.progress import show_progress
    from andrea.tokenizer.training import Settings
    from andrea.tokenizer.training import train as learn

    try:
        shares = [float(share) for share in weights.split(",")] if weights else None
    except ValueError as error:
        raise ConfigError(f"--weights {weights}: numbers with commas between are expected") from error
    if shares is not None and files[0].suffix == ".json":
        raise ConfigError("--weights: the experiment's curriculum gives the weights")
    sources = _sources(files, text, raw)
    out.parent.mkdir(parents=True, exist_ok=True)  # before the work, so that it is not in vain
    with show_progress() as progress:
        tokenizer = learn(
            sources,
            n,
            shares,
            sample_bytes=sample * 1_000_000 if sample else None,
            settings=Settings(boundary_weight=boundary_weight),
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
        wrong = next((word for word in words if not word.lstrip("-").isdecimal()), None)
        if wrong is not None:
            raise DataError(
                f"standard input: {wrong!r} is no id; whole numbers with spaces between are expected"
            )
        ids = [int(word) for word in words]
    if (wide := next((i for i in ids if not 0 <= i < coder.vocab_size), None)) is not None:
        raise DataError(f"{wide} is no id of {tokenizer}, which has 0..{coder.vocab_size - 1}")
    sys.stdout.buffer.write(coder.decode_bytes(ids))
    sys.stdout.buffer.flush()


def _sources(files: list[Path], text: list[str] | None, raw: bool) -> list[Source]:
    """Sources of text files, or of one experiment."""
    from andrea.tokenizer.inputs import experiment_sources, file_sources

    if len(files) == 1 and files[0].suffix == ".json":
        return experiment_sources(files[0], _text_options(text or []))
    return file_sources(files, raw)


@app.command()
def report(
    tokenizer: TokenizerFile,
    text: Annotated[list[str], typer.Option(help="KIND=FILE: held-out text of a kind; may be repeated.")],
    against: Annotated[str, typer.Option(help="bpe, unigram or both, with a comma.")] = "",
    train: Annotated[list[Path] | None, typer.Option(help="Text the others are trained on.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Words, a line each, morphs separated by spaces.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a vocabulary beside BPE and unigram of the same size: length, boundaries, use."""
    import json
    from dataclasses import asdict

    from andrea._core import Tokenizer
    from andrea.errors import ConfigError
    from andrea.tokenizer.baselines import Bpe, Encoder, Harris, Unigram
    from andrea.tokenizer.measure import measure, parts, read_gold, read_text

    coder = Tokenizer.load(str(tokenizer))
    texts = {kind: "\n".join(map(read_text, paths)) for kind, paths in _text_options(text).items()}
    words = read_gold(gold) if gold is not None else None
    encoders: list[Encoder] = [Harris(coder)]
    makers: dict[str, type[Bpe] | type[Unigram]] = {"bpe": Bpe, "unigram": Unigram}
    for name in filter(None, against.split(",")):
        if name not in makers:
            raise ConfigError(f"--against {name}: bpe and unigram are known")
        if not train:
            raise ConfigError(
                "--against needs --train FILE, the text that andrea's vocabulary was trained on"
            )
        encoders.append(
            makers[name]((part for path in train for part in parts(read_text(path))), coder.vocab_size)
        )
    figures = [measure(encoder, texts, words) for encoder in encoders]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in figures], indent=1))
        return
    rows = [["", *(one.name for one in figures)], ["vocabulary", *(f"{one.vocab_size:,}" for one in figures)]]
    rows += [[f"bytes/id {kind}", *(f"{one.bytes_per_id[kind]:.3f}" for one in figures)] for kind in texts]
    rows.append(["ids/word", *(f"{one.ids_per_word:.3f}" for one in figures)])
    rows.append(["Renyi efficiency", *(f"{one.renyi_efficiency:.3f}" for one in figures)])
    rows.append(["vocabulary used", *(f"{one.share_used:.1%}" for one in figures)])
    if words is not None:
        for name in ("precision", "recall", "f1"):
            rows.append([f"boundary {name}", *(f"{getattr(one.gold, name):.3f}" for one in figures)])
    for first, *cells in rows:
        typer.echo(f"{first:<22}" + "".join(f"{cell:>12}" for cell in cells))


@app.command()
def align(
    model: Annotated[Path, typer.Argument(help="The vocabulary a model has.")],
    data: Annotated[Path, typer.Argument(help="A vocabulary trained on the data it sees.")],
    d_model: Annotated[int, typer.Option(min=1, help="Width of the model's embedding.")] = 768,
) -> None:
    """Show how much of a model's vocabulary its data would choose again, and what the rest costs."""
    from andrea._core import Tokenizer
    from andrea.tokenizer.measure import align as compare

    found = compare(Tokenizer.load(str(model)), Tokenizer.load(str(data)), d_model)
    typer.echo(f"overlap {found.overlap:6.1%}  {found.shared:,} of {found.slots:,} segments")
    typer.echo(
        f"waste   {found.waste:6.1%}  {found.slots - found.shared:,} slots, {found.floats:,.0f} floats"
    )


@app.command()
def sweep(
    files: Annotated[list[Path], typer.Argument(help="Text files, or one experiment (.json).")],
    sizes: Annotated[str, typer.Option(help="Numbers of segments.")] = "512,1024,2048,4096,8192,16384,32768",
    test: Annotated[list[Path] | None, typer.Option(help="Held-out text [default: the files].")] = None,
    text: Annotated[list[str] | None, typer.Option(help="NAME=FILE: text of an experiment's source.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the curve as SVG.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Read files as plain UTF-8, fast.")] = False,
    threads: Annotated[int, typer.Option(min=0, max=4096, help="0 takes all cores.")] = 0,
) -> None:
    """Train many sizes on the same text: found, bytes per id, marginal gain, and where it saturates."""
    from andrea.errors import ConfigError
    from andrea.tokenizer.measure import SweepRow, read_text, sweep_svg
    from andrea.tokenizer.measure import sweep as run
    from andrea.tokenizer.training import count

    if not all(size.strip().isdigit() for size in sizes.split(",")):
        raise ConfigError(f"--sizes {sizes}: whole numbers with commas between are expected")
    experiment = len(files) == 1 and files[0].suffix == ".json"
    if experiment and not test:
        raise ConfigError("a sweep over an experiment needs --test FILE to measure on")
    held_out = "\n".join(map(read_text, test or files))
    counted = [count(source, threads) for source in _sources(files, text, raw)]
    typer.echo(f"{'requested':>10}{'found':>10}{'bytes/id':>10}{'gain/1000':>11}")

    def show(row: SweepRow) -> None:
        gain = "" if row.gain is None else f"{row.gain:.4f}"
        bar = "#" * round(8 * row.bytes_per_id) + (" saturated" if row.saturated else "")
        typer.echo(f"{row.requested:>10,}{row.found:>10,}{row.bytes_per_id:>10.3f}{gain:>11}  {bar}")

    rows = run(counted, [int(size) for size in sizes.split(",")], held_out, threads=threads, tell=show)
    if plot is not None:
        from andrea.data.files import write_bytes

        write_bytes(plot, sweep_svg(rows).encode())
        typer.echo(f"{plot}: written")


@app.command()
def export(
    tokenizer: TokenizerFile,
    out: Annotated[Path, typer.Option("--out", help="Folder to write into.")],
    context: Annotated[
        int | None, typer.Option(min=1, help="Longest input of the model, for the config.")
    ] = None,
) -> None:
    """Write tokenizer.json with its config, and vocabulary.gguf; both give the very same ids."""
    from andrea._core import Tokenizer
    from andrea.tokenizer.export_gguf import write_gguf_vocabulary
    from andrea.tokenizer.export_json import write_tokenizer_json

    coder = Tokenizer.load(str(tokenizer))
    written = write_tokenizer_json(coder, out, context)
    write_gguf_vocabulary(coder, out / "vocabulary.gguf")
    for path in [*written, out / "vocabulary.gguf"]:
        typer.echo(f"{path}: written")
