"""Where an export may be written, and how it gets there whole.

A file is written beside its place and renamed. A new folder is filled beside its place and renamed. In a
folder that is there already each file is replaced in one step, `first` removed before and put back last:
an export that was interrupted lacks it and cannot be loaded, rather than being a mixture of two models.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from andrea.data.files import (
    discard,
    fsync_directory,
    must_be_file_name,
    replace,
    temporary_beside,
    writing,
)
from andrea.errors import ConfigError

Recognise = Callable[[Path], bool]


@contextmanager
def new_file(path: Path, force: bool, is_earlier: Recognise) -> Iterator[Path]:
    """Give a temporary path; what is written there becomes `path`, durably, or nothing does.

    Raises ConfigError if something else than an earlier export is there and `force` is not given.
    """
    must_be_file_name(path, "--out")
    _refuse_others(path, force, is_earlier)
    temporary = temporary_beside(path)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            _sync(temporary)
            replace(temporary, path)
            fsync_directory(path.parent)
    finally:
        discard(temporary)


@contextmanager
def new_folder(path: Path, force: bool, is_earlier: Recognise, first: str) -> Iterator[Path]:
    """Give a temporary folder; its files go to `path`. Files of other names in `path` stay as they are.

    Raises ConfigError if `path` is no folder, or holds something else than an earlier export without `force`.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file, and this format is a folder; give --out another name")
    if path.is_dir() and any(path.iterdir()):
        _refuse_others(path, force, is_earlier)
    staged = temporary_beside(path.absolute())
    try:
        with writing(path):
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            yield staged
            for file in staged.iterdir():
                _sync(file)
            fsync_directory(staged)
            if path.exists():
                _pour(staged, path, first)
            else:
                os.rename(staged, path)
            fsync_directory(path.absolute().parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _pour(staged: Path, path: Path, first: str) -> None:
    target = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(target, fcntl.LOCK_EX)  # two exports at once would mix their files
        (path / first).unlink(missing_ok=True)
        os.fsync(target)
        for file in sorted(staged.iterdir(), key=lambda file: file.name == first):
            os.replace(file, path / file.name)
        os.fsync(target)
    finally:
        os.close(target)


def _refuse_others(path: Path, force: bool, is_earlier: Recognise) -> None:
    if path.exists() and not force and not is_earlier(path):
        raise ConfigError(
            f"{path} is there already and is no earlier export of this model; choose another --out, or add "
            "--force to write over it"
        )


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
