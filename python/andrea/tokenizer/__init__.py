"""The Harris tokenizer: morphemes found by distribution alone, lossless on bytes.

from andrea.tokenizer import Tokenizer, train

tokenizer = train(["book.txt", "chat.txt"], n_segments=8192, weights=[1, 3])
tokenizer.save("harris_segments.json")
tokenizer.decode(tokenizer.encode("Any text at all"))
"""

from andrea._core import StreamDecoder, Tokenizer
from andrea.tokenizer.training import Settings, Source, train

__all__ = ["Settings", "Source", "StreamDecoder", "Tokenizer", "train"]
