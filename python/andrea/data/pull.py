"""`andrea data pull NAME`: fetch a named source from the Hugging Face hub, resumable and checksummed."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec

from andrea.data.files import sha256_of, write_bytes
from andrea.data.hermes import PARTS, split_hermes
from andrea.data.sources import SOURCES, Source, data_root
from andrea.errors import ConfigError, DataError, IoError

Say = Callable[[str], None]


class RemoteFile(msgspec.Struct, frozen=True):
    """A file of a data set; the hash is None for small files, which the hub keeps in Git."""

    name: str
    size: int
    sha256: str | None


class Hub(Protocol):
    """What pulling needs of a hub; tests bring their own."""

    def files(self, name: str) -> tuple[str, list[RemoteFile]]:
        """Return (revision, files) of a data set."""

    def fetch(self, name: str, revision: str, file: str, folder: Path) -> Path:
        """Fetch a file into `folder` (going on where an earlier try stopped) and return where it is."""


class HuggingFace:
    """The hub itself, through huggingface-hub (extra `data`)."""

    def __init__(self) -> None:
        try:
            self._hub: Any = import_module("huggingface_hub")
        except ImportError as error:
            raise ConfigError(
                "pulling needs the package huggingface-hub: pip install huggingface-hub"
            ) from error

    def files(self, name: str) -> tuple[str, list[RemoteFile]]:
        """Return (revision, files) of a data set."""
        info = self._hub.HfApi().dataset_info(name, files_metadata=True)
        found = []
        for entry in info.siblings:
            large = entry.lfs
            found.append(RemoteFile(entry.rfilename, int(entry.size or 0), large.sha256 if large else None))
        return str(info.sha), found

    def fetch(self, name: str, revision: str, file: str, folder: Path) -> Path:
        """Fetch a file into `folder`."""
        got = self._hub.hf_hub_download(
            name, file, repo_type="dataset", revision=revision, local_dir=str(folder)
        )
        return Path(got)


class Pulled(msgspec.Struct):
    """What was fetched, kept beside the files as SOURCE.json."""

    hub: str
    revision: str
    licence: str
    files: list[RemoteFile]


def _by_hand(source: Source, folder: Path, why: str) -> IoError:
    patterns = " ".join(source.patterns)
    return IoError(
        f"cannot fetch {source.hub}: {why}\n"
        f"Without a network: on a machine that has one, fetch the data set {source.hub} "
        f"(files {patterns}) from the Hugging Face hub, and put its files into\n  {folder}\n"
        "then run the same command again: files that are there are used as they are. Some data sets ask for "
        "a login first (hf auth login)."
    )


def pull(name: str, root: Path | None = None, hub: Hub | None = None, say: Say = print) -> Path:
    """Fetch a named source into `root/<name>`; "hermes3" fetches once and makes its three sources.

    Files that are whole already are not fetched again. Raises ConfigError for a name without a known
    origin, IoError with what to do by hand if the hub cannot be reached, DataError for a wrong hash.
    """
    place = root or data_root()
    if name == "hermes3" or name in PARTS:
        return _pull_hermes(place, hub, say)
    if name not in SOURCES:
        raise ConfigError(f"no source named {name!r}; andrea data list shows them")
    source = SOURCES[name]
    if source.hub is None:
        raise ConfigError(
            f"{name}: no origin to pull from ({source.origin}); put your files into {place / name}.\n"
            f"Layout: {source.layout}"
        )
    _fetch(source, place / name, hub, say)
    return place / name


def _fetch(source: Source, folder: Path, hub: Hub | None, say: Say) -> list[Path]:
    assert source.hub is not None
    record = folder / "SOURCE.json"
    if record.exists():
        known = msgspec.json.decode(record.read_bytes(), type=Pulled)
        if all(
            (folder / f.name).is_file() and (folder / f.name).stat().st_size == f.size for f in known.files
        ):
            say(f"{folder}: complete (revision {known.revision[:12]})")
            return [folder / f.name for f in known.files]
    try:
        remote = hub if hub is not None else HuggingFace()
        revision, listed = remote.files(source.hub)
    except ConfigError:
        raise
    except Exception as error:
        mine = _by_hand_files(source, folder)
        if mine:
            say(f"{folder}: no way to the hub; using the {len(mine)} file(s) that are there, unchecked")
            return mine
        raise _by_hand(source, folder, _first_line(error)) from error
    wanted = [f for f in listed if any(fnmatch.fnmatch(f.name, p) for p in source.patterns)]
    if not wanted:
        raise DataError(
            f"{source.hub} (revision {revision[:12]}) has none of the files {' '.join(source.patterns)}; "
            f"it has {', '.join(f.name for f in listed[:20])}"
        )
    need = sum(f.size for f in wanted if not (folder / f.name).is_file())
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if need > free:
        raise IoError(f"{folder}: {need:,} bytes to fetch, {free:,} free; make room or set ANDREA_DATA")
    paths = [_fetch_one(source, remote, revision, file, folder, say) for file in wanted]
    done = Pulled(source.hub, revision, source.licence, wanted)
    write_bytes(record, msgspec.json.format(msgspec.json.encode(done), indent=2) + b"\n")
    return paths


def _by_hand_files(source: Source, folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    inside = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SOURCE.json")
    return [p for p in inside if any(fnmatch.fnmatch(p.name, Path(q).name) for q in source.patterns)]


def _fetch_one(source: Source, hub: Hub, revision: str, file: RemoteFile, folder: Path, say: Say) -> Path:
    path = folder / file.name
    if not (path.is_file() and _is_whole(path, file)):
        say(f"fetching {source.hub}: {file.name} ({file.size:,} bytes)")
        try:
            path = hub.fetch(str(source.hub), revision, file.name, folder)
        except Exception as error:
            raise _by_hand(source, folder, f"{file.name}: {_first_line(error)}") from error
        if not _is_whole(path, file):
            path.unlink(missing_ok=True)
            raise DataError(
                f"{path}: what came is not what the hub lists (size or SHA-256); it was removed: pull again"
            )
    say(f"{path}: good")
    return path


def _is_whole(path: Path, file: RemoteFile) -> bool:
    if path.stat().st_size != file.size:
        return False
    return file.sha256 is None or sha256_of(path) == file.sha256


def _size(path: Path) -> int:
    return path.stat().st_size


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def _pull_hermes(root: Path, hub: Hub | None, say: Say) -> Path:
    raw = root / "hermes3-raw"
    files = _fetch(SOURCES["hermes3-general"], raw, hub, say)
    tables = [p for p in files if p.suffix == ".parquet"]
    rows = [_as_rows(p) for p in tables] + [p for p in files if p.suffix != ".parquet"]
    for part, count in split_hermes(rows, root).items():
        say(f"{part}: {count:,} conversations in {root / part}")
    return raw


def _as_rows(table: Path) -> Path:
    """Write a Parquet file's rows as JSONL beside it, once."""
    from andrea.data.files import atomic_write
    from andrea.data.readers.table import open_table

    out = table.with_suffix(".rows.jsonl")
    if not out.exists():
        with atomic_write(out) as file:
            for batch in open_table(table).iter_batches(256):
                for row in batch.to_pylist():
                    file.write(msgspec.json.encode(row) + b"\n")
    return out
