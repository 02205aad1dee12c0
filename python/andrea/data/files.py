"""Files that are whole or absent: temporary name, fsync, rename, fsync of the directory.

A process that is killed leaves its temporary file; the next write of the same name removes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from andrea.errors import ConfigError, DataError, IoError


def fsync_directory(directory: Path) -> None:
    """Make a rename in `directory` durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`; OSError, and nothing done, if a device or a pipe is there (/dev/null)."""
    if _is_special(path):
        raise OSError(errno.EINVAL, "a device, a pipe or a socket is there, which a new file would replace")
    os.replace(temporary, path)


def must_be_file_name(path: Path, option: str) -> None:
    """Raise ConfigError if `path`, the value of `option`, is there and is no regular file."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, and this output is one file; give {option} a file name")
    if _is_special(path):
        raise ConfigError(f"{path} is a device, a pipe or a socket; give {option} a file name")


def _is_special(path: Path) -> bool:
    """Whether no file or folder is there, or a link to an open one, as /dev/stdout is."""
    if path.is_symlink() and os.readlink(path).startswith("/proc/"):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def temporary_beside(path: Path, part: str = "") -> Path:
    """Return the name under which this process makes `path`: `.NAME.PID.tmp`, or `.NAME.PID.PART.tmp`.

    Such files and folders of processes that are gone are removed; those of living ones stay, and what was
    written on another machine, or in a container with process ids of its own, is taken for gone.
    """
    ours = re.compile(rf"\.{re.escape(path.name)}\.([1-9]\d{{0,9}})(\.[a-z]+)?\.tmp")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if (match := ours.fullmatch(entry.name)) and _is_gone(int(match[1])):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    discard(Path(entry.path))
    return path.with_name(f".{path.name}.{os.getpid()}{part and '.' + part}.tmp")


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or a number that no process has
        return False
    return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of the block (disk full, no permission) into an IoError that names `path`."""
    try:
        yield
    except OSError as error:
        raise IoError(
            f"{path}: cannot write: {error.strerror or error}; nothing was left under the final name. "
            "Free some space or choose another place, then run the same command again"
        ) from error


def discard(temporary: Path) -> None:
    """Remove a temporary file, if it is there; a failure here must not hide the one that led here."""
    with suppress(OSError):
        temporary.unlink()


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path`; on success it is synced and renamed, on failure removed."""
    if not path.name:
        raise IoError(f"{str(path)!r} is no name of a file; give one")
    temporary = temporary_beside(path)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            replace(temporary, path)
            fsync_directory(path.parent)
    finally:
        discard(temporary)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one durable step."""
    with atomic_write(path) as out:
        out.write(content)


def read_at_most(path: Path, most: int) -> bytes:
    """Return what is in `path`, a pipe too. Raises DataError if that is more than `most` bytes, OSError."""
    with open(path, "rb") as source:
        return at_most(source, most, str(path))


def at_most(source: IO[bytes], most: int, name: str) -> bytes:
    """Return the rest of an open file; DataError if that is more than `most` bytes (/dev/zero has no end)."""
    content = source.read(most + 1)
    if len(content) > most:
        raise DataError(f"{name}: more than {most:,} bytes; give a smaller file")
    return content


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
