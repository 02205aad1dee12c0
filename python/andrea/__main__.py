"""The `andrea` command and `python -m andrea`: here signals are quiet while the commands are imported."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def _leave(signum: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Run one command and leave with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # There is nothing to save yet, and a traceback out of an import would help nobody.
        signal.signal(signal.SIGINT, _leave)
    if not {"train", "polish"}.isdisjoint(sys.argv):
        # "Save now" may come before or after there is anything to save: then it asks for nothing.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    from andrea.cli import main as run

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
