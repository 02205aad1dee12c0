"""How soon the dashboard's page can be used, in chromium: `python bench/dashboard_load.py [--loads N]`.

Writes a run of 1,000,000 losses (--steps), serves it, and loads the page again and again, each time with an
empty cache. Per load, in seconds after the page was asked for:

usable   the mark `andrea-usable`: the loss chart is painted and listens
read     a value was seen under the pointer
finer    a range was dragged over with the mouse, and the chart holds steps of it that it did not hold before
single   a second drag, and the chart holds single steps
plotly   Plotly has taken the charts over
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from arguments import complain, ended, whole

FEWEST = 200_000  # steps of which the second drag still shows more than 100
X = "Charts.drawn('loss').traces[0].x"


def write_losses(folder: Path, steps: int) -> None:
    """Write the history of a run as a trainer does."""
    t = np.arange(steps)
    noise = np.random.default_rng(7).normal(0, 0.12, steps)
    loss = 3 + 6.4 * np.exp(-t / (steps / 9)) + noise
    lines = ",\n".join(f"[{k}, {x:.6f}]" for k, x in zip(t.tolist(), loss.tolist(), strict=True))
    (folder / "long.loss.json").write_text(f"[\n{lines}\n]")


def until(page: Any, condition: str, seconds: float = 30) -> float:
    """Wait until a condition holds in the page; returns the seconds since the page was asked for."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        if time.monotonic() > end:
            complain(f"not within {seconds} s: {condition}", 1)
        page.wait_for_timeout(5)
    return float(page.evaluate("performance.now()")) / 1000


def drag(page: Any, box: dict[str, float], begin: float, end: float) -> None:
    """Drag over a part of the chart, given in shares of its width."""
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], height, steps=4)
    page.mouse.up()


def one_load(browser: Any, url: str) -> dict[str, float]:
    """Load the page once and use it."""
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    page = context.new_page()
    page.goto(url, wait_until="commit")
    until(page, "performance.getEntriesByName('andrea-usable').length > 0")
    found = {"usable": page.evaluate("performance.getEntriesByName('andrea-usable')[0].startTime") / 1000}
    box = page.locator("#chart-loss").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2)
    readouts = (
        "#chart-loss .readout:not([hidden]) div, #chart-loss .hoverlayer .legendtext, #chart-loss .hovertext"
    )
    found["read"] = until(page, f"document.querySelectorAll('{readouts}').length > 0")
    spacing = page.evaluate(f"({X}.at(-1) - {X}[0]) / {X}.length")
    drag(page, box, 0.4, 0.43)
    found["finer"] = until(page, f"({X}.at(-1) - {X}[0]) / {X}.length < {spacing} / 4")
    drag(page, box, 0.5, 0.52)
    found["single"] = until(page, f"{X}.length > 100 && {X}[51] - {X}[50] === 1")
    page.mouse.move(5, 5)
    found["plotly"] = until(page, "document.getElementById('chart-loss').dataset.drawnBy === 'plotly'")
    kept = page.evaluate(f"{X}[51] - {X}[50]")
    if kept != 1:
        complain("Plotly did not keep the zoom", 1)
    context.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=whole(FEWEST), default=1_000_000)
    parser.add_argument("--loads", type=whole(), default=10)
    parser.add_argument("--json", action="store_true", help="print the loads as JSON too")
    ask = parser.parse_args()
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        complain("playwright is not installed; pip install playwright", 1)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        write_losses(Path(folder), ask.steps)
        command = [sys.executable, "-m", "andrea", "dashboard", folder, "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            url = found[0]
            while True:  # the server has read the run
                with urllib.request.urlopen(url + "api/runs") as answer:
                    runs = json.load(answer)["runs"]
                if runs and not runs[0]["loading"]:
                    break
                time.sleep(0.05)
            try:
                browser = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            except Error as wrong:
                reason = wrong.message.splitlines()[0]
                complain(f"chromium does not start: {reason}; install it (playwright install chromium)", 1)
            try:
                one_load(browser, url)  # the browser itself has begun
                loads = [one_load(browser, url) for _ in range(ask.loads)]
                version = browser.version
            finally:
                browser.close()
        finally:
            server.terminate()
            server.wait(20)
    about = f"chromium {version}, {os.cpu_count()} CPUs {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    print(f"{ask.steps:,} steps, {ask.loads} loads, {about}")
    for key in loads[0]:
        values = sorted(load[key] for load in loads)
        print(f"{key:8} median {statistics.median(values):.2f} s, {values[0]:.2f} to {values[-1]:.2f}")
    if ask.json:
        print(json.dumps(loads))


if __name__ == "__main__":
    ended(main)
