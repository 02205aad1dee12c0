"""Which checkpoint a model is loaded from, and what is known of it: one rule for all who use a model.

A .bin whose state does not know its bytes is refused. A .bin without a state stands alone and needs the
experiment by --config. Of a run directory it is the newest pair that verifies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.checkpoint import check_header
from andrea.curriculum.runs import by_step, newest_states, way_to_a_run
from andrea.errors import CheckpointError, ConfigError, IoError

if TYPE_CHECKING:
    from andrea.tokenizer import Tokenizer


@dataclass(frozen=True)
class ModelSource:
    """A checkpoint to load. `state` is what the run knew at this step, None where the .bin stands alone."""

    checkpoint: Path
    settings: dict[str, Any]  # the effective experiment
    origin: Path  # the file that says the settings: --config, else the state
    state: dict[str, Any] | None
    notes: tuple[str, ...] = ()  # newer checkpoints that were passed over, and why

    def tokenizer(self) -> Tokenizer | None:
        """Load the tokenizer it was trained with; None if its experiment names none."""
        path = self.settings["data"].get("tokenizer")
        if not path:
            return None
        from andrea.tokenizer.of_model import load_for_model

        promised = self.state["tokenizer_hash"] if self.state else None
        return load_for_model(path, self.settings["model"]["vocab_size"], promised)


def find_model(path: Path, config: Path | None = None) -> ModelSource:
    """Return what `path` names: a .bin, or the newest pair of a run directory that verifies.

    Raises CheckpointError, ConfigError or IoError; the weights themselves are not read here.
    """
    if not path.exists():
        other = path.with_name(path.name + ".bin")
        way = f"did you mean {other}?" if other.is_file() else "check the path"
        raise IoError(f"{path}: there is no such run directory or checkpoint; {way}")
    return _newest(path, config) if path.is_dir() else _of_file(path, config, alone=True)


def _newest(run: Path, config: Path | None) -> ModelSource:
    states = newest_states(run)
    stems = {state.name.removesuffix(".state.json") for state in states}
    lone = [path for path in run.glob("step_*.bin") if path.stem not in stems]
    candidates = [state.with_name(state.name.removesuffix(".state.json") + ".bin") for state in states]
    faults: list[str] = []
    for path in sorted([*candidates, *lone], key=by_step, reverse=True):
        try:
            found = _of_file(path, config, alone=False)
        except (CheckpointError, IoError) as fault:
            faults.append(str(fault))
            continue
        return replace(found, notes=tuple(f"passed over: {fault}" for fault in faults))
    if not faults:
        raise CheckpointError(
            f"{run} holds no step_*.bin with its step_*.state.json; name a .bin itself, or "
            f"{way_to_a_run(run)}"
        )
    raise CheckpointError(
        f"{run}: no checkpoint can be used; a .bin that is whole can be named itself, with --config FILE:\n  "
        + "\n  ".join(faults)
    )


def _of_file(checkpoint: Path, config: Path | None, alone: bool) -> ModelSource:
    """`alone`: a .bin without a state will do, if there is a config."""
    from andrea._core import config_differences, load_experiment, state_beside

    try:
        check_header(checkpoint)
    except CheckpointError as fault:
        if checkpoint.suffix == ".bin":
            raise
        raise CheckpointError(f"{checkpoint} is no checkpoint; give a run directory or a .bin") from fault
    beside, why = state_beside(checkpoint)
    # state_beside() has checked it.
    state = json.loads(Path(beside).read_text(encoding="utf-8")) if beside else None
    if state is None and not alone:
        raise CheckpointError(f"{checkpoint}: {why}")
    if config is None:
        if state is None:
            raise ConfigError(
                f"{checkpoint}: nothing says what model this is ({why}); give its experiment by --config FILE"
            )
        return ModelSource(checkpoint, state["config"], Path(beside), state)
    effective = load_experiment(str(config)).effective_json()
    if state is not None:
        changed = config_differences(json.dumps(state["config"]), effective)
        if shape := [line for line in changed if line.startswith("model.")]:
            raise ConfigError(
                f"{config} is of another model than {checkpoint}: {'; '.join(shape)}; give the experiment it "
                "was trained with, or leave --config out"
            )
    return ModelSource(checkpoint, json.loads(effective), config, state)
