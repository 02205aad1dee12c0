"""The Harris tokenizer: morphemes found by distribution alone, lossless on bytes."""

from andrea._core import StreamDecoder, Tokenizer

__all__ = ["StreamDecoder", "Tokenizer"]
