"""The runs a dashboard shows: found, followed, and announced to whoever listens."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from andrea.curriculum.runs import Run, find_runs
from andrea.dashboard.levels import entropy_of_sources
from andrea.dashboard.reading import RunReader, id_of
from andrea.errors import IoError

POLL_SECONDS = 0.15
SEARCH_SECONDS = 1.0


def must_exist(places: Sequence[Path]) -> None:
    """Raise IoError if one of the folders is not there, is none, or cannot be read."""
    for place in places:
        try:
            os.scandir(place).close()
        except FileNotFoundError:
            raise IoError(
                f"{place}: there is no such folder; check the path, or make it if a run is to appear in it"
            ) from None
        except NotADirectoryError:
            raise IoError(f"{place} is no folder; give the directory that the run is in") from None
        except OSError as wrong:
            raise IoError(f"cannot read {place}: {wrong.strerror}") from wrong


class Collection:
    """Follows every run in the given folders, in one thread. A folder may be a run, or hold runs."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Prepare; nothing is read before `start`, `load_all` or `search`."""
        self.places = tuple(places)
        self.runs: dict[str, RunReader] = {}
        self.listeners: list[Callable[[RunReader], None]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="runs", daemon=True)
        self._levels_asked: set[str] = set()

    def start(self) -> None:
        """Follow the runs until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def search(self) -> None:
        """Look for runs that are new."""
        for place in self.places:
            for run in find_runs(place) + _without_losses(place):
                if (name := id_of(run)) not in self.runs:
                    # Whoever goes through the old one is not disturbed.
                    self.runs = {**self.runs, name: RunReader(run)}

    def has_runs(self) -> bool:
        """Return whether any run is there now."""
        self.search()
        return bool(self.runs)

    def load_all(self) -> list[RunReader]:
        """Read everything now, in this thread; returns the runs."""
        self.search()
        for reader in self.runs.values():
            while reader.loading:
                reader.poll()
            reader.levels.set_frequencies(entropy_of_sources(reader.config))
        return list(self.runs.values())

    def _follow(self) -> None:
        next_search = 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= next_search:
                self.search()
                next_search = now + SEARCH_SECONDS
            busy = False
            readers = list(self.runs.values())
            # The main curves of all runs first, however much else there is to read.
            for reader in readers:
                while reader.loading and not self._stop.is_set() and reader.poll(everything=False):
                    pass
            for reader in readers:
                if reader.poll():
                    busy = busy or reader.loading
                    self._announce(reader)
                self._ask_for_levels(reader)
            if not busy:
                self._stop.wait(POLL_SECONDS)

    def _announce(self, reader: RunReader) -> None:
        for listener in list(self.listeners):
            listener(reader)

    def _ask_for_levels(self, reader: RunReader) -> None:
        """Count the ids once, in a thread of its own: the sources may be large and the disk slow."""
        if reader.id in self._levels_asked or reader.loading or not reader.config:
            return
        self._levels_asked.add(reader.id)

        def count(config: dict[str, Any]) -> None:
            entropy = entropy_of_sources(config)
            with reader.lock:
                reader.levels.set_frequencies(entropy)
                reader.version += 1
            self._announce(reader)

        threading.Thread(target=count, args=(reader.config,), name="levels", daemon=True).start()


def _without_losses(place: Path) -> list[Run]:
    """Return runs that have begun and not finished a step: they have an event log only."""
    found = []
    for pattern in ("*.events.jsonl", "*/*.events.jsonl"):
        for path in sorted(place.glob(pattern)):
            run = Run(path.parent, path.name.removesuffix(".events.jsonl"))
            if path.is_file() and not run.loss.exists():
                found.append(run)
    return found
