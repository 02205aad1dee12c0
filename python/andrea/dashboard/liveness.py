"""Is a run training, finished, stopped or dead? Told from its event log, its lock file and its process."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from andrea.dashboard.tail import open_regular

LOCK = ".andrea.lock"
QUIET_SECONDS = 60.0  # of a run on another machine, before it counts as silent

_ENDED = {0: "finished", 75: "stopped", 79: "gate"}


def state_of(
    directory: Path,
    start: dict[str, Any] | None,
    end: dict[str, Any] | None,
    newest: float,
    steps: int | None = None,
) -> str:
    """Return running, finished, stopped, gate, failed, dead, silent or unknown.

    `start` is the last "start" event, `end` the "end" event after it, `newest` the time (Unix seconds) of the
    last thing written, `steps` what the experiment asks for: a run that ended before, by `--steps`, is
    stopped. "dead": its process is gone and said nothing. "silent": it runs on another machine
    or in another container, where its process cannot be seen, and has not written for long.
    """
    if end is not None:
        state = _ENDED.get(end["code"], "failed")
        return "stopped" if state == "finished" and steps is not None and end["step"] < steps else state
    if start is not None and not _of_this_machine(start):
        return "running" if time.time() - newest < QUIET_SECONDS else "silent"
    pid, since = _writer(directory)
    if pid is None:
        return "unknown"
    if _alive(pid, since):
        return "running"
    return "dead" if start is not None else "unknown"


def _of_this_machine(start: dict[str, Any]) -> bool:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return start.get("host") == socket.gethostname() and start.get("pid_space", "") in ("", space)


def _writer(directory: Path) -> tuple[int | None, float]:
    """Return the pid in the lock file, and when it was put there."""
    try:
        with open_regular(directory / LOCK) as file:
            text, since = file.read(32).strip(), os.fstat(file.fileno()).st_mtime
    except OSError:
        return None, 0.0
    return (int(text) if text.isdigit() and int(text) < 2**31 else None), since


def _alive(pid: int, since: float) -> bool:
    """Return whether the process that took the lock at `since` is there; a later one is not it."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= since + 2.0)
    except psutil.Error:
        return False
