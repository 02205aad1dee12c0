"""What to do when whoever read our standard output has gone."""

from __future__ import annotations

import os
import sys


def stop_writing() -> None:
    """Send all further output nowhere; what is buffered would make the interpreter complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
