"""What is exported: a checkpoint that verifies, the experiment it was trained with, its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.checkpoint import Floats, read_weights
from andrea.errors import Error
from andrea.export.layout import ModelShape
from andrea.model_source import find_model

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
    """Load a .bin, or the newest pair of a run directory that verifies (andrea.model_source).

    Raises CheckpointError, ConfigError, DataError or IoError.
    """
    source = find_model(path, config)
    shape = ModelShape.of(source.settings["model"])
    step, weights = read_weights(source.checkpoint, shape.n_params)
    return Trained(
        source.checkpoint,
        step,
        shape,
        shape.split(weights),
        source.settings,
        source.state,
        source.tokenizer(),
        source.notes,
    )


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
