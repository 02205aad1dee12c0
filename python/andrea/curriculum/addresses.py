"""Where a proxy listens: `unix:PATH` or `tcp:127.0.0.1:PORT`, loopback only."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from andrea.errors import ConfigError, IoError

MAX_UNIX_PATH = 107  # bytes of sockaddr_un.sun_path, less its end


@dataclass(frozen=True)
class Address:
    """A parsed address: `path` for unix sockets, else host and port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """Read `unix:PATH` or `tcp:HOST:PORT`; raises ConfigError."""
    kind, _, rest = text.partition(":")
    if kind == "unix" and rest:
        if len(os.fsencode(rest)) > MAX_UNIX_PATH:
            raise ConfigError(f"{text}: a socket's path may have {MAX_UNIX_PATH} bytes; choose a shorter one")
        return Address(path=Path(rest))
    if kind == "tcp":
        host, port = parse_host_port(rest)
        if not is_loopback(host):
            raise ConfigError(f"{text}: the protocol has no password, so it listens on loopback only")
        return Address(host=host, port=port)
    raise ConfigError(f"{text!r} is no address; give unix:PATH or tcp:127.0.0.1:PORT")


def parse_host_port(text: str) -> tuple[str, int]:
    """Read `HOST:PORT` or `[HOST]:PORT`; raises ConfigError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is no HOST:PORT; give for example 127.0.0.1:8088")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def claim_unix_path(path: Path) -> None:
    """Remove a socket that no process listens on; raises IoError if one does, or if it is another file."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise IoError(f"{path} exists and is no socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
        except OSError as wrong:
            raise IoError(f"{path}: {wrong.strerror or wrong}; choose another path") from wrong
        else:
            raise IoError(f"another proxy listens on {path}; stop it or choose another path")
