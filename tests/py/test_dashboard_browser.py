"""The dashboard in a real browser: Debian's chromium through Playwright. Skipped, visibly, without one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test_dashboard import Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")

EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"


def write_run(folder: Path, name: str, steps: int, begin: int = 0) -> None:
    """Write a run as a trainer leaves it: losses, samples and events."""
    folder.mkdir(parents=True, exist_ok=True)
    t = np.arange(begin, steps)
    loss = 3 + 6 * np.exp(-t / (steps / 9)) + 0.1 * np.sin(t * 0.7)
    lines = ",\n".join(f"[{k}, {x:.5f}]" for k, x in zip(t.tolist(), loss.tolist(), strict=True))
    (folder / f"{name}.loss.json").write_text(f"[\n{lines}\n]")
    (folder / f"{name}.samples.json").write_text(
        '[\n{"step": 5, "loss": 4.0, "prompt": "", "text": "' + EVIL + '", "coherence": null}\n]'
    )
    (folder / f"{name}.events.jsonl").write_text(
        '{"kind":"warning","step":5,"time":1700000000.0,"message":"' + EVIL + '"}\n'
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def open_page(browser: Any, url: str, **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_page(viewport={"width": 1300, "height": 2400}, **options)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    return page, wrong


def points(page: Any, chart: str = "loss") -> int:
    return int(page.evaluate(f"Number(document.getElementById('chart-{chart}').dataset.points || 0)"))


def wait(page: Any, condition: str, seconds: float = 15) -> None:
    # Not wait_for_function: it evaluates a string within the page, which the page's policy forbids.
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def test_two_runs_live_again_after_a_restart_dark_and_harmless(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "one", "one", 300)
    evil = "<b onmouseover=window.hacked=1>x<"
    write_run(tmp_path / "two", evil, 300)
    server = Served(tmp_path)
    page, wrong = open_page(browser, server.url)
    try:
        wait(page, "document.querySelectorAll('.run').length === 2")
        wait(page, "document.getElementById('chart-loss').dataset.points > 1200")
        assert page.locator("#chart-loss .scatterlayer path.js-line").count() >= 4
        # Names and texts are shown as they are.
        assert page.locator(".run .name").all_inner_texts() == ["one", evil]
        wait(page, "document.getElementById('sample-text').textContent.includes('<img')")
        wait(page, "document.getElementById('events').textContent.includes('<script>')")
        assert page.locator("#sample-text img, #events img, .run b[onmouseover]").count() == 0

        # Live: an event is on the page less than a second after it was written (the best of three: other
        # processes want the processor too).
        wait(page, "document.getElementById('chart-loss_scale').dataset.points > 0")
        taken = []
        for number in range(3):
            begun = time.monotonic()
            with (tmp_path / "one" / "one.events.jsonl").open("a") as log:
                log.write(
                    f'{{"kind":"checkpoint","step":300,"time":1700000001.0,"message":"saved {number}"}}\n'
                )
            wait(page, f"document.getElementById('events').textContent.includes('saved {number}')")
            taken.append(time.monotonic() - begun)
        assert min(taken) < 1.0
        with (tmp_path / "one" / "one.loss.json").open("r+b") as losses:
            losses.seek(-2, 2)
            losses.write(b",\n[300, 2.5]\n]")
        wait(page, "document.querySelector('.run .figures').textContent.includes('301')")

        # The server goes and comes back on the same port: the page takes up by itself.
        assert server.stop() == 0
        wait(page, "document.getElementById('connection').dataset.state === 'lost'")
        server = Served(tmp_path, port=server.port)
        wait(page, "document.getElementById('connection').dataset.state === 'live'")

        # Keys: dark, a run hidden, logarithmic steps, zoom and all again.
        paper = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(paper)
        page.keyboard.press("d")
        assert page.evaluate(paper) != before
        page.keyboard.press("2")
        wait(page, "document.querySelectorAll('.run')[1].dataset.shown === 'false'")
        page.keyboard.press("x")
        wait(page, "document.getElementById('chart-loss').layout.xaxis.type === 'log'")
        page.keyboard.press("x")
        page.keyboard.press("+")
        wait(page, "document.getElementById('chart-loss').layout.xaxis.autorange === false")
        page.keyboard.press("r")
        wait(page, "document.getElementById('chart-loss').layout.xaxis.autorange !== false")
        assert page.evaluate("window.hacked") is None
        assert wrong == []
    finally:
        page.close()
        server.stop()


def test_a_million_steps(browser: Any, tmp_path: Path) -> None:
    """1,000,000 lines of losses: the curve is drawn soon, thinned, and zooms to single steps."""
    write_run(tmp_path / "long", "long", 1_000_000)
    server = Served(tmp_path)
    warm = browser.new_page()
    warm.goto(server.url + "assets/charts.js")  # the browser has begun
    warm.close()
    try:
        begun = time.monotonic()
        page, wrong = open_page(browser, server.url)
        # A sketch while the browser reads plotly.js, then the chart itself.
        place = "document.getElementById('chart-loss').dataset"
        wait(page, f"Number({place}.sketched || 0) > 1000 || Number({place}.points || 0) > 2000")
        first = time.monotonic() - begun
        wait(page, f"Number({place}.points) > 2000")
        seconds = time.monotonic() - begun
        print(f"1,000,000 losses sketched {first:.2f} s, drawn {seconds:.2f} s after the page was asked for")
        assert first < 2.5  # the promise is 1 s; a shared machine of CI may be slow
        assert seconds < 4.5
        assert points(page) < 8000
        begun = time.monotonic()
        for _ in range(18):
            page.keyboard.press("+")
        x = "document.getElementById('chart-loss').data[0].x"
        wait(page, f"{x}[1] - {x}[0] === 1")
        assert wrong == []
        page.close()
    finally:
        server.stop()


def test_what_is_drawn_can_be_saved(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "one", "one", 300)
    server = Served(tmp_path)
    page, wrong = open_page(browser, server.url)
    try:
        wait(page, "document.getElementById('chart-loss').dataset.points > 500")
        wait(page, "document.getElementById('chart-coherence').data !== undefined")
        for button, beginning in (
            ("Save as PNG: loss", b"\x89PNG"),
            ("Save as CSV: loss", b"step,"),  # every step, from the server
            ("Save as CSV: coherence", b"curve,x,y"),  # what is drawn
        ):
            with page.expect_download() as saved:
                page.get_by_role("button", name=button, exact=True).click()
            assert Path(saved.value.path()).read_bytes().startswith(beginning)
        assert wrong == []
    finally:
        page.close()
        server.stop()


def write_attempts(folder: Path) -> None:
    """Write a run of 100 steps, one in 36 s, that was ended at step 70 and went on from 50 an hour later."""
    write_run(folder, "one", 100)
    begin = '{"kind":"start","step":%d,"time":%d,"message":"","rows":4,"context":32}'
    lines = []
    for first, end, clock in ((0, 70, 0), (50, 100, 3600)):
        lines.append(begin % (first, clock + 36 * first))
        lines += [f"[{t},{3 + first / 100},1,0.1,1,{clock + 36 * t}]" for t in range(first, end)]
    (folder / "one.events.jsonl").write_text("\n".join(lines) + "\n")


def test_axes_and_superseded_steps(browser: Any, tmp_path: Path) -> None:
    write_attempts(tmp_path / "one")
    server = Served(tmp_path)
    page, wrong = open_page(browser, server.url)
    chart = "document.getElementById('chart-loss')"
    try:
        wait(page, f"{chart}.data && {chart}.data[0].x.length === 100")
        for axis, last, note in (("time", 99 * 36 / 3600, "by hours"), ("tokens", 99 * 4 * 32, "by tokens")):
            page.select_option("#axis", axis)
            wait(page, f"Math.abs({chart}.data[0].x[99] - {last}) < 1e-3")
            wait(page, f"document.getElementById('loss-note').textContent.startsWith('{note}')")
            wait(page, f"Math.abs(document.getElementById('chart-lr').data[0].x[99] - {last}) < 1e-3")
        page.select_option("#axis", "step")
        page.click("#replaced")
        earlier = f"{chart}.data.find((t) => t.name === 'one, superseded')"
        wait(page, f"{earlier} !== undefined")
        assert page.evaluate(f"{earlier}.x") == list(range(50, 70))
        assert set(page.evaluate(f"{earlier}.y")) == {3}
        assert page.get_attribute("#replaced", "aria-pressed") == "true"
        page.click("#replaced")
        wait(page, f"{earlier} === undefined")
        assert wrong == []
    finally:
        page.close()
        server.stop()


def test_the_entry_page_draws_a_loss_file_and_finds_a_dashboard(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "one", "one", 300)
    entry = Path(__file__).parents[2] / "scripts" / "live-loss-dashboard.html"
    server = Served(tmp_path, port=8909)  # or, if that is taken, one of those that nobody looks at
    page, wrong = open_page(browser, entry.as_uri())
    try:
        if server.port == 8909:
            wait(page, "document.querySelector('#found a') !== null")
        page.set_input_files("#file", tmp_path / "one" / "one.loss.json")
        wait(page, "document.getElementById('shown').textContent.includes('300')")
        pen = "document.getElementById('curve')"
        wait(
            page,
            f"{pen}.getContext('2d').getImageData(0, 0, {pen}.width, {pen}.height).data.some((v) => v > 0)",
        )
        # Dropped: what cannot be read leaves the curve, another history replaces it.
        drop = """([name, text]) => {
            const data = new DataTransfer();
            if (name) data.items.add(new File([text], name)); else if (text) data.setData("text/plain", text);
            document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }"""
        page.evaluate(drop, ["", ""])
        page.evaluate(drop, ["", "only text"])
        page.evaluate(drop, ["two.loss.json", "[\n[0, 5.0],\n[1, null],\n[2, 4.5],\n[3, 4."])  # torn
        wait(
            page, "document.getElementById('shown').textContent.startsWith('two.loss.json: step 3, loss 4.5')"
        )
        page.set_input_files("#file", {"name": "x.json", "mimeType": "application/json", "buffer": b"{}"})
        wait(page, "document.getElementById('shown').textContent.includes('no loss history')")
        assert wrong == []
    finally:
        page.close()
        server.stop()
