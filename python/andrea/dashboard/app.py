"""The dashboard's HTTP side: one page, JSON, and a stream of what changed. GET and HEAD only.

Runs are looked up by an id among those that are followed; no request names a path. A foreign Host header is
refused, so that a web page elsewhere cannot read along by DNS rebinding.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from andrea.curriculum.addresses import is_loopback, parse_host_port
from andrea.dashboard.collection import Collection
from andrea.dashboard.machine import MachineWatch
from andrea.dashboard.page_files import PAGE, PLOTLY, SCRIPTS, STYLE
from andrea.dashboard.plotly_bundle import plotly_script, plotly_version
from andrea.dashboard.reading import AXES, SERIES, RunReader
from andrea.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BUCKETS = 8000
MAX_EVENTS = 2000
CSV_ROWS = 20_000  # a block
HEARTBEAT = 5.0  # seconds
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Refuses what is not for this server, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, local: bool) -> None:
        """`local`: this server listens on loopback, so only loopback names are its own."""
        self.app, self.local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403 or 405."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.setdefault("headers", [])
                have = {name.lower() for name, _ in given}
                for name, value in {"Cache-Control": "no-store", **HEADERS}.items():
                    if name.lower().encode() not in have:
                        given.append((name.lower().encode(), value.encode()))
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self.local and not _is_local(host):
            refusal = JSONResponse({"error": "the Host header names another server"}, 403)
            await refusal(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)


def _is_local(host: str) -> bool:
    try:
        return is_loopback(
            parse_host_port(host)[0] if host.rpartition(":")[2].isdigit() else host.strip("[]")
        )
    except ConfigError:
        return False


class Answers:
    """The handlers."""

    def __init__(self, runs: Collection, machine: MachineWatch | None, version: str) -> None:
        """`machine` None: no figures of this machine are shown."""
        self.runs, self.machine, self.version = runs, machine, version
        self.stopping = False

    async def page(self, request: Request) -> Response:
        """Answer with the page."""
        text = (PAGE / "dashboard.html").read_text(encoding="utf-8")
        return HTMLResponse(text.replace(PLOTLY, f"assets/plotly.js?v={plotly_version()}-1"))

    async def asset(self, request: Request) -> Response:
        """Answer with one of the page's own files."""
        name = request.path_params["name"]
        if name == "plotly.js":
            # It does not change while its address does not: the page asks for it with a version.
            cached = {"Cache-Control": "max-age=31536000, immutable"} if request.query_params else None
            return Response(plotly_script(), media_type="text/javascript; charset=utf-8", headers=cached)
        if name == STYLE:
            return FileResponse(PAGE / name, media_type="text/css; charset=utf-8")
        if name not in SCRIPTS:
            raise HTTPException(404)
        return FileResponse(PAGE / name, media_type="text/javascript; charset=utf-8")

    async def hello(self, request: Request) -> Response:
        """Say that a dashboard is here; a page opened from a file (origin null) may read it."""
        headers = {"Access-Control-Allow-Origin": "null"} if request.headers.get("origin") == "null" else None
        return JSONResponse({"dashboard": "andrea", "version": self.version}, headers=headers)

    async def summaries(self, request: Request) -> Response:
        """Answer with the summary of every run."""
        return await self._json(lambda: {"runs": [reader.summary() for reader in self.runs.runs.values()]})

    async def series(self, request: Request) -> Response:
        """Answer with curves: names, axis, low, high, buckets, log, smooth."""
        reader, ask = self._reader(request), request.query_params
        names = ask.get("names", "loss").split(",")
        axis = ask.get("axis", "step")
        if axis not in AXES or any(name not in SERIES for name in names):
            raise HTTPException(400, f"names are {', '.join(SERIES)}; axis is one of {', '.join(AXES)}")
        low, high = _number(ask.get("low"), -math.inf), _number(ask.get("high"), math.inf)
        buckets, smooth = _buckets(ask.get("buckets")), _number(ask.get("smooth"), 0.0)
        log = ask.get("log") == "1"
        return await self._json(
            lambda: {
                name: reader.series(name, axis, low, high, buckets, log, smooth if smooth >= 1 else None)
                for name in names
            }
        )

    async def sources(self, request: Request) -> Response:
        """Answer with the figures of the sources over pieces of the steps, and those of the decisions."""
        reader, ask = self._reader(request), request.query_params
        low, high = _number(ask.get("low"), -math.inf), _number(ask.get("high"), math.inf)
        buckets, log = min(_buckets(ask.get("buckets")), 600), ask.get("log") == "1"

        def answer() -> dict[str, Any]:
            with reader.lock:
                keys = ("mean_reward", "epochs", "coverage", "floor")
                return {
                    **reader.rows.by_bucket(low, high, buckets, log),
                    "table": reader.rows.table(),
                    "arms": {key: reader.rows.arms_over_time(key, low, high, 2 * buckets) for key in keys},
                    "dice": reader.rows.dice(low, high, buckets),
                    "evals": reader.rows.evals[-MAX_EVENTS:],
                }

        return await self._json(answer)

    async def events(self, request: Request) -> Response:
        """Answer with the newest events from index `after` on, with their place on the axis."""
        reader, ask = self._reader(request), request.query_params
        axis = ask.get("axis", "step")
        if axis not in AXES:
            raise HTTPException(400, f"axis is one of {', '.join(AXES)}")
        after = int(max(0.0, min(_number(ask.get("after"), 0.0), 1e12)))
        return await self._json(lambda: reader.events_on(axis, after, MAX_EVENTS))

    async def samples(self, request: Request) -> Response:
        """Answer with the index of the samples."""
        reader = self._reader(request)

        def answer() -> dict[str, Any]:
            with reader.lock:
                return {"samples": reader.samples.index()}

        return await self._json(answer)

    async def sample(self, request: Request) -> Response:
        """Answer with one text."""
        reader = self._reader(request)
        number = request.path_params["number"]

        def answer() -> dict[str, Any]:
            with reader.lock:
                return {"text": reader.samples.text(number)}

        try:
            return await self._json(answer)
        except IndexError:
            raise HTTPException(404, "no such sample") from None

    async def config(self, request: Request) -> Response:
        """Answer with the effective experiment."""
        reader = self._reader(request)
        return await self._json(lambda: reader.config)

    async def csv(self, request: Request) -> Response:
        """Answer with every step of every curve, as CSV."""
        reader = self._reader(request)
        headers = {"Content-Disposition": f'attachment; filename="andrea-{reader.id}.csv"'}
        return StreamingResponse(csv_of(reader), media_type="text/csv; charset=utf-8", headers=headers)

    async def machine_figures(self, request: Request) -> Response:
        """Answer with the figures of this machine over the last half hour."""
        return await self._json(
            lambda: {"now": time.time(), "samples": self.machine.history() if self.machine else []}
        )

    async def stream(self, request: Request) -> Response:
        """Send a summary whenever a run changed, and a heartbeat."""
        return StreamingResponse(
            self._changes(request), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _changes(self, request: Request) -> AsyncIterator[bytes]:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        dirty: set[str] = set(self.runs.runs)

        def listen(reader: RunReader) -> None:
            def mark() -> None:
                dirty.add(reader.id)
                changed.set()

            loop.call_soon_threadsafe(mark)

        self.runs.listeners.append(listen)
        try:
            yield b"retry: 500\n\n"
            changed.set()
            while not self.stopping and not await request.is_disconnected():
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT)
                except asyncio.TimeoutError:
                    yield b": still here\n\n"
                    continue
                changed.clear()
                now, dirty = dirty, set()
                for name, reader in self.runs.runs.items():
                    if name in now:
                        text = msgspec.json.encode(await run_in_threadpool(reader.summary))
                        yield b"event: run\ndata: " + text + b"\n\n"
                await asyncio.sleep(0.1)  # a run that logs without a pause makes ten messages a second
        finally:
            self.runs.listeners.remove(listen)

    def _reader(self, request: Request) -> RunReader:
        reader = self.runs.runs.get(request.path_params["run"])
        if reader is None:
            raise HTTPException(404, "no such run")
        return reader

    async def _json(self, make: Callable[[], Any]) -> Response:
        def answer() -> bytes:
            return msgspec.json.encode(make())

        return Response(await run_in_threadpool(answer), media_type="application/json")


