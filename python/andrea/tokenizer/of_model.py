"""The tokenizer of a trained model: the one it was trained with, or none."""

from __future__ import annotations

from andrea.errors import ConfigError, DataError, IoError
from andrea.tokenizer import Tokenizer


def load_for_model(path: str, vocab_size: int, promised: str | None) -> Tokenizer:
    """Load a tokenizer and check that a model of `vocab_size` ids was trained with it.

    `promised` is the hash in the model's state, sixteen hex digits; None, or zeros, where it is not known.
    Raises ConfigError for another vocabulary, DataError for another hash, IoError for a file that cannot be
    read.
    """
    try:
        tokenizer = Tokenizer.load(path)
    except IoError as error:
        raise IoError(
            f"{error}; the model was trained with it: put it back, or name its place in an experiment given "
            "by --config"
        ) from error
    if tokenizer.vocab_size != vocab_size:
        raise ConfigError(
            f"{path} has {tokenizer.vocab_size} ids, the model {vocab_size}: this is not the tokenizer "
            "it was trained with"
        )
    own = f"{tokenizer.hash:016x}"
    if promised not in (None, own, f"{0:016x}"):
        raise DataError(
            f"{path} has hash {own}, the model was trained with {promised}; put that tokenizer back, "
            "or name its place in an experiment given by --config"
        )
    return tokenizer
