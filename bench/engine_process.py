"""Runs of `microgpt_train` by the benchmarks."""

from __future__ import annotations

import json
import subprocess
from typing import Any, NoReturn

from arguments import complain

from andrea.binary import EXIT_INTERNAL
from andrea.errors import Error, IoError


def run_engine(binary: object, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the binary to its end, with its output kept. Raises IoError if it cannot be started."""
    command = [str(binary), *map(str, arguments)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise IoError(
            f"cannot start {binary}: {error.strerror}; build microgpt_train, or name it with --binary"
        ) from None


def fail(done: subprocess.CompletedProcess[str], where: str = "") -> NoReturn:
    """End with what a run that failed said of it, and with its exit code."""
    words = done.stderr.strip() or f"{done.args[0]} ended with {done.returncode} and said nothing"
    complain(where + words, done.returncode if done.returncode > 0 else EXIT_INTERNAL)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the report of `--bench --json`. Ends if the run failed; raises Error if it printed none."""
    if done.returncode != 0:
        fail(done)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
        report["step"]["median_ms"]
    except (ValueError, LookupError, TypeError):
        raise Error(f"{done.args[0]} --bench --json printed no report; is it microgpt_train?") from None
    return report
