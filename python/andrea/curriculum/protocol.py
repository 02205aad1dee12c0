"""The lines between a trainer and `andrea proxy`: one JSON object a line, version 1 (docs/PROXY.md).

Doubles travel as shortest round-trip decimals and losses as those of float32, so that both sides hold the
same bits. Texts travel as base64, because a sample may end inside a character.
"""

from __future__ import annotations

import msgspec

from andrea.errors import DataError

PROTOCOL = 1
MAX_LINE = 16 << 20  # bytes, both ways; a phase of 42 steps x 4,096 rows takes about 7 MiB
MAX_STATE = 8 << 20


class SourceSizes(msgspec.Struct):
    """What the trainer knows of a source."""

    name: str
    documents: int
    tokens: int
    bytes: int


class RowColumns(msgspec.Struct):
    """Rows finished since the last phase, in row order; loss is null where the step was skipped."""

    step: list[int]
    source: list[int]
    documents: list[int]
    loss: list[float | None]


class Hello(msgspec.Struct, tag="hello"):
    """Begins a conversation and asks for the phase that begins at `step`.

    `state` is what the trainer last got, null at the start of a run; `rows` are those since.
    """

    protocol: int
    version: str
    model: str
    seed: int
    step: int
    sources: list[SourceSizes]
    state: str | None
    rows: RowColumns


class Records(msgspec.Struct, tag="records"):
    """The rows since the last phase; asks for the phase that begins at `step`."""

    step: int
    rows: RowColumns


class Sample(msgspec.Struct, tag="sample"):
    """A sampled text; asks for a verdict, before or after a hello. `text` is base64."""

    text: bytes


class AskState(msgspec.Struct, tag="state"):
    """Asks for the policy's state."""


class Bye(msgspec.Struct, tag="bye"):
    """The trainer leaves on purpose."""


Request = Hello | Records | Sample | AskState | Bye


class PhaseReply(msgspec.Struct, tag="phase"):
    """Weights of steps step..step+steps-1; `log`: the decision as JSON text; `state`: the state after it."""

    step: int
    steps: int
    weights: list[float]
    log: str
    state: str


class Verdict(msgspec.Struct, tag="verdict"):
    """Score 0..100 of a sample and its parts as JSON text; null where no scorer is there."""

    score: float | None
    parts: str


class StateReply(msgspec.Struct, tag="state"):
    """The policy's state as JSON text."""

    state: str


class ErrorReply(msgspec.Struct, tag="error"):
    """Why a line was not answered. Codes: busy, protocol, sources, state, order, line."""

    code: str
    message: str


Reply = PhaseReply | Verdict | StateReply | ErrorReply

_requests = msgspec.json.Decoder(Request)
_replies = msgspec.json.Decoder(Reply)


def read_request(line: bytes) -> Request:
    """Decode one line of a trainer; raises DataError saying what is wrong with it."""
    try:
        return _requests.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise DataError(f"not a line of protocol {PROTOCOL}: {wrong}") from wrong


def read_reply(line: bytes) -> Reply:
    """Decode one line of a proxy; raises DataError saying what is wrong with it."""
    try:
        return _replies.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise DataError(f"not a reply of protocol {PROTOCOL}: {wrong}") from wrong


def write_line(message: Request | Reply) -> bytes:
    """Encode a message with its newline."""
    return msgspec.json.encode(message) + b"\n"
