"""The curriculum's state as JSON text: everything a bit-exact continuation needs, nothing defaulted.

Doubles are written as shortest round-trip decimals, so that reading gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from andrea.errors import CheckpointError

if TYPE_CHECKING:
    from andrea.curriculum.policy import Curriculum

VERSION = 1
_COLUMNS = ("ema", "reward_sum", "pulls", "effective", "consumed", "documents")
# Rewards made under other rules cannot be added to: a change of one of these starts learning anew.
_MEANING = ("reward", "reward_unit", "reward_sign", "reward_scale")


class _Pending(msgspec.Struct, forbid_unknown_fields=True):
    step: list[int]
    source: list[int]
    documents: list[int]
    loss: list[float | None]


class _Phase(msgspec.Struct, forbid_unknown_fields=True):
    step: int
    steps: int
    weights: list[float]
    relative: list[float]
    focus: list[str]
    die: str
    roll: int


class _Arm(msgspec.Struct, forbid_unknown_fields=True):
    ema: float | None
    reward_sum: float
    pulls: int
    effective: float
    consumed: int
    documents: int


class _State(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    settings: dict[str, Any]
    limits: dict[str, list[float]]
    taken_through: int
    names: list[str]
    arms: dict[str, list[int | float | None]]
    absent: dict[str, _Arm]
    pending: _Pending
    phase: _Phase | None


def write_state(curriculum: Curriculum) -> str:
    """Return the state of `curriculum` as JSON text."""
    arms, waiting, phase = curriculum.arms, curriculum.pending.rows(), curriculum.phase
    state: dict[str, Any] = {
        "version": VERSION,
        "settings": curriculum.constant_json["settings"],
        "limits": curriculum.constant_json["limits"],
        "taken_through": curriculum.pending.taken_through,
        "names": curriculum.constant_json["name"],
        "arms": {column: getattr(arms, column) for column in _COLUMNS},
        "absent": curriculum.absent,
        "pending": {
            "step": waiting.step.tolist(),
            "source": waiting.source.tolist(),
            "documents": waiting.documents.tolist(),
            "loss": [x if x == x else None for x in waiting.loss.tolist()],
        },
        "phase": phase
        and {
            "step": phase.step,
            "steps": phase.steps,
            "weights": phase.weights.tolist(),
            "relative": phase.relative.tolist(),
            "focus": list(phase.focus),
            "die": phase.die,
            "roll": phase.roll,
        },
    }
    return msgspec.json.encode(state).decode()


def read_state(curriculum: Curriculum, text: str | bytes) -> None:
    """Put `curriculum` into the state `text`; CheckpointError (nothing changed) if it is not whole."""
    from andrea.curriculum.arms import Arms
    from andrea.curriculum.policy import Phase
    from andrea.curriculum.records import PendingRecords

    state = _parse(text)
    known = dict(zip(state.names, _per_arm(state), strict=True)) | state.absent
    notes: list[str] = []
    arms = Arms(curriculum.settings, curriculum.sources)
    settings = curriculum.settings.as_json()
    changed = [key for key in settings if state.settings.get(key) != settings[key]]
    notes.extend(f"curriculum.{key}: {state.settings.get(key)} -> {settings[key]}" for key in changed)
    same = not any(key in _MEANING for key in changed)
    if not same:
        notes.append("rewards mean something else now: pulls, rewards and EMA start anew")
    old_limits = {
        name: (state.limits["floor"][k], state.limits["cap"][k]) for k, name in enumerate(state.names)
    }
    for k, source in enumerate(curriculum.sources):
        floor, cap = old_limits.get(source.name, (source.floor, source.cap))
        if (floor, cap) != (source.floor, source.cap):
            notes.append(
                f"source {source.name}: floor {floor:g} -> {source.floor:g}, cap {cap:g} -> {source.cap:g}"
            )
        arm = known.pop(source.name, None)
        if arm is None:
            notes.append(f"source {source.name} is new: it starts without a pull")
            continue
        if source.name in state.absent:
            notes.append(f"source {source.name} is back and goes on where it was")
        arms.consumed[k] = arm.consumed
        if arm.documents != source.documents:
            notes.append(
                f"source {source.name} has {source.documents} documents, had {arm.documents}: "
                f"its {arm.consumed} consumed documents stay counted"
            )
        if same:
            arms.ema[k], arms.reward_sum[k] = arm.ema, arm.reward_sum
            arms.pulls[k], arms.effective[k] = arm.pulls, arm.effective
    notes.extend(
        f"source {name} is gone: its numbers are kept aside" for name in known if name in state.names
    )
    if not same:
        known = {name: _forget(arm) for name, arm in known.items()}

    pending = PendingRecords(len(curriculum.sources))
    pending.taken_through = state.taken_through
    rows = state.pending
    place = [curriculum.index.get(name, -1) for name in state.names]
    kept = [i for i, k in enumerate(rows.source) if place[k] >= 0]
    pending.add(
        [rows.step[i] for i in kept],
        [place[rows.source[i]] for i in kept],
        [rows.documents[i] for i in kept],
        [rows.loss[i] for i in kept],
    )
    phase = None
    if state.phase is not None and not notes:  # a phase decided under another config does not bind
        was = state.phase
        phase = Phase(
            was.step,
            was.steps,
            np.array(was.weights, dtype=np.float64),
            np.array(was.relative, dtype=np.float64),
            tuple(was.focus),
            was.die,
            was.roll,
            {},
        )
    curriculum.arms, curriculum.pending, curriculum.phase = arms, pending, phase
    curriculum.absent = {name: msgspec.structs.asdict(arm) for name, arm in known.items()}
    curriculum.notes = notes


def _parse(text: str | bytes) -> _State:
    try:
        state = msgspec.json.decode(text, type=_State)
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise CheckpointError(
            f"the curriculum state cannot be read: {wrong}; resume from an older checkpoint"
        ) from wrong
    count = len(state.names)
    columns: list[Sequence[Any]] = [*state.arms.values(), *state.limits.values()]
    columns_whole = set(state.arms) == set(_COLUMNS) and set(state.limits) == {"floor", "cap"}
    columns_whole = columns_whole and all(len(column) == count for column in columns)
    rows = state.pending
    lengths = {len(rows.step), len(rows.source), len(rows.documents), len(rows.loss)}
    rows_whole = len(lengths) == 1 and all(0 <= k < count for k in rows.source)
    phase_whole = state.phase is None or len(state.phase.weights) == len(state.phase.relative) == count
    if state.version != VERSION:
        raise CheckpointError(
            f"the curriculum state is of version {state.version}, this program reads {VERSION}; "
            "resume with the program that wrote it"
        )
    if not (columns_whole and rows_whole and phase_whole and len(set(state.names)) == count):
        raise CheckpointError("the curriculum state is not whole; resume from an older checkpoint")
    return state


def _per_arm(state: _State) -> list[_Arm]:
    arms = []
    for k, name in enumerate(state.names):
        column = {key: state.arms[key][k] for key in _COLUMNS}
        try:
            arms.append(msgspec.convert(column, _Arm, strict=True))
        except msgspec.ValidationError as wrong:
            raise CheckpointError(
                f"the curriculum state of source {name} is not whole: {wrong}; "
                "resume from an older checkpoint"
            ) from wrong
    return arms


def _forget(arm: _Arm) -> _Arm:
    return _Arm(None, 0.0, 0, 0.0, arm.consumed, arm.documents)
