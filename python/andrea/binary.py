"""The `microgpt_train` command of an installation by pip: becomes the binary beside the module."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

EXIT_INTERNAL = 70


def path_of_binary() -> Path:
    """Return where the binary of this installation lies."""
    spec = importlib.util.find_spec("andrea._core")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path(__file__).parent
    return folder / "microgpt_train"


def main() -> None:
    """Replace this process by the binary, with the same arguments."""
    binary = path_of_binary()
    try:
        os.execv(binary, ["microgpt_train", *sys.argv[1:]])
    except OSError as error:
        print(f"microgpt_train: cannot start {binary}: {error.strerror}", file=sys.stderr)
        sys.exit(EXIT_INTERNAL)
