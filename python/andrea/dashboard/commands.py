"""The commands for looking at runs: `andrea dashboard`, `andrea plot`, `andrea watch`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, or folders of them.")]


def _host(text: str) -> str:
    """An empty host would be every address of this machine."""
    if not text.strip(" []"):
        raise typer.BadParameter("is empty; 127.0.0.1 is this machine only")
    return text


def dashboard(
    runs: Runs,
    host: Annotated[
        str, typer.Option("--host", callback=_host, help="Where to listen; there is no password.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Taken: the next free one. 0: any.")
    ] = 8899,
    static: Annotated[
        Path | None,
        typer.Option("--static", metavar="OUT.html", help="Write one self-contained page instead, and stop."),
    ] = None,
) -> None:
    """Watch runs in a browser: losses, sources, samples, events, machine. Only reads; needs no network."""
    if static is not None:
        from andrea.dashboard.static_page import write_static_page

        size = write_static_page(runs, static)
        print(f"{static}: {size / 2**20:.1f} MiB, opens without a server")
        return
    from andrea.dashboard.collection import must_exist
    from andrea.dashboard.server import serve

    must_exist(runs)
    serve(
        runs,
        host,
        port,
        announce=lambda line: print(line, flush=True),
        warn=lambda line: print(f"dashboard: warning: {line}", file=sys.stderr, flush=True),
    )


def plot(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A .png, .svg or .pdf.")],
    log_steps: Annotated[bool, typer.Option("--log-steps", help="Logarithmic axis of steps.")] = False,
    smooth: Annotated[
        int | None,
        typer.Option("--smooth", min=1, max=10**9, help="Steps of the SMMA.", show_default="the run's"),
    ] = None,
    width: Annotated[float, typer.Option("--width", min=2.0, max=40.0, help="Inches.")] = 8.0,
) -> None:
    """Draw the curves of one or more runs into a file, for papers and terminals without a browser."""
    from andrea.dashboard.plot import plot_runs

    plot_runs(runs, out, log_steps, smooth, width)
    print(out)


def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, or a folder in which one will appear.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Show what is there now, and stop.")] = False,
) -> None:
    """Watch a run in the terminal: curve, figures, sources, events. Ctrl-C leaves; the run goes on."""
    from andrea.dashboard.watch import watch_run

    watch_run(run, once)
