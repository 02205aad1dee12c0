"""The commands of the curriculum room: `andrea proxy`, `andrea polish`, `andrea curriculum ...`.

Errors are raised; andrea.cli turns them into one line and an exit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Why the data is mixed as it is.", no_args_is_help=True)

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def proxy(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment, a JSON file.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS", help="unix:PATH or tcp:127.0.0.1:PORT.")
    ] = "unix:andrea.sock",
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help='Read-only JSON view; "off" for none.')
    ] = "127.0.0.1:8088",
    runs: Annotated[Path, typer.Option("--runs", help="Where the run directories lie.")] = Path("runs"),
    score: Annotated[bool, typer.Option(help="Score samples against the words of the sources.")] = True,
) -> None:
    """Serve the curriculum to `microgpt_train --proxy`, one trainer at a time, until Ctrl-C."""
    from andrea.curriculum.addresses import parse_host_port, parse_listen
    from andrea.curriculum.experiment import read_plan
    from andrea.curriculum.server import ProxyServer

    plan = read_plan(config)
    address = parse_listen(listen)
    view = None if http == "off" else parse_host_port(http)
    scorer = plan.scorer() if score else None
    ProxyServer(plan, address, scorer, view, runs).run()


def polish(
    run: RunDirectory,
    config: Annotated[Path, typer.Option("--config", metavar="NEW.json", help="The new experiment.")],
    stop: Annotated[
        bool, typer.Option("--stop", help="If the run is still training, let it save and stop first.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, max=2**31 - 1, help="End after step N of the run.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=4096)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Warnings and errors only.")] = False,
) -> None:
    """Take a run up again under new caps and floors; its samples and state are archived, its loss goes on."""
    from andrea._core import SignalHandlers, load_experiment
    from andrea.curriculum.polish import limit_changes, newest_config, stop_run
    from andrea.train.display import make_display
    from andrea.train.run import RunOptions, settings_of
    from andrea.train.run import train as start

    experiment = load_experiment(str(config))  # before anything is touched
    settings = settings_of(experiment)
    before = newest_config(run, settings["name"])
    stop_run(run, settings["name"], stop)
    for line in limit_changes(before, settings):
        print(line)
    options = RunOptions(resume=True, polish=True, steps=steps, device=device, threads=threads)
    display = make_display(settings["model"]["vocab_size"], quiet)
    with SignalHandlers():
        code = start(experiment, run, options, display)
    raise typer.Exit(code)


@app.command()
def explain(
    run: RunDirectory,
    step: Annotated[
        int | None,
        typer.Option("--step", min=0, help="The phase in force at this step.", show_default="last"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The decision as it was logged.")] = False,
) -> None:
    """Show why a phase has these weights: reward, exploration, penalty, bonus, limits, share of each arm."""
    import msgspec
    from rich.console import Console

    from andrea.curriculum.explain import table_of, title_of
    from andrea.curriculum.replay import decision_at
    from andrea.curriculum.runs import rows_file

    path = rows_file(run)
    decision, counts = decision_at(path, step)
    if as_json:
        print(msgspec.json.encode(decision | {"rows_drawn": counts}).decode())
        return
    console = Console(highlight=False, markup=False)
    for line in title_of(decision):
        console.print(line, soft_wrap=True)
    width = None if console.is_terminal else 200
    Console(highlight=False, markup=False, width=width).print(table_of(decision, counts))


@app.command("replay")
def replay_log(run: RunDirectory) -> None:
    """Decide every phase again from the log alone and compare, bit for bit. Exit 65 if one differs."""
    from andrea.curriculum.replay import replay
    from andrea.curriculum.runs import rows_file
    from andrea.errors import DataError

    path = rows_file(run)
    with path.open("rb") as lines:
        found = replay(lines)
    if not found.exact:
        what = found.differences[0] if found.differences else "no decision is in it"
        raise DataError(f"{path}: {what}; {len(found.differences)} of {found.decisions} decisions differ")
    print(f"{found.decisions} decisions, all the same bits")


@app.command()
def score(
    text: Annotated[Path, typer.Argument(metavar="FILE", help="A text to score.")],
    lexicon: Annotated[
        list[Path], typer.Option("--lexicon", metavar="FILE", help="Texts whose words are known.")
    ],
) -> None:
    """Score the coherence of a text, 0 to 100, as the gate does with samples."""
    from andrea.curriculum.collapse import coherence, lexicon_of

    result = coherence(text.read_bytes(), lexicon_of(path.read_bytes() for path in lexicon))
    for name, value in result.as_json().items():
        print(f"{name:<11}{value:6.1f}")
