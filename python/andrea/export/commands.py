"""`andrea export` and `andrea import`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """What is written."""

    hf = "hf"
    safetensors = "safetensors"
    gguf = "gguf"


class Type(str, Enum):
    """How numbers are stored."""

    f32 = "f32"
    f16 = "f16"
    q8_0 = "q8_0"


ForceOption = Annotated[bool, typer.Option("--force", help="Write over what is there.")]


def export(
    checkpoint: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run directory or a .bin.")],
    format: Annotated[Format, typer.Option("--format", help="hf: a folder; the others: one file.")],
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="The folder or file to write.")],
    type: Annotated[Type, typer.Option("--type", help="q8_0: gguf only.")] = Type.f32,
    config: Annotated[
        Path | None, typer.Option("--config", help="The experiment, for a .bin outside its run directory.")
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option("--license", metavar="ID", help="Licence of the weights, such as apache-2.0."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a model for transformers, llama.cpp or any reader of safetensors."""
    from andrea.errors import ConfigError
    from andrea.export.gguf_file import export_gguf
    from andrea.export.hugging_face import export_folder
    from andrea.export.source import load_trained
    from andrea.export.tensors_file import export_tensors

    if type is Type.q8_0 and format is not Format.gguf:
        raise ConfigError("--type q8_0: only gguf has it; f32 and f16 are there for every format")
    trained = load_trained(checkpoint, config)
    if out.exists() and out.samefile(trained.checkpoint):
        raise ConfigError(f"{out} is the checkpoint that is exported; choose another --out")
    lines = list(trained.notes)
    if format is Format.hf:
        written = export_folder(trained, out, type.value, force, licence)
        lines += [f"{path}: {path.stat().st_size:,} bytes" for path in written]
        if licence is None:
            lines.append("README.md states no licence for the weights; --license ID does")
    else:
        if format is Format.gguf:
            lines += export_gguf(trained, out, type.value, force, licence)
        else:
            export_tensors(trained, out, type.value, force)
        lines.append(f"{out}: {out.stat().st_size:,} bytes")
    for line in lines:
        typer.echo(line)
    typer.echo(f"{trained.name}, step {trained.step:,}: {trained.shape.n_params:,} parameters, {type.value}")


def import_model(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="config.json and model.safetensors.")],
    out: Annotated[Path, typer.Option("--out", metavar="X.bin", help="The checkpoint to write.")],
    force: ForceOption = False,
) -> None:
    """Make a checkpoint of a GPT-2-shaped model without biases, to train on from (`train --from`)."""
    import json

    from andrea.export.importing import import_folder

    made = import_folder(folder, out, force)
    typer.echo(f"{made.path}: {made.shape.n_params:,} parameters, step 0, moments zero")
    typer.echo(f'An experiment for it has "model": {json.dumps(vars(made.shape))}')
    if made.segments is not None:
        typer.echo(f'and "data": {{"tokenizer": {json.dumps(str(made.segments))}, ...}}')
    else:
        typer.echo(
            f"The folder holds no vocabulary of ours with {made.shape.vocab_size:,} ids: sources must be "
            "packed with ids that mean what the model's do"
        )
    typer.echo(f"andrea train EXPERIMENT.json --from {made.path} --out RUN")
