"""What is exported: a checkpoint that verifies, the experiment it was trained with, its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.checkpoint import Floats, read_weights
from andrea.curriculum.runs import newest_states
from andrea.errors import CheckpointError, ConfigError, Error, IoError
from andrea.export.layout import ModelShape
from andrea.state_file import state_of

if TYPE_CHECKING:
    from andrea.tokenizer import Tokenizer


@dataclass(frozen=True)
class Trained:
    """A model to export; `state` is what the run knew at this step, None where only a config is known."""

    checkpoint: Path
    step: int
    shape: ModelShape
    tensors: dict[str, Floats]
    settings: dict[str, Any]
    state: dict[str, Any] | None
    tokenizer: Tokenizer | None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return str(self.settings["name"])


def load_trained(path: Path, config: Path | None = None) -> Trained:
    """Load a .bin, or the newest pair of a run directory that verifies.

    The experiment is that of the state which was written with this very .bin (by its hash), else `config`.
    Raises CheckpointError, ConfigError, DataError or IoError.
    """
    if not path.exists():
        raise IoError(f"{path}: there is no such run directory or checkpoint")
    if path.is_dir():
        return _newest(path, config)
    state = state_of(path)
    if config is not None:
        from andrea._core import load_experiment

        settings = json.loads(load_experiment(str(config)).effective_json())
    elif state is not None:
        settings = state["config"]
    else:
        raise ConfigError(
            f"{path}: no state file beside it was written with it; give the experiment by --config FILE"
        )
    return _load(path, settings, state)


def _newest(run: Path, config: Path | None) -> Trained:
    faults: list[str] = []
    for path in newest_states(run):
        try:
            found = load_trained(path.with_name(path.name.removesuffix(".state.json") + ".bin"), config)
        except (CheckpointError, IoError) as fault:
            faults.append(str(fault))
            continue
        return Trained(**{**vars(found), "notes": tuple(f"passed over: {fault}" for fault in faults)})
    reasons = "".join(f"\n  {fault}" for fault in faults) or ": it holds no step_*.state.json"
    raise CheckpointError(f"{run}: no checkpoint can be used{reasons}")


def _load(checkpoint: Path, settings: dict[str, Any], state: dict[str, Any] | None) -> Trained:
    shape = ModelShape.of(settings["model"])
    step, weights = read_weights(checkpoint, shape.n_params)
    tokenizer = _tokenizer(settings, state)
    return Trained(checkpoint, step, shape, shape.split(weights), settings, state, tokenizer)


def _tokenizer(settings: dict[str, Any], state: dict[str, Any] | None) -> Tokenizer | None:
    path = settings.get("data", {}).get("tokenizer")
    if not path:
        return None
    from andrea.tokenizer.of_model import load_for_model

    return load_for_model(path, settings["model"]["vocab_size"], state["tokenizer_hash"] if state else None)


@dataclass(frozen=True)
class DataSource:
    """One source of the training data, as far as it is known; None: not known."""

    name: str
    file: str
    n_docs: int | None
    n_tokens: int | None
    n_bytes: int | None
    content_hash: str | None
    epochs: float | None
    origin: str | None
    licence: str | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(vars(self))


def data_sources(trained: Trained) -> Iterator[DataSource]:
    """Yield the sources of the run: sizes from the .btok, epochs from the state, licence from manifests."""
    from andrea.data.btok import Btok

    cursors = {source["name"]: source for source in (trained.state or {}).get("sources", ())}
    for entry in trained.settings.get("data", {}).get("sources", ()):
        path = Path(entry["train"])
        cursor = cursors.get(entry["name"], {})
        promised = cursor.get("content_hash")
        try:
            header = Btok(path, verify=False).header
        except Error:
            header = None
        if header is not None and promised not in (None, f"{header.content_hash:016x}"):
            header = None  # another file lies there now
        epochs = None
        if header is not None and cursor and header.n_docs:
            epochs = cursor["epoch"] + cursor["position"] / header.n_docs
        told = _manifest_entry(path, entry["name"])
        known = told if told is not None and told.train.content_hash == promised else None
        yield DataSource(
            entry["name"],
            path.name,
            header.n_docs if header else None,
            header.n_tokens if header else None,
            header.n_bytes if header else None,
            promised or (f"{header.content_hash:016x}" if header else None),
            epochs,
            known.origin if known else None,
            known.licence if known else None,
        )


def _manifest_entry(packed: Path, name: str) -> Any:
    """Return the entry of a source in the manifest of its preparation, None if there is none."""
    from andrea.data.manifest import load_manifest

    try:
        manifest = load_manifest(packed.parent / "manifest.json")
    except (Error, OSError):
        return None
    return next((entry for entry in manifest.sources if entry.name == name), None)
