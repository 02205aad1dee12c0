"""Text from ids that arrive one by one: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from andrea.tokenizer import Tokenizer

# A model writes whatever bytes it likes: control characters would act on a terminal, lone surrogates cannot
# be written at all.
_UNFIT = dict.fromkeys({*range(32), *range(0x7F, 0xA0), *range(0xD800, 0xE000)} - {9, 10}, "\ufffd")


def fit_for_terminal(text: str) -> str:
    """Return text with U+FFFD for every control character but line ends and tabs."""
    return text.translate(_UNFIT)


class TextStream:
    """The text of one sequence as far as it is certain.

    Bytes wait until their character is whole, and text that may be the beginning of a stop string waits until
    that is decided. `finish` is "" while it goes on, then "stop" or "document" (the model began a new one).
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), one_document: bool = False) -> None:
        self._decoder = tokenizer.stream_decoder()
        self._bos = tokenizer.bos if one_document else -1
        self._stop = [string for string in stop if string]
        self._waiting = ""
        self.text = ""
        self.tokens = 0
        self.finish = ""

    def push(self, token: int) -> str:
        """Take the next id; returns what can be shown now. After the end, ids are passed over."""
        if self.finish:
            return ""
        self.tokens += 1
        if token == self._bos:
            self.finish = "document"
            return self._show(self._waiting + str(self._decoder.finish()))
        self._waiting += str(self._decoder.push([token]))
        found = [at for string in self._stop if (at := self._waiting.find(string)) >= 0]
        if found:
            self.finish = "stop"
            return self._show(self._waiting[: min(found)])
        held = max((_overlap(self._waiting, string) for string in self._stop), default=0)
        certain = len(self._waiting) - held
        piece, rest = self._waiting[:certain], self._waiting[certain:]
        self._show(piece)
        self._waiting = rest
        return piece

    def end(self) -> str:
        """Return what still waited, when there are no more ids."""
        return "" if self.finish else self._show(self._waiting + str(self._decoder.finish()))

    def _show(self, text: str) -> str:
        self._waiting = ""
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
