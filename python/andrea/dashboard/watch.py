"""A run in the terminal: `andrea watch RUN`. Reads the run's files; the run knows nothing of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from andrea.curriculum.runs import way_to_a_run
from andrea.dashboard.collection import Collection, must_exist
from andrea.dashboard.reading import RunReader
from andrea.errors import ConfigError, IoError
from andrea.train.display import curve, duration, perplexity

SECONDS = 0.5
ENDED = ("finished", "stopped", "gate", "failed", "dead")
COLOURS = {
    "running": "green",
    "finished": "cyan",
    "dead": "bold red",
    "failed": "bold red",
    "gate": "bold red",
}


def watch_run(place: Path, once: bool = False) -> None:
    """Show `place` until Ctrl-C or the end of its run; on a terminal, wait for a run to appear.

    Raises ConfigError if there is not one run, IoError if the folder is not there or goes away.
    """
    console = Console(highlight=False, markup=False)
    stay = console.is_terminal and not once
    try:
        reader = _the_run(place, console if stay else None)
        while reader.loading:
            reader.poll()
        if not stay:
            console.print(view(reader))
            return
        with Live(view(reader), console=console, auto_refresh=False) as live:
            while True:
                while reader.poll():
                    pass
                if reader.state == "gone":  # what was there last stays on the screen
                    raise IoError(f"{reader.run.directory}: the run's files were removed or moved meanwhile")
                live.update(view(reader), refresh=True)
                if reader.state in ENDED:
                    return
                time.sleep(SECONDS)
    except KeyboardInterrupt:
        return


def _the_run(place: Path, waits: Console | None) -> RunReader:
    """Return the one run in `place`; where there is none, say so on `waits` and wait."""
    runs = Collection([place])
    told = False
    while True:
        must_exist([place])
        runs.search()
        if len(runs.runs) == 1:
            return next(iter(runs.runs.values()))
        if runs.runs:
            found = [reader.run for reader in runs.runs.values()]
            if len({run.directory for run in found}) > 1:
                raise ConfigError(f"{place} holds {len(found)} runs; {way_to_a_run(place)}")
            names = ", ".join(_safe(run.name) for run in found)
            raise ConfigError(f"{place} holds several runs ({names}); one is expected")
        if waits is None:
            raise ConfigError(f"{place} holds no run; give the directory of one run")
        if not told:
            waits.print(f"no run in {_safe(str(place))} yet; waiting for one (Ctrl-C leaves)", soft_wrap=True)
            told = True
        time.sleep(SECONDS)


def view(reader: RunReader) -> Group:
    """Return what the terminal shows of a run now."""
    now = reader.summary()
    head = Table.grid(padding=(0, 1))
    steps = f"{now['step']:,}" + (f"/{now['steps']:,}" if now["steps"] else "")
    cells: list[Any] = [
        Text(_safe(now["name"]), style="bold"),
        Text(now["state"], style=COLOURS.get(now["state"], "")),
    ]
    cells += [
        Text(f"step {steps}"),
        ProgressBar(total=max(now["steps"] or 1, 1), completed=now["step"], width=30),
    ]
    if now["state"] == "running":
        left = now["seconds_left"]
        cells.append(Text(f"left {duration(-1.0 if left is None else left)}"))
    if now["tokens_per_second"]:
        cells.append(Text(f"{now['tokens_per_second']:,.0f} tok/s"))
    head.add_row(*cells)
    parts: list[Any] = [head]
    if now["smma"] is not None:
        text = f"loss {_figure(now['loss'])}   smma {_figure(now['smma'])}"
        text += f"   perplexity {perplexity(now['smma']):.4g}"
        if now["levels"]["nothing"]:
            text += f"   (ln V = {now['levels']['nothing']:.3f})"
        for name, key in (("lr", "lr"), ("norm", "grad_norm"), ("bits/byte", "bits_per_byte")):
            if now[key] is not None:
                text += f"   {name} {now[key]:.3g}"
        parts += [Text(text), Text(curve(reader.smoothed().tolist()), style="cyan")]
    if now["skipped"]:
        parts.append(Text(f"{now['skipped']} steps skipped", style="yellow"))
    if now["damaged"]:
        parts.append(Text(f"{now['damaged']:,} lines cut or damaged and left out", style="yellow"))
    if now["state"] == "failed":
        parts.append(Text(_one_line(now["why"]), style="red"))
    if now["state"] == "stopped" and now["steps"]:
        text = f"stopped at step {now['step']:,} of {now['steps']:,}, saved; go on with --resume"
        parts.append(Text(text, style="yellow"))
    if reader.rows.table():
        parts += [Text(""), _sources(reader)]
    if len(reader.samples):
        sample = reader.samples.index()[-1]
        score = "" if sample["score"] is None else f", coherence {sample['score']:.1f}"
        parts += [Text(""), Text(f"sample at step {sample['step']:,}{score}", style="bold")]
        parts.append(Text(_safe(reader.samples.text(len(reader.samples) - 1))[:400], style="dim"))
    shown = [event for event in reader.log.events if event["kind"] not in ("sample", "start")][-5:]
    if shown:
        parts.append(Text(""))
    parts += [
        Text(
            time.strftime("%H:%M:%S", time.localtime(e["time"]))
            + f"  step {e['step']:,}  {_one_line(e['message'])}"
        )
        for e in shown
    ]
    return Group(*parts)


def _sources(reader: RunReader) -> Table:
    table = Table(box=None, pad_edge=False)
    columns = (
        ("loss", ".4f"),
        ("drawn", ".1%"),
        ("weight", ".1%"),
        ("mean_reward", ".1f"),
        ("epochs", ".2f"),
        ("coverage", ".1%"),
    )
    rows = reader.rows.table()
    used = [(key, form) for key, form in columns if any(row.get(key) is not None for row in rows)]
    table.add_column("source")
    for key, _ in used:
        table.add_column(key.replace("_", " "), justify="right")
    for row in rows:
        cells = [format(row[key], form) if row.get(key) is not None else "-" for key, form in used]
        table.add_row(Text(("* " if row["focus"] else "  ") + _safe(row["source"])), *cells)
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def _one_line(text: str) -> str:
    return " ".join(_safe(text[:400]).split())


def _safe(text: str) -> str:
    """What a run says, without characters that would command the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
