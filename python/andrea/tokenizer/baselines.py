"""What vocabularies are compared by: ours, byte-level BPE (Hugging Face) and unigram (SentencePiece)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from andrea._core import Tokenizer
from andrea.errors import ConfigError

PART_CHARACTERS = 1 << 18  # texts are encoded in parts of about this size


class Encoder(Protocol):
    """One vocabulary under measurement."""

    name: str
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""

    def cuts(self, word: str) -> set[int]:
        """Places inside the word, in characters, where ids meet when it stands after a space."""


def _inner(ends: Sequence[int]) -> set[int]:
    """Cuts of " word" from the ends of its pieces; the space is not part of the word."""
    return {end - 1 for end in ends[:-1] if end > 1}


class Harris:
    """Ours."""

    def __init__(self, tokenizer: Tokenizer, name: str = "andrea") -> None:
        self.name = name
        self.vocab_size = tokenizer.vocab_size
        self._tokenizer = tokenizer
        self._lengths = [len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)]

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids: list[int] = self._tokenizer.encode(text).tolist()
        return ids

    def cuts(self, word: str) -> set[int]:
        """Cuts that fall between characters."""
        data = (" " + word).encode()
        ends, at = [], 0
        for i in self.encode(" " + word):
            at += self._lengths[i]
            # Inside a character it is no cut of the word.
            if at == len(data) or data[at] & 0xC0 != 0x80:
                ends.append(len(data[:at].decode()))
        return _inner(ends)


class Bpe:
    """Byte-level BPE as GPT-2's, trained by Hugging Face tokenizers on the same text."""

    name = "bpe"

    def __init__(self, texts: Iterator[str], vocab_size: int) -> None:
        try:
            import tokenizers as hf
        except ImportError as error:
            raise ConfigError("bpe needs the package tokenizers: pip install tokenizers") from error
        self._coder = hf.Tokenizer(hf.models.BPE())
        self._coder.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = hf.trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<bos>"],
            show_progress=False,
        )
        self._coder.train_from_iterator(texts, trainer)
        self.vocab_size = self._coder.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids: list[int] = self._coder.encode(text).ids
        return ids

    def cuts(self, word: str) -> set[int]:
        """Cuts by the offsets that the library gives."""
        return _inner([end for _, end in self._coder.encode(" " + word).offsets])


class Unigram:
    """SentencePiece unigram with byte fallback on the same text. It sees lines; a line end costs one id."""

    name = "unigram"

    def __init__(self, texts: Iterator[str], vocab_size: int) -> None:
        try:
            import sentencepiece
        except ImportError as error:
            raise ConfigError("unigram needs the package sentencepiece: pip install sentencepiece") from error
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in texts for line in text.split("\n") if line),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            max_sentence_length=1 << 16,
            minloglevel=2,
        )
        self._coder: Any = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        self.vocab_size = self._coder.vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of the lines, with one id, -1, between them."""
        ids: list[int] = []
        for i, part in enumerate(self._coder.encode(text.split("\n"))):
            if i > 0:
                ids.append(-1)
            ids += part
        return ids

    def cuts(self, word: str) -> set[int]:
        """Cuts by the lengths of the pieces."""
        ends, at = [], 0
        for piece in self._coder.encode(" " + word, out_type=str):
            at += 1 if piece.startswith("<0x") else len(piece)
            ends.append(at)
        return _inner(ends)
