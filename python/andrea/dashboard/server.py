"""Running the dashboard: the port, the server, and how `andrea train --dashboard` starts one."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from andrea.dashboard.collection import Collection
from andrea.dashboard.machine import MachineWatch
from andrea.errors import ConfigError, IoError

HOST = "127.0.0.1"
PORT = 8899
PORTS_TRIED = 50


def bind(host: str, port: int, tries: int = PORTS_TRIED) -> socket.socket:
    """Return a listening socket on `port`, or on the next free one; port 0 takes any.

    Raises IoError, and ConfigError for an empty host, which would be every address of this machine.
    """
    host = host.strip().removeprefix("[").removesuffix("]")
    if not host:
        raise ConfigError("no host to listen on was given; 127.0.0.1 is this machine only")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    candidates = range(1) if port == 0 else range(port, min(port + tries, 65536))
    for candidate in candidates:
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((host, candidate))
            server.listen(128)
        except OSError as wrong:
            server.close()
            last = wrong
            if wrong.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise IoError(
                    f"cannot listen on {host}: {wrong.strerror}; give --host an address of this machine"
                ) from wrong
            continue
        except TypeError as wrong:  # what no name of a host can hold: an empty label, a NUL
            server.close()
            raise ConfigError(f"{host!r} is no address; give --host one of this machine") from wrong
        return server
    reason = last.strerror if last else "no port"
    more = f" or the {len(candidates) - 1} ports after it" if len(candidates) > 1 else ""
    raise IoError(f"cannot listen on {host}, port {port}{more}: {reason}; choose --port")


def serve(
    places: Sequence[Path],
    host: str = HOST,
    port: int = PORT,
    announce: Callable[[str], None] = print,
    end_with: int | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until the process `end_with` is gone.

    `warn` is told if other machines can read along. Raises ConfigError if a package is missing, IoError if no
    port can be had.
    """
    try:
        import uvicorn

        from andrea.dashboard.app import Answers, make_app
    except ImportError as wrong:
        raise ConfigError(
            f"the dashboard needs {wrong.name}: pip install starlette uvicorn plotly nvidia-ml-py"
        ) from wrong
    from andrea._core import VERSION
    from andrea.curriculum.addresses import is_loopback
    from andrea.dashboard.plotly_bundle import plotly_script

    plotly_script()  # what is missing is said now, and the first page need not wait for it
    runs, machine = Collection(places), MachineWatch(places[0] if places else Path())
    answers = Answers(runs, machine, VERSION)
    with bind(host, port) as listening:
        runs.start()
        machine.start()
        # What the system made of the host counts: "0" is every address, a name may be loopback.
        bound, taken = listening.getsockname()[:2]
        local = is_loopback(bound)
        app = make_app(answers, local)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        shown = f"[{bound}]" if ":" in bound else "localhost" if host == "localhost" else bound
        address = f"http://{shown}:{taken}/"

        def stop() -> None:
            answers.stopping = True
            server.should_exit = True

        if end_with is not None:
            threading.Thread(target=_wait_for_end, args=(end_with, stop), daemon=True).start()
        try:
            # uvicorn raises the signal again after it has stopped: that is no news to the caller.
            with contextlib.suppress(KeyboardInterrupt), _quiet_sigterm(stop):
                if warn is not None and not local:
                    warn(f"other machines can read along on {bound}, and there is no password")
                announce(f"dashboard: {address}")  # whoever reads it may end the server at once
                server.run(sockets=[listening])
        finally:
            answers.stopping = True
            machine.stop()
            runs.stop()


@contextlib.contextmanager
def _quiet_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM ends the server with exit code 0, also before uvicorn listens to signals and after it has."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, lambda number, frame: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait_for_end(pid: int, stop: Callable[[], None]) -> None:
    import time

    import psutil  # type: ignore[import-untyped,unused-ignore]

    while psutil.pid_exists(pid):
        time.sleep(1.0)
    stop()


@contextlib.contextmanager
def dashboard_beside(out: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Run a dashboard on `out` in a process of its own while inside; it does not outlive this one for long.

    It is started in a session of its own, so a Ctrl-C that stops training does not reach it first. Whatever
    becomes of it, the training does not notice.
    """
    from andrea.dashboard.plotly_bundle import plotly_js

    plotly_js()  # what is missing is said before training begins
    command = [sys.executable, "-m", "andrea.dashboard.server", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )  # fmt: skip

    def tell() -> None:
        if process.stdout is not None and (line := process.stdout.readline().strip()):
            say(line)

    threading.Thread(target=tell, name="dashboard", daemon=True).start()
    try:
        yield
    finally:
        process.terminate()


def _main() -> None:
    import os

    serve([Path(sys.argv[1])], announce=lambda line: print(line, flush=True), end_with=os.getppid())


if __name__ == "__main__":
    _main()
