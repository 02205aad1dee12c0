"""Chat in the turn format: `> ` before what you write, `< ` before what the model writes.

The document that the model reads is the one it was trained on (andrea.data.turns): BOS, the turns, and a last
line that holds only the mark `<`. The blank behind the mark is left to the model, since it belongs to the
token of the first word. The reply ends where the model begins another turn or a new document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from andrea.data.turns import ASSISTANT, MARKS, SYSTEM, USER, Turn, render
from andrea.errors import DataError
from andrea.generate.sample import Choice
from andrea.generate.stream import TextStream

if TYPE_CHECKING:
    from andrea.generate.model import TrainedModel

STOPS = tuple("\n" + mark for mark in MARKS.values())
_REPLY = "\n" + MARKS[ASSISTANT].rstrip()


class ReplyText:
    """Takes a reply as the model writes it and gives it as it is meant.

    The blank behind the mark goes, and of a line that begins with backslashes before a mark one backslash
    goes (the escape of the turn format), although the text comes in pieces.
    """

    def __init__(self) -> None:
        self._first = True
        self._line_start = True
        self._backslashes = ""

    def push(self, piece: str) -> str:
        """Return what is certain of the text so far."""
        out = []
        for character in piece:
            if self._first:
                self._first = False
                if character == " ":
                    continue
            if self._line_start and character == "\\":
                self._backslashes += character
                continue
            if self._backslashes:
                out.append(self._backslashes[1:] if character in "<>|" else self._backslashes)
                self._backslashes = ""
            self._line_start = character == "\n"
            out.append(character)
        return "".join(out)

    def end(self) -> str:
        """Return what still waited."""
        rest, self._backslashes = self._backslashes, ""
        return rest


@dataclass(frozen=True)
class Reply:
    """An answer of the model.

    `dropped`: turns that were forgotten to make room. `finish`: "stop", "document", "length" (as many tokens
    as were allowed), "window" (the context was full) or "interrupted".
    """

    text: str
    tokens: int
    finish: str
    dropped: int = 0


@dataclass
class Chat:
    """A conversation with a model. The turns are those it still remembers."""

    model: TrainedModel
    choice: Choice
    seed: int = 42
    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    _asked: int = 0

    def reset(self) -> None:
        """Forget all turns."""
        self.turns.clear()

    def prompt(self, turns: list[Turn]) -> list[int]:
        """Return the ids the model reads before it answers, without BOS."""
        system = [Turn(SYSTEM, self.system)] if self.system else []
        ids: list[int] = list(self.model.tokenizer.encode(render([*system, *turns]) + _REPLY))
        return ids

    def ask(self, message: str, write: Callable[[str], object] = lambda piece: None) -> Reply:
        """Add the message, let the model answer, and hand the answer to `write` piece by piece.

        Old turns are dropped until the answer has its room: `choice.tokens`, at most half of the context.
        Raises DataError, with the conversation as it was, if the message alone does not fit. An interrupt
        (Ctrl-C) ends the answer, and what was written of it stays.
        """
        context = self.model.engine.context
        room = min(self.choice.tokens, context // 2)
        turns = [*self.turns, Turn(USER, message)]
        dropped = 0
        while 1 + len(ids := self.prompt(turns)) + room > context:
            # The oldest question goes with its answer.
            oldest = next((at for at, turn in enumerate(turns[1:], 1) if turn.role == USER), None)
            if oldest is None:
                with_system = " and the system prompt" if self.system else ""
                raise DataError(
                    f"the message takes {1 + len(ids)} tokens with its marks{with_system}, and the "
                    f"context of {context} must hold it and a reply of {room}: shorten it, or allow "
                    "a shorter reply (--tokens)"
                )
            del turns[:oldest]
            dropped += oldest

        limit = min(self.choice.tokens, context - 1 - len(ids))
        stream = TextStream(self.model.tokenizer, (*STOPS, *self.choice.stop), one_document=True)
        shown, reply = ReplyText(), ""

        def show(piece: str) -> None:
            nonlocal reply
            reply += piece
            if piece:
                write(piece)

        def on_token(index: int, token: int) -> bool:
            show(shown.push(stream.push(token)))
            return not stream.finish

        finish = "length" if limit == self.choice.tokens else "window"
        seed = (self.seed + self._asked) % 2**32
        self._asked += 1
        try:
            self.model.engine.generate_batch(
                [ids],
                limit,
                temperature=self.choice.temperature,
                top_k=self.choice.top_k,
                top_p=self.choice.top_p,
                repetition_penalty=self.choice.repetition_penalty,
                seeds=seed,
                on_token=on_token,
            )
        except KeyboardInterrupt:
            finish = "interrupted"
        show(shown.push(stream.end()) + shown.end())
        self.turns = [*turns, Turn(ASSISTANT, reply)]
        return Reply(reply, stream.tokens, stream.finish or finish, dropped)
