"""`andrea audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# How an earlier report begins, and what else its first bytes hold: only such a file is written over.
HTML_MARKS = (b"<!doctype html>", b": sample audit</title>")
JSON_MARKS = (b"{", b'"healthy": ')
EXIT_NOT_HEALTHY = 79  # that of the coherence gate: a person must look


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write a page for people.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write everything, for programs.")] = None,
    copies: Annotated[
        bool, typer.Option("--copies/--no-copies", help="Look for the samples in the training data.")
    ] = True,
    run_of_ids: Annotated[
        int, typer.Option("--run-of-ids", min=4, max=256, help="Ids in a row that count as copied.")
    ] = 16,
    threshold: Annotated[
        float | None,
        typer.Option(min=0.0, max=100.0, help="Of the gate.", show_default="the run's, else 30"),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Of the gate.", show_default="the run's, else 5")
    ] = None,
) -> None:
    """Read a run's samples: collapse, copies of the training data, coherence over time.

    Exit code 0: healthy; 79: not healthy, as when the coherence gate stops a run; 65: nothing to read.
    """
    import msgspec

    from andrea.audit.findings import audit_run
    from andrea.audit.report_html import html_report
    from andrea.audit.report_text import text_lines
    from andrea.audit.samples import read_history
    from andrea.data.files import write_bytes

    _check_places(html, json)
    found = audit_run(
        read_history(run), copies=copies, run_of_ids=run_of_ids, threshold=threshold, patience=patience
    )
    for line in text_lines(found):
        typer.echo(line)
    if html is not None:
        write_bytes(html, html_report(found).encode("utf-8", "replace"))
        typer.echo(f"{html}: written")
    if json is not None:
        content = msgspec.json.format(msgspec.json.encode(found.as_json()), indent=1)
        write_bytes(json, content + b"\n")
        typer.echo(f"{json}: written")
    raise typer.Exit(0 if found.healthy else EXIT_NOT_HEALTHY)


def _check_places(html: Path | None, json: Path | None) -> None:
    """Raise ConfigError, before any work, if a report would replace something else than a report."""
    from andrea.data.files import must_be_file_name
    from andrea.errors import ConfigError

    if html is not None and json is not None and html.resolve() == json.resolve():
        raise ConfigError(f"--html and --json both name {html}; give each a file of its own")
    for option, path, marks in (("--html", html, HTML_MARKS), ("--json", json, JSON_MARKS)):
        if path is None:
            continue
        must_be_file_name(path, option)
        if not path.exists():
            continue
        with open(path, "rb") as file:
            begin = file.read(4096)
        if begin and not (begin.startswith(marks[0]) and marks[1] in begin):
            raise ConfigError(
                f"{option} {path} is there already and is no report of an audit; choose another name"
            )
