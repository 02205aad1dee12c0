"""Taking a run up again under a new experiment: stop it if it runs, and tell what changes."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from andrea.curriculum.runs import newest_states
from andrea.errors import CheckpointError, ConfigError, IoError

LOCK_NAME = ".andrea.lock"
WAIT_SECONDS = 600.0  # for a step in progress, its checkpoint and the exit


def newest_config(run: Path, name: str) -> dict[str, Any]:
    """Return the effective config in the newest readable state. Raises CheckpointError or ConfigError."""
    if not run.is_dir():
        raise ConfigError(f"{run} is no run directory")
    for path in newest_states(run):
        try:
            config = msgspec.json.decode(path.read_bytes())["config"]
            config = msgspec.json.decode(config) if isinstance(config, str) else config
            old_name = config["name"]
        except (OSError, msgspec.MsgspecError, KeyError, TypeError):
            continue
        if old_name != name:
            raise ConfigError(
                f"the run in {run} is named {old_name}, the new experiment {name}; keep the name, "
                "because the history goes on under it"
            )
        return dict(config)
    raise CheckpointError(f"{run} holds no checkpoint to polish from; train it first")


def limit_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each source whose floor or cap changes, that comes or that goes."""
    old = {source["name"]: source for source in before["data"]["sources"]}
    new = {source["name"]: source for source in after["data"]["sources"]}
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield f"  {name}: goes"
        elif name not in old:
            yield f"  {name}: comes, floor {new[name]['floor']:g}, cap {new[name]['cap']:g}"
        else:
            a, b = old[name], new[name]
            if (a["floor"], a["cap"]) != (b["floor"], b["cap"]):
                yield f"  {name}: floor {a['floor']:g} -> {b['floor']:g}, cap {a['cap']:g} -> {b['cap']:g}"


def running_process(run: Path) -> int | None:
    """Return the id of the process that trains in `run`, None if none does."""
    try:
        with (run / LOCK_NAME).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = lock.read(32).split(b"\n")[0]
                return int(text) if text.isdigit() else 0
    except FileNotFoundError:
        return None
    return None


def stop_run(run: Path, name: str, allowed: bool, wait: float = WAIT_SECONDS) -> None:
    """Let a process that trains in `run` save (SIGUSR1), stop (SIGTERM) and end; IoError if it cannot."""
    process = running_process(run)
    if process is None:
        return
    if not allowed:
        raise IoError(f"process {process} trains {name} in {run}; add --stop to let it save and stop first")
    if process <= 1:
        raise IoError(f"{run} is locked by a process that left no id; stop it yourself")
    try:
        os.kill(process, signal.SIGUSR1)
        os.kill(process, signal.SIGTERM)
    except PermissionError as wrong:
        raise IoError(f"process {process} trains in {run} and belongs to someone else") from wrong
    except ProcessLookupError:
        pass
    end = time.monotonic() + wait
    while running_process(run) == process:
        if time.monotonic() > end:
            raise IoError(f"process {process} did not stop within {wait:.0f} s; stop it yourself")
        time.sleep(0.1)
