"""Figures of this machine over the last half hour: sampled while somebody looks, kept in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

SECONDS = 2.0
KEPT = 900  # samples: half an hour


class MachineWatch:
    """Samples CPU, memory, disk and GPUs in a thread of its own."""

    def __init__(self, place: Path) -> None:
        """`place` is where the runs lie: the disk that is shown."""
        self._place = place
        self._samples: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="machine", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stop.set()

    def history(self) -> list[dict[str, Any]]:
        """Return the samples, oldest first; each has `time` beside what the proxy's /system tells."""
        return list(self._samples)

    def _watch(self) -> None:
        from andrea.curriculum.system import system_figures

        while not self._stop.is_set():
            try:
                figures = system_figures(self._place)
            except Exception as wrong:  # whatever a driver or a kernel answers: the next look may succeed
                figures = {"gpus": f"no figures of this machine: {wrong}"}
            self._samples.append({"time": time.time(), **figures})
            self._stop.wait(SECONDS)
