"""What `andrea check` says of an experiment that the validator accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.train.run import settings_of

if TYPE_CHECKING:
    from andrea._core import Experiment


def checked_lines(experiment: Experiment, config: Path, files: bool) -> Iterator[str]:
    """Yield lines: the exact size, the batch, the sources; with `files`, all of them opened and verified.

    Raises ConfigError or DataError if tokenizer, sources and model do not belong together.
    """
    from andrea._core import count_parameters

    settings = settings_of(experiment)
    model, train = settings["model"], settings["train"]
    tokens = train["batch_size"] * train["micro_batches"] * model["context"]
    yield f"{config}: {settings['name']} is well-formed"
    yield (
        f"  model   {count_parameters(experiment):,} parameters: d_model {model['d_model']}, "
        f"{model['n_head']} heads, {model['n_layer']} layers, context {model['context']}, "
        f"vocabulary {model['vocab_size']:,}"
    )
    yield (
        f"  train   {train['steps']:,} steps of {train['batch_size']} x {model['context']} x "
        f"{train['micro_batches']} = {tokens:,} tokens, {train['precision']}"
    )
    data = settings.get("data", {})
    sources = data.get("sources", [])
    yield f"  data    {len(sources)} sources, policy {settings['curriculum']['policy']}"
    if files:
        yield from _file_lines(data, sources, model["vocab_size"])
    else:
        yield "  (tokenizer and sources were not opened: --files does)"


def _file_lines(data: dict[str, Any], sources: list[dict[str, Any]], vocab_size: int) -> Iterator[str]:
    from andrea.data.btok import Btok
    from andrea.errors import ConfigError
    from andrea.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(data["tokenizer"]) if data.get("tokenizer") else None
    if tokenizer is not None:
        if tokenizer.vocab_size != vocab_size:
            raise ConfigError(
                f"model.vocab_size is {vocab_size}, but {data['tokenizer']} has {tokenizer.vocab_size} ids; "
                f"write {tokenizer.vocab_size} or name another tokenizer"
            )
        yield f"  tokenizer {data['tokenizer']}: {tokenizer.vocab_size:,} ids"
    for source in sources:
        for part in ("train", "eval"):
            if not source.get(part):
                continue
            packed = Btok(Path(source[part]))
            if tokenizer is not None:
                packed.check_tokenizer(tokenizer)
            header = packed.header
            yield (
                f"  {source['name']} {part}: {header.n_docs:,} documents, {header.n_tokens:,} tokens, "
                f"{header.n_bytes:,} bytes"
            )
