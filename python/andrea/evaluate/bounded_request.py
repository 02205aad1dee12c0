"""One HTTP request that is over after a stated time, whatever the other side does.

A socket's time-out bounds each read, so a server that sends a byte a second never meets it. Here the look-up
of the name, the connection, the request and its answer share the time: they run in a thread of their own, and
the connection is shut down when the time is up.
"""

from __future__ import annotations

import http.client
import socket
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a server answered, errors and redirects included. `content` is cut at the bytes asked for."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


def post(request: urllib.request.Request, seconds: float, most_bytes: int) -> Answer:
    """Send `request` and return the answer; redirects are not followed.

    Raises OSError (TimeoutError if there is no whole answer after `seconds`) or http.client.HTTPException.
    """
    call = _Call(request, seconds, most_bytes)
    # A daemon: what still waits for a name when its time is over must not keep the process alive.
    thread = Thread(target=call.run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        call.stop()
        raise TimeoutError(f"timed out: no whole answer within {seconds:g} s")
    if call.fault is not None:
        raise call.fault
    assert call.answer is not None
    return call.answer


@dataclass
class _Call:
    request: urllib.request.Request
    seconds: float
    most_bytes: int
    answer: Answer | None = None
    fault: Exception | None = None
    stopped: bool = False
    sockets: list[socket.socket] = field(default_factory=list)

    def run(self) -> None:
        try:
            opener = urllib.request.build_opener(_Http(self), _Https(self), _AsItIs)
            with opener.open(self.request, timeout=self.seconds) as got:
                self.answer = Answer(got.status, got.reason, got.headers, got.read(self.most_bytes))
        except Exception as fault:
            self.fault = fault

    def stop(self) -> None:
        """End a read or a write under way."""
        self.stopped = True
        for one in self.sockets:
            with suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)  # also below TLS, without its farewell

    def connected(self, one: socket.socket) -> None:
        self.sockets.append(one)
        if self.stopped:
            self.stop()


class _Connection(http.client.HTTPConnection):
    def __init__(self, *args: Any, call: _Call, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._call = call

    def connect(self) -> None:
        super().connect()
        self._call.connected(self.sock)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def __init__(self, call: _Call) -> None:
        super().__init__()
        self._call = call

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(_Connection, call=self._call), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, call: _Call) -> None:
        super().__init__()
        self._call = call

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(_TlsConnection, call=self._call), req)


class _AsItIs(urllib.request.HTTPErrorProcessor):
    """Answers of every status come back, and redirects with them, so that the key stays where it belongs."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response
