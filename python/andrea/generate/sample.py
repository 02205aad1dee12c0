"""Samples: one or many texts, several written at once, each shown as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from andrea.generate.stream import TextStream, fit_for_terminal

if TYPE_CHECKING:
    from andrea.generate.model import TrainedModel


@dataclass(frozen=True)
class Choice:
    """How tokens are chosen, how many, and what ends a text before that."""

    tokens: int = 200
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    one_document: bool = False


@dataclass(frozen=True)
class Wanted:
    """A text to be written."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class Sample:
    """A text that was written. `finish` is "length", "stop" or "document"."""

    prompt: str
    seed: int
    text: str  # without the prompt
    tokens: int
    finish: str


@dataclass(frozen=True)
class Timing:
    """What the writing took."""

    prompt_tokens: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.tokens} tokens after {self.prompt_tokens} of the prompts in {self.seconds:.2f} s: "
            f"{self.tokens / max(self.seconds, 1e-9):.1f} tokens/s"
        )


# Sees (index of the text, what can be shown now, True at its end).
OnText = Callable[[int, str, bool], object]


def write_samples(
    model: TrainedModel, wanted: Sequence[Wanted], choice: Choice, on_text: OnText | None = None
) -> tuple[list[Sample], Timing]:
    """Write all texts, as many at once as the engine was made for; the same texts as one by one."""
    show = on_text or (lambda index, piece, last: None)
    streams = [TextStream(model.tokenizer, choice.stop, choice.one_document) for _ in wanted]
    prompts = [model.tokenizer.encode(one.prompt) for one in wanted]

    def on_token(index: int, token: int) -> bool:
        stream = streams[index]
        piece = stream.push(token)
        last = bool(stream.finish) or stream.tokens == choice.tokens
        if last:
            piece += stream.end()
        if piece or last:
            show(index, piece, last)
        return not last

    begun = time.perf_counter()
    model.engine.generate_batch(
        prompts,
        choice.tokens,
        temperature=choice.temperature,
        top_k=choice.top_k,
        top_p=choice.top_p,
        repetition_penalty=choice.repetition_penalty,
        seeds=[one.seed for one in wanted],
        on_token=on_token,
    )
    seconds = time.perf_counter() - begun
    samples = [
        Sample(one.prompt, one.seed, stream.text, stream.tokens, stream.finish or "length")
        for one, stream in zip(wanted, streams, strict=True)
    ]
    read = sum(1 + len(prompt) for prompt in prompts)
    return samples, Timing(read, sum(stream.tokens for stream in streams), seconds)


def write_sample(
    model: TrainedModel, prompt: str, choice: Choice, seed: int, write: Callable[[str], object]
) -> Sample:
    """Write one text and hand it to `write` piece by piece, made fit for a terminal."""
    samples, _ = write_samples(
        model,
        [Wanted(prompt, seed)],
        choice,
        lambda index, piece, last: write(fit_for_terminal(piece)) if piece else None,
    )
    return samples[0]


class InOrder:
    """Shows texts that grow together one after the other: the first one live, the others behind it."""

    def __init__(self, headers: Sequence[str], write: Callable[[str], object]) -> None:
        self._headers = headers
        self._write = write
        self._waiting = [""] * len(headers)
        self._ended = [False] * len(headers)
        self._at = 0
        if headers:
            write(headers[0])

    def __call__(self, index: int, piece: str, last: bool) -> None:
        """Take a piece of text `index`."""
        self._waiting[index] += fit_for_terminal(piece)
        self._ended[index] = last
        while self._at < len(self._headers):
            at = self._at
            self._write(self._waiting[at])
            self._waiting[at] = ""
            if not self._ended[at]:
                return
            self._at += 1
            self._write("\n" + (self._headers[self._at] if self._at < len(self._headers) else ""))
