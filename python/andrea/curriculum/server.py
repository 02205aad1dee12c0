"""`andrea proxy`: serves one trainer at a time over a local socket, and a read-only view over HTTP."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from andrea.curriculum.addresses import Address, claim_unix_path
from andrea.curriculum.experiment import CurriculumPlan, Scorer
from andrea.curriculum.policy import Phase
from andrea.curriculum.protocol import MAX_LINE, ErrorReply, write_line
from andrea.curriculum.session import Session
from andrea.curriculum.view import HttpView, Snapshot
from andrea.errors import IoError


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class ProxyServer:
    """The proxy: one policy conversation at a time, a log line for what happens."""

    def __init__(
        self,
        plan: CurriculumPlan,
        listen: Address,
        scorer: Scorer | None = None,
        http: tuple[str, int] | None = None,
        runs: Path | None = None,
        log: Callable[[str], None] = _say,
    ) -> None:
        """Prepare; nothing listens before `run`."""
        self._plan, self._listen, self._scorer, self._log = plan, listen, scorer, log
        self._snapshot = Snapshot()
        self._http = HttpView(http, runs or Path("runs"), self._snapshot) if http else None
        self._busy = False
        self._stop: asyncio.Event | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM. Raises IoError if an address cannot be had."""
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        server = await self._open()
        try:
            if self._http:
                self._log(f"http://{self._http.start()}/")
            where = self._listen
            if where.path is None:
                where = Address(host=where.host, port=server.sockets[0].getsockname()[1])
            if self._scorer is None and self._plan.gate > 0:
                self._log(
                    f"samples get no score here: the coherence gate of {self._plan.origin} (threshold "
                    f"{self._plan.gate:g}) cannot stop the trainer; leave out --no-score (it needs "
                    "data.tokenizer), or set samples.threshold 0"
                )
            self._log(f"listening on {where}")
            await self._stop.wait()
        finally:
            server.close()
            for writer in list(self._connections):
                writer.close()
            if self._http:
                self._http.stop()
            if self._listen.path is not None:
                self._listen.path.unlink(missing_ok=True)
        self._log("stopped")

    async def _open(self) -> asyncio.Server:
        at = self._listen
        try:
            if at.path is None:
                return await asyncio.start_server(self._serve, at.host, at.port, limit=MAX_LINE)
            claim_unix_path(at.path)
            server = await asyncio.start_unix_server(self._serve, str(at.path), limit=MAX_LINE)
            at.path.chmod(0o600)
            return server
        except OSError as wrong:
            raise IoError(
                f"cannot listen on {at}: {wrong.strerror or wrong}; choose another address"
            ) from wrong

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            if self._busy:
                self._log("a second trainer was sent away")
                reply = ErrorReply("busy", "this proxy serves another trainer; start a proxy for each")
                writer.write(write_line(reply))
                await writer.drain()
                return
            self._busy = True
            self._log("trainer connected")
            try:
                await self._converse(reader, writer)
            finally:
                self._busy = False
                self._snapshot.connected = False
                self._log("trainer gone")
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(self._plan, self._scorer, self._decided)
        while not session.closed:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                self._log(f"a line of more than {MAX_LINE} bytes: connection closed")
                reply = ErrorReply("line", f"a line may have {MAX_LINE} bytes")
                writer.write(write_line(reply))
                await writer.drain()
                return
            answer = await asyncio.to_thread(session.answer, line)
            if answer is None:
                return
            if isinstance(answer, ErrorReply):
                self._log(f"refused ({answer.code}): {answer.message}")
            writer.write(write_line(answer))
            await writer.drain()

    def _decided(self, model: str, seed: int, phase: Phase) -> None:
        self._snapshot.put(model, seed, phase)
        focus = f", focus {', '.join(phase.focus)} ({phase.die}: {phase.roll})" if phase.focus else ""
        self._log(f"{model}: steps {phase.step}..{phase.end - 1}{focus}")
