"""What a run shows while it trains: a live panel on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from andrea.closed_pipe import stop_writing

if TYPE_CHECKING:
    from andrea._core import Event, Progress

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 60
WARNINGS = ("warning", "skip")


class Display(Protocol):
    """What `run` tells a display. A display never raises for what it is told."""

    def say(self, text: str) -> None:
        """Show text from before the first step: the memory plan, a note on the device."""

    def progress(self, progress: Progress) -> None:
        """Follow one finished step."""

    def event(self, event: Event) -> None:
        """Show an event as one line."""

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Bracket the run."""


def duration(seconds: float) -> str:
    """Return "1:02:03", or "?" if it is not known yet."""
    if not math.isfinite(seconds) or seconds < 0:
        return "?"
    total = round(seconds)
    return f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"


def perplexity(loss: float) -> float:
    """Return exp(loss), infinite where a double cannot hold it."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def curve(values: list[float], width: int = CURVE_WIDTH) -> str:
    """Draw values as a line of blocks, at most `width` of them; the highest is the tallest.

    What is no number is left out, as the mean before the first step that was not skipped.
    """
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    if len(values) > width:
        values = [values[i * len(values) // width] for i in range(width - 1)] + values[-1:]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BLOCKS[int((value - low) / span * (len(BLOCKS) - 1))] for value in values)


class QuietDisplay:
    """Warnings only."""

    def __init__(self) -> None:
        """Write to standard error."""
        self._errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Say nothing."""

    def progress(self, progress: Progress) -> None:
        """Say nothing."""

    def event(self, event: Event) -> None:
        """Show warnings."""
        if event.kind in WARNINGS:
            self._errors.print(f"warning: {event.line}", style="yellow")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Do nothing around the run."""
        yield


class PlainDisplay(QuietDisplay):
    """Lines for a log: one each ten steps or five seconds, at most four a second."""

    def __init__(self) -> None:
        """Write to standard output, warnings to standard error."""
        super().__init__()
        self._last_step = -1
        self._last_time = 0.0

    def say(self, text: str) -> None:
        """Print the text. A log that was closed is no reason to stop training."""
        try:
            print(text.rstrip("\n"), flush=True)
        except BrokenPipeError:
            stop_writing()
        except OSError:  # a full disk under the log, for one: the next line may fit
            return

    def progress(self, progress: Progress) -> None:
        """Print a line if one is due."""
        from andrea._core import progress_line

        now = time.monotonic()
        waited = now - self._last_time
        due = waited >= 5.0 or (waited >= 0.25 and progress.step - self._last_step >= 10)
        if self._last_step >= 0 and not due and progress.step != progress.end:
            return
        self.say(progress_line(progress))
        self._last_step, self._last_time = progress.step, now

    def event(self, event: Event) -> None:
        """Print the event's line."""
        if event.kind in WARNINGS:
            super().event(event)
        elif event.line:
            self.say(event.line)


class LiveDisplay(QuietDisplay):
    """A panel that stays at the bottom of the terminal while events scroll by above it."""

    def __init__(self, vocab_size: int) -> None:
        """`vocab_size` gives the loss of knowing nothing, ln V."""
        super().__init__()
        self._console = Console(highlight=False, markup=False)
        self._know_nothing = math.log(vocab_size)
        self._losses: list[float] = []
        self._stride = 1
        self._seen = 0
        self._live: Live | None = None
        self._next_refresh = 0.0

    def say(self, text: str) -> None:
        """Print the text."""
        self._console.print(text.rstrip("\n"))

    def progress(self, progress: Progress) -> None:
        """Keep the curve, and draw a few times a second."""
        if self._seen % self._stride == 0 and math.isfinite(progress.smma):
            self._losses.append(progress.smma)
            if len(self._losses) >= 4 * CURVE_WIDTH:
                self._losses = self._losses[::2]
                self._stride *= 2
        self._seen += 1
        now = time.monotonic()
        if self._live is not None and (now >= self._next_refresh or progress.step == progress.end):
            self._next_refresh = now + 0.125
            self._live.update(self._panel(progress), refresh=True)

    def event(self, event: Event) -> None:
        """Print the event above the panel."""
        if event.kind in WARNINGS:
            self._console.print(f"warning: {event.line}", style="yellow")
        elif event.kind == "sample":
            self._console.print(Text(event.line, style="dim"))
        elif event.line:
            self._console.print(event.line, style="bold" if event.kind in ("done", "gate") else "")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep the panel on the terminal."""
        with Live(Text(""), console=self._console, auto_refresh=False, transient=False) as self._live:
            try:
                yield
            finally:
                live, self._live = self._live, None
                live.refresh()

    def _panel(self, progress: Progress) -> Group:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            Text(f"step {progress.step:,}/{progress.steps:,}", style="bold"),
            ProgressBar(total=max(progress.steps, 1), completed=progress.step, width=40),
            Text(f"left {duration(progress.seconds_left)}"),
            Text(f"{progress.tokens_per_second:,.0f} tok/s"),
            Text(f"memory {_memory_used()}"),
        )
        figures = Text(
            f"loss {progress.loss:.4f}   smma {progress.smma:.4f}"
            f"   perplexity {perplexity(progress.smma):.4g}   (ln V = {self._know_nothing:.3f})"
            f"   lr {progress.lr:.3g}   norm {progress.grad_norm:.3g}"
        )
        if progress.loss_scale != 1.0:
            figures.append(f"   scale {progress.loss_scale:g}")
        if progress.skipped:
            figures.append(f"   skipped {progress.skipped}", style="yellow")
        return Group(bar, figures, Text(curve(self._losses), style="cyan"))


def _memory_used() -> str:
    """Return what this process holds in main memory."""
    import psutil

    used: Any = psutil.Process().memory_info().rss
    return f"{used / 2**30:.2f} GiB" if used >= 2**30 else f"{used / 2**20:.0f} MiB"


class SteadyDisplay:
    """Another display, whose failure is no reason to stop training: it is said once, and it is left alone."""

    def __init__(self, display: Display) -> None:
        """`display` is told everything until it raises."""
        self._display: Display | None = display

    def _tell(self, tell: Callable[[Display], None]) -> None:
        if self._display is None:
            return
        try:
            tell(self._display)
        except Exception as error:
            self._display = None
            with contextlib.suppress(OSError):
                Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(
                    f"warning: the display failed ({type(error).__name__}: {error}); training goes on without"
                )

    def say(self, text: str) -> None:
        """Pass it on."""
        self._tell(lambda display: display.say(text))

    def progress(self, progress: Progress) -> None:
        """Pass it on."""
        self._tell(lambda display: display.progress(progress))

    def event(self, event: Event) -> None:
        """Pass it on."""
        self._tell(lambda display: display.event(event))

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Bracket the run as the other display does."""
        return contextlib.nullcontext() if self._display is None else self._display.running()


def make_display(vocab_size: int, quiet: bool = False) -> Display:
    """Choose by what standard output is."""
    if quiet:
        return QuietDisplay()
    if Console().is_terminal:
        return LiveDisplay(vocab_size)
    return PlainDisplay()
