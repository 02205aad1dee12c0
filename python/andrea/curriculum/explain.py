"""A decision of the curriculum as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = (
    ("source", "name", "s"),
    ("pulls", "pulls", ".0f"),
    ("reward", "mean_reward", ".2f"),
    ("explore", "exploration", ".2f"),
    ("penalty", "penalty", ".3f"),
    ("bonus", "bonus", ".2f"),
    ("score", "score", ".2f"),
    ("floor", "floor", ".2f"),
    ("cap", "cap", ".2f"),
    ("weight", "relative", ".3f"),
    ("share %", "weight", ".1%"),
    ("drawn %", "drawn", ".1%"),
    ("epochs", "epochs", ".2f"),
    ("coverage %", "coverage", ".1%"),
)


def title_of(decision: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines above the table: phase, roll, focus, what changed."""
    begin, steps = decision["step"], decision["steps"]
    line = f"steps {begin:,} to {begin + steps - 1:,} ({steps} steps), policy {decision['policy']}"
    if decision.get("dice"):
        line += f", rolled {decision['roll']} with {decision['dice']}"
    yield line
    if "focus" in decision:
        warm = " (warm-up: the others wait)" if decision["warm_up"] else ""
        yield f"focus: {', '.join(decision['focus'])}{warm}"
        pulls = f"C = {decision['C']:.4g}, N = {decision['N']:,.0f} pulls"
        yield f"{pulls}, {decision['rows']:,} rows since the last phase"
    for note in decision.get("notes", ()):
        yield f"note: {note}"


def table_of(decision: Mapping[str, Any], counts: Mapping[str, int]) -> Table:
    """Return one line a source, those in focus marked; `counts` are the rows drawn in the phase."""
    from rich.table import Table

    arms = dict(decision["arms"])
    total = sum(counts.values())
    arms["drawn"] = [counts[name] / total if total else None for name in arms["name"]]
    shown = [column for column in _COLUMNS if column[1] in arms]
    table = Table(box=None, pad_edge=False)
    for title, *_ in shown:
        table.add_column(title, justify="left" if title == "source" else "right", no_wrap=True)
    focus = set(decision.get("focus", ()))
    for k, name in enumerate(arms["name"]):
        cells = [_cell(arms[key][k], form) for _, key, form in shown]
        cells[0] = f"{'*' if name in focus else ' '} {name}"
        table.add_row(*cells)
    return table


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "-"
    text = format(value, form)
    return text.rstrip("%") if form.endswith("%") else text
