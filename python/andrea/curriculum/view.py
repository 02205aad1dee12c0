"""The proxy's read-only view over HTTP: JSON, GET and HEAD only, loopback by default (docs/PROXY.md).

Model names are looked up among the run directories, never joined into a path; answers are bounded; a
request body is refused; on loopback a foreign Host header is refused, so that no web page can read along.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from andrea.curriculum.addresses import is_loopback, parse_host_port
from andrea.curriculum.policy import Phase
from andrea.curriculum.runs import checkpoints, find_runs, last_elements
from andrea.errors import ConfigError, IoError

MAX_POINTS = 100_000
MAX_SAMPLES = 200
MAX_REQUESTS = 16  # at a time; more get 503
TIMEOUT = 10.0  # seconds for a client to send its request


@dataclass
class Snapshot:
    """What the proxy last decided; written by the trainer's thread, read by HTTP threads."""

    connected: bool = False
    decisions: int = 0
    latest: dict[str, Any] = field(default_factory=dict)

    def put(self, model: str, seed: int, phase: Phase) -> None:
        """Keep `phase` as the latest decision (one assignment, so readers see old or new)."""
        self.connected = True
        self.decisions += 1
        self.latest = {
            "model": model,
            "seed": seed,
            "step": phase.step,
            "steps": phase.steps,
            "weights": phase.weights.tolist(),
            "focus": list(phase.focus),
            "dice": phase.die,
            "roll": phase.roll,
            "reasons": phase.reasons,
        }


class _NotFound(Exception):
    pass


class HttpView:
    """Serves /loss /loss/<model> /checkpoints /samples/<model> /system /curriculum, in its own threads."""

    def __init__(self, address: tuple[str, int], runs: Path, snapshot: Snapshot) -> None:
        """Serve runs under `runs`; nothing listens before `start`."""
        self._address, self.runs, self.snapshot = address, runs, snapshot
        self._slots = threading.Semaphore(MAX_REQUESTS)
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> str:
        """Listen; returns host:port. Raises IoError if the port cannot be had."""
        view = self

        class Handler(_Handler):
            pass

        Handler.view = view
        host, port = self._address
        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as wrong:
            raise IoError(
                f"cannot serve HTTP on {host}:{port}: {wrong.strerror or wrong}; choose --http"
            ) from wrong
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()
        return f"{host}:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def allows(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        if not is_loopback(self._address[0]):
            return True
        try:
            name = parse_host_port(host)[0] if host.rpartition(":")[2].isdigit() else host.strip("[]")
        except ConfigError:
            return False
        return is_loopback(name)

    def answer(self, target: str) -> Any:
        """Return the JSON value of a request target; raises _NotFound."""
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        if path == ["loss"]:
            return {"models": [run.summary() for run in find_runs(self.runs)]}
        if path == ["checkpoints"]:
            return {"runs": [checkpoints(run) for run in find_runs(self.runs)]}
        if path == ["system"]:
            from andrea.curriculum.system import system_figures

            return system_figures(self.runs)
        if path == ["curriculum"]:
            seen = self.snapshot
            return {"connected": seen.connected, "decisions": seen.decisions, "latest": seen.latest or None}
        if len(path) == 2 and path[0] in ("loss", "samples"):
            most, usual = (MAX_POINTS, 10_000) if path[0] == "loss" else (MAX_SAMPLES, 20)
            count = _bounded(query.get("last", [str(usual)])[0], most)
            for run in find_runs(self.runs):
                if run.name == path[1]:
                    file = run.loss if path[0] == "loss" else run.samples
                    key = "points" if path[0] == "loss" else "samples"
                    return {"model": run.name, "run": str(run.directory), key: last_elements(file, count)}
            raise _NotFound(f"no run has a model of this name under {self.runs}")
        raise _NotFound("known are /loss /loss/<model> /checkpoints /samples/<model> /system /curriculum")

    def slot(self) -> threading.Semaphore:
        """Return the semaphore that bounds requests at a time."""
        return self._slots


def _bounded(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= 1):
        raise ValueError(f"last must be a whole number from 1 to {most}")
    return min(int(text), most)


class _Handler(BaseHTTPRequestHandler):
    view: HttpView
    timeout = TIMEOUT
    server_version = "andrea"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with JSON."""
        slot = self.view.slot()
        if not slot.acquire(blocking=False):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "too many requests at a time; try again"})
            return
        try:
            self._get()
        finally:
            slot.release()

    do_HEAD = do_GET

    def _get(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": "a request here has no body"})
            return
        if not self.view.allows(self.headers.get("Host", "")):
            self._send(HTTPStatus.FORBIDDEN, {"error": "the Host header names another server"})
            return
        try:
            value = self.view.answer(self.path)
        except _NotFound as wrong:
            self._send(HTTPStatus.NOT_FOUND, {"error": str(wrong)})
        except ValueError as wrong:
            self._send(HTTPStatus.BAD_REQUEST, {"error": str(wrong)})
        except OSError as wrong:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": wrong.strerror or "cannot read"})
        else:
            self._send(HTTPStatus.OK, value)

    def _send(self, status: HTTPStatus, value: Any) -> None:
        body = msgspec.json.encode(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: the proxy's log tells of trainers, not of lookers-on."""
