"""One self-contained page of a run as it is now: `andrea dashboard RUN --static OUT.html`."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from andrea.dashboard.collection import Collection, must_exist
from andrea.dashboard.page_files import PAGE, PLOTLY, SCRIPTS, STYLE
from andrea.dashboard.plotly_bundle import plotly_js
from andrea.dashboard.reading import SERIES, RunReader
from andrea.data.files import must_be_file_name, write_bytes
from andrea.errors import ConfigError

BUCKETS = 2000
MAX_EVENTS = 2000
MAX_TEXTS = 500  # samples that are kept, evenly chosen


def write_static_page(places: Sequence[Path], out: Path) -> int:
    """Write the page, which is whole or as it was; returns its bytes.

    Raises ConfigError for a name that is none of a page, for no run, or if plotly is missing; IoError for a
    folder that is not there, or if the page cannot be written.
    """
    must_be_file_name(out, "--static")
    if out.suffix.lower() not in (".html", ".htm"):  # a history named by mistake would be replaced
        raise ConfigError(f"{out}: the name of a page must end in .html")
    runs = load_runs(places)
    page = (PAGE / "dashboard.html").read_text(encoding="utf-8").replace(f' data-plotly="{PLOTLY}"', "")
    style = (PAGE / STYLE).read_text(encoding="utf-8")
    scripts = [
        plotly_js().read_text(encoding="utf-8"),
        *((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS),
    ]
    scripts = [text.replace("</script", "<\\/script") for text in scripts]
    data = {
        "time": time.time(),
        "order": [run.id for run in runs],
        "runs": {run.id: _whole(run) for run in runs},
    }
    # In a script element only "<" can end the data; as an escape it means the same to JSON.
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta charset'
    head, rest = page.split('<link rel="stylesheet"', 1)
    body = rest.split("</head>", 1)[1]
    content = [
        head.replace("<meta charset", meta, 1),
        f"<style>{style}</style>\n</head>",
        body.replace("</body>", ""),
        f'<script type="application/json" id="data">{text}</script>\n',
        *(f"<script>{script}</script>\n" for script in scripts),
    ]  # fmt: skip
    whole = ("".join(content).replace("</html>", "") + "</body>\n</html>\n").encode("utf-8", "replace")
    write_bytes(out, whole)
    return len(whole)


def load_runs(places: Sequence[Path]) -> list[RunReader]:
    """Read all runs in `places`. Raises IoError if one is not there, ConfigError if one holds no run."""
    must_exist(places)
    for place in places:
        if not Collection([place]).has_runs():
            raise ConfigError(f"{place} holds no run; give a run directory, or a folder of them")
    return Collection(places).load_all()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _whole(run: RunReader) -> dict[str, Any]:
    index = run.samples.index()
    count = len(index)
    kept = range(count) if count <= MAX_TEXTS else [i * count // MAX_TEXTS for i in range(MAX_TEXTS)]
    keys = ("mean_reward", "epochs", "coverage", "floor")
    everything = (-1.0, 2.0**62)
    return {
        "summary": run.summary(),
        "series": {name: run.series(name, buckets=BUCKETS) for name in SERIES},
        "sources": {
            **run.rows.by_bucket(*everything, 300, False),
            "table": run.rows.table(),
            "arms": {key: run.rows.arms_over_time(key, *everything, 600) for key in keys},
            "dice": run.rows.dice(*everything, 600),
            "evals": run.rows.evals,
        },
        "events": run.events_on("step", 0, MAX_EVENTS),
        "samples": {"samples": [index[i] for i in kept]},
        "texts": [run.samples.text(i) for i in kept],
        "config": run.config,
    }