def csv_of(reader: RunReader) -> Iterator[str]:
    """Yield lines of CSV: step, loss, SMMA, gradient norm, LR, loss scale, tokens a second, Unix time."""
    import numpy as np

    with reader.lock:
        steps, losses = reader.whole_series("loss")
        smooth = reader.smoothed()
        log = reader.log.in_force
        place = np.full(len(steps), -1, dtype=np.int64)
        if log["step"].size:
            found = np.searchsorted(log["step"], steps).clip(max=log["step"].size - 1)
            place = np.where(log["step"][found] == steps, found, -1)
        more = [log["grad_norm"], log["lr"], log["loss_scale"], reader.log.rates(), log["time"]]
    yield "step,loss,smma,grad_norm,lr,loss_scale,tokens_per_second,time\n"
    for begin in range(0, len(steps), CSV_ROWS):
        block = []
        for i in range(begin, min(begin + CSV_ROWS, len(steps))):
            cells = [
                losses[i],
                smooth[i],
                *(column[place[i]] if place[i] >= 0 else np.nan for column in more),
            ]
            block.append(f"{steps[i]}," + ",".join("" if x != x else f"{x:.10g}" for x in cells))
        yield "\n".join(block) + "\n"


def _number(text: str | None, default: float) -> float:
    if text is None or text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        raise HTTPException(400, f"{text[:40]!r} is no number") from None
    if math.isnan(value):
        raise HTTPException(400, "nan is no place on an axis")
    return value


def _buckets(text: str | None) -> int:
    return int(max(1.0, min(_number(text, 1000.0), float(MAX_BUCKETS))))


async def _refused(request: Request, wrong: Exception) -> Response:
    assert isinstance(wrong, HTTPException)
    return JSONResponse({"error": wrong.detail}, wrong.status_code, headers=wrong.headers)


def make_app(answers: Answers, local: bool = True) -> ASGIApp:
    """Return the ASGI application; `local`: it listens on loopback."""
    routes = [
        Route("/", answers.page),
        Route("/assets/{name}", answers.asset),
        Route("/api/hello", answers.hello),
        Route("/api/runs", answers.summaries),
        Route("/api/machine", answers.machine_figures),
        Route("/api/stream", answers.stream),
        Route("/api/runs/{run}/series", answers.series),
        Route("/api/runs/{run}/sources", answers.sources),
        Route("/api/runs/{run}/events", answers.events),
        Route("/api/runs/{run}/samples", answers.samples),
        Route("/api/runs/{run}/samples/{number:int}", answers.sample),
        Route("/api/runs/{run}/config", answers.config),
        Route("/api/runs/{run}/csv", answers.csv),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: _refused}), local)
