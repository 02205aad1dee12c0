"""Following a file that grows line by line, is cut at a resume, or is replaced."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

CHUNK = 4 << 20  # bytes a poll takes at most, so that other runs get their turn
MAX_LINE = 16 << 20  # a longer line is none of ours
# Bytes before the position that must still be the same. The line end itself may become a comma: an array
# file puts its next element there.
_MARK = 64


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; OSError, and no waiting, for a pipe or a device in its place."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    file = open(path, "rb", buffering=0, opener=opener)  # noqa: SIM115, handed on
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return cast(BinaryIO, file)


@dataclass(frozen=True)
class Tail:
    """What a poll found: whether the file began anew, and whole lines."""

    anew: bool
    lines: bytes


class FollowedFile:
    """Reads the lines of a file once each.

    A line counts when its line end is there, so a torn write is read again. A file that became shorter,
    whose bytes before the position changed, or that is another file now, is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        """Follow `path`, which need not exist yet."""
        self.path = path
        self.position = 0  # bytes consumed
        self.size = 0  # bytes there at the last poll
        self._identity: tuple[int, int] | None = None
        self._mark = b""

    @property
    def there(self) -> bool:
        """Return whether the file is there now."""
        return self.path.is_file()

    @property
    def behind(self) -> int:
        """Return how many bytes were there and not consumed; a closing bracket is always among them."""
        return self.size - self.position

    def poll(self) -> Tail:
        """Return the next whole lines, at most about CHUNK bytes; none of what is missing or no file."""
        try:
            with open_regular(self.path) as file:
                return self._read(file.fileno())
        except OSError:
            gone = self.position > 0
            self._begin_anew(None)
            self.size = 0
            return Tail(gone, b"")

    def _read(self, fd: int) -> Tail:
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        anew = self.position > 0 and (
            identity != self._identity
            or status.st_size < self.position
            or os.pread(fd, len(self._mark), self.position - 1 - len(self._mark)) != self._mark
        )
        if anew:
            self._begin_anew(identity)
        self._identity, self.size = identity, status.st_size
        wanted, block = CHUNK, b""
        while len(block) < status.st_size - self.position:
            block = os.pread(fd, wanted, self.position)
            end = block.rfind(b"\n") + 1
            if end:
                self.position += end
                self._mark = block[max(0, end - _MARK) : end - 1]
                return Tail(anew, block[:end])
            if len(block) < wanted or wanted > MAX_LINE:
                break
            wanted *= 2
        return Tail(anew, b"")

    def _begin_anew(self, identity: tuple[int, int] | None) -> None:
        self.position, self._mark, self._identity = 0, b"", identity
