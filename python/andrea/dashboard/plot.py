"""The curves of runs as a figure for papers: `andrea plot RUN --out X.png|svg|pdf`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from andrea.dashboard.reading import RunReader
from andrea.dashboard.static_page import load_runs
from andrea.data.files import atomic_write, must_be_file_name
from andrea.errors import ConfigError

# Okabe and Ito's colours, told apart with any kind of colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
KINDS = (".png", ".svg", ".pdf")


def plot_runs(
    places: Sequence[Path], out: Path, log_steps: bool = False, smooth: int | None = None, width: float = 8.0
) -> None:
    """Draw loss, gradient norm, learning rate and, of a single run, the losses of its sources into `out`.

    `out` is whole or as it was. Raises ConfigError for a kind of file that is none of KINDS, for an `out`
    that is no regular file, for no run, or if matplotlib is missing; IoError if it cannot be written.
    """
    must_be_file_name(out, "--out")
    if out.suffix.lower() not in KINDS:
        raise ConfigError(f"{out}: the name must end in {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as wrong:
        raise ConfigError("plots need matplotlib: pip install matplotlib") from wrong
    runs = load_runs(places)
    pixels = int(width * 150)
    figure = Figure(figsize=(width, 0.75 * width), layout="constrained", dpi=150)
    grid = figure.add_gridspec(2, 3, height_ratios=(3, 2))
    loss = figure.add_subplot(grid[0, :])
    norm, rate, last = (figure.add_subplot(grid[1, k]) for k in range(3))
    for k, (run, name) in enumerate(zip(runs, labels(runs), strict=True)):
        colour = COLOURS[k % len(COLOURS)]
        loss.plot(*_curve(run, "loss", pixels), color=colour, alpha=0.25, linewidth=0.6)
        loss.plot(*_curve(run, "smma", pixels, smooth), color=colour, linewidth=1.6, label=_plain(name))
        norm.plot(*_curve(run, "grad_norm", pixels // 3), color=colour, linewidth=0.7)
        rate.plot(*_curve(run, "lr", pixels // 3), color=colour, linewidth=1.0)
    nothing = {run.summary()["levels"]["nothing"] for run in runs} - {None}
    for level in sorted(nothing):
        loss.axhline(level, color="#777777", linewidth=0.8, linestyle=":")
        loss.annotate(f"ln V = {level:.3f}", (1, level), xycoords=("axes fraction", "data"), ha="right",
                      va="bottom", fontsize=8, color="#555555")  # fmt: skip
    loss.set_ylabel("loss, nats a token")
    loss.legend(frameon=False)
    norm.set_title("gradient norm", fontsize=9)
    if any((run.log.in_force["grad_norm"] > 0).any() for run in runs):
        norm.set_yscale("log")
    rate.set_title("learning rate", fontsize=9)
    _draw_last(last, runs)
    for axes in (loss, norm, rate, last):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("step", fontsize=8)
        if log_steps:
            axes.set_xscale("symlog", linthresh=1)
    with atomic_write(out) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a box stands for what the font lacks
        figure.savefig(file, format=out.suffix[1:].lower())


def _draw_last(axes: object, runs: Sequence[RunReader]) -> None:
    """Draw the losses of the sources of a single run, or the tokens a second of several."""
    from typing import Any, cast

    draw = cast(Any, axes)
    if len(runs) == 1 and runs[0].rows.names:
        pieces = runs[0].rows.by_bucket(-1, 2**62, 120, False)
        draw.set_title("loss by source", fontsize=9)
        for k, name in enumerate(pieces["sources"]):
            draw.plot(pieces["step"], pieces["loss"][k], color=COLOURS[k % len(COLOURS)], linewidth=0.9,
                      label=_plain(name))  # fmt: skip
        draw.legend(frameon=False, fontsize=6)
        return
    draw.set_title("tokens a second", fontsize=9)
    for k, run in enumerate(runs):
        draw.plot(*_curve(run, "rate", 400), color=COLOURS[k % len(COLOURS)], linewidth=0.7)


def _curve(
    run: RunReader, name: str, pixels: int, smooth: int | None = None
) -> tuple[list[float], list[float]]:
    curve = run.series(name, buckets=max(100, pixels), smooth=smooth)
    return curve["x"], [np.nan if y is None else y for y in curve["y"]]


def labels(runs: Sequence[RunReader]) -> list[str]:
    """Return the runs' names; of equal ones also the end of their path, as much as tells them apart."""
    names = [run.name for run in runs]
    paths = [run.run.directory.absolute().parts for run in runs]
    shown = list(names)
    for end in range(1, max(map(len, paths), default=0) + 1):
        shown = [
            f"{name} ({'/'.join(path[-end:])})" if shown.count(label) > 1 else label
            for name, path, label in zip(names, paths, shown, strict=True)
        ]
    return shown


def _plain(name: str) -> str:
    """matplotlib reads $...$ as mathematics, and hides names that begin with an underscore."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in name)
    return shown.replace("$", r"\$").lstrip("_") or "run"
