"""`step_NNNNNN.bin` in pure NumPy: the single contract for weights and moments.

Little-endian `[int32 step][int32 n_params][n_params x float32 weights][... m][... v]`: 8 + 12 n_params bytes
and nothing else. Order of the parameters: docs/CHECKPOINT.md. The checks and messages are those of the engine
(cpp/engine/run/checkpoint_file.cpp).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypedDict

import numpy as np
import numpy.typing as npt

from andrea.data.files import temporary_beside
from andrea.errors import CheckpointError, IoError

Floats = npt.NDArray[np.float32]

_HEADER_BYTES = 8
_SECTIONS = ("weights", "m", "v")
_LARGEST = 2**31 - 1
_SPARE_BYTES = 1 << 16  # room the file system itself may need for a new file


class Checkpoint(TypedDict):
    """What a .bin holds: `step` finished steps, and three arrays float32 `[n_params]`."""

    step: int
    n_params: int
    weights: Floats
    m: Floats
    v: Floats


def _file_bytes(n_params: int) -> int:
    return _HEADER_BYTES + 12 * n_params


def _first_non_finite(name: str, values: Floats) -> str | None:
    finite = np.isfinite(values)
    if finite.all():
        return None
    at = int(np.argmin(finite))
    value = values[at]
    shown = "NaN" if np.isnan(value) else "+infinity" if value > 0 else "-infinity"
    return f"element {at} of {name} is {shown}"


def _io_error(what: str, path: str, error: OSError) -> IoError:
    return IoError(
        f"cannot {what} {path}: {error.strerror}; check the path, the permissions and the free space"
    )


@contextmanager
def _opened(name: str, expected_n_params: int | None) -> Iterator[tuple[IO[bytes], int, int]]:
    """Open a .bin behind its header, whose step and n_params are given, once its length is right."""
    try:
        # O_NONBLOCK: a named pipe in the place of the file must not hang.
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise IoError(f"no such checkpoint: {name}; check the path") from None
    except OSError as error:
        raise _io_error("open", name, error) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointError(f"{name} is no checkpoint: it is not a regular file")
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _HEADER_BYTES:
            raise CheckpointError(f"{name} is no checkpoint: it has {size} bytes, the header alone needs 8")
        step, n_params = (int(word) for word in np.frombuffer(file.read(_HEADER_BYTES), dtype="<i4"))
        if step < 0 or n_params < 1:
            raise CheckpointError(
                f"{name} is no checkpoint: its header says step {step} and {n_params} parameters"
            )
        if size != _file_bytes(n_params):
            raise CheckpointError(
                f"{name} has {size} bytes, but its header says {n_params} parameters, which makes "
                f"{_file_bytes(n_params)}; the file is cut short or damaged: use an older checkpoint"
            )
        if expected_n_params is not None and n_params != expected_n_params:
            raise CheckpointError(
                f"{name} holds {n_params} parameters, but the model has {expected_n_params}; "
                "use the experiment file this checkpoint was trained with"
            )
        yield file, step, n_params


def check_header(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return step and n_params of a .bin whose length is what its header promises.

    Raises CheckpointError for a file that is none, IoError if it cannot be read.
    """
    with _opened(os.fspath(path), None) as (_, step, n_params):
        return step, n_params


def _read_section(file: IO[bytes], name: str, section: str, n_params: int) -> Floats:
    values = np.fromfile(file, dtype="<f4", count=n_params)
    if values.size != n_params:
        raise CheckpointError(f"{name} became shorter while it was read; use an older checkpoint")
    if fault := _first_non_finite(section, values):
        raise CheckpointError(f"{name}: {fault}; use an older checkpoint")
    return values.astype(np.float32, copy=False)


def read_checkpoint(path: str | os.PathLike[str], expected_n_params: int | None = None) -> Checkpoint:
    """Read a .bin and check it: length, `n_params` (if expected), finite values.

    Raises CheckpointError for a file that cannot be used, IoError if it cannot be read.
    """
    name = os.fspath(path)
    with _opened(name, expected_n_params) as (file, step, n_params):
        weights, m, v = (_read_section(file, name, section, n_params) for section in _SECTIONS)
    return Checkpoint(step=step, n_params=n_params, weights=weights, m=m, v=v)


def read_weights(path: str | os.PathLike[str], expected_n_params: int | None = None) -> tuple[int, Floats]:
    """Return step and weights float32 `[n_params]` of a .bin, checked alike; the moments are not read."""
    name = os.fspath(path)
    with _opened(name, expected_n_params) as (file, step, n_params):
        return step, _read_section(file, name, "weights", n_params)


def _as_section(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise CheckpointError(f"{name} must have one dimension, has {array.ndim}; pass the flat parameters")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype="<f4")


def write_checkpoint(
    path: str | os.PathLike[str],
    step: int,
    weights: npt.ArrayLike,
    m: npt.ArrayLike | None = None,
    v: npt.ArrayLike | None = None,
    *,
    n_params: int | None = None,
) -> None:
    """Write a .bin atomically: temporary file, fsync, rename, fsync of the directory.

    `weights`, `m` and `v` are flat `[n_params]`; moments left out are zeros. `n_params`, if given, must be
    their size, so that `write_checkpoint(path, **read_checkpoint(other))` copies. Nothing is written, and an
    older file stays, if a value is not finite, the sizes differ (CheckpointError) or the disk refuses
    (IoError).
    """
    name = os.fspath(path)
    flat = _as_section("weights", weights)
    arrays = (
        flat,
        np.zeros_like(flat) if m is None else _as_section("m", m),
        np.zeros_like(flat) if v is None else _as_section("v", v),
    )
    if n_params is not None and n_params != flat.size:
        raise CheckpointError(f"not written: {name}: n_params is {n_params}, weights has {flat.size} values")
    n_params = flat.size
    if not 0 <= step <= _LARGEST or not 1 <= n_params <= _LARGEST:
        raise CheckpointError(
            f"cannot write {name}: step {step} and {n_params} parameters; the format holds steps from 0 and "
            f"1 to {_LARGEST} parameters"
        )
    for section, values in zip(_SECTIONS, arrays, strict=True):
        if values.size != n_params:
            raise CheckpointError(
                f"not written: {name}: {section} has {values.size} values, weights {n_params}; "
                "all three must agree"
            )
        if fault := _first_non_finite(section, values):
            raise CheckpointError(f"not written: {name}: {fault}; nothing could resume from it")

    if Path(name).exists() and not Path(name).is_file() and not Path(name).is_dir():
        raise IoError(
            f"{name} is a device, a pipe or a socket, which a new file would replace; choose another path"
        )
    directory = Path(name).parent
    temporary = temporary_beside(Path(name))
    try:
        space = os.statvfs(directory)
        free = space.f_bavail * space.f_frsize
        if free < _file_bytes(n_params) + _SPARE_BYTES:
            raise IoError(
                f"cannot write {name}: it needs {_file_bytes(n_params)} bytes and {directory} has {free} "
                "free; free space there, or keep fewer checkpoints (checkpoint.keep_last)"
            )
        temporary.unlink(missing_ok=True)
        try:
            with open(temporary, "xb") as file:
                file.write(np.array([step, n_params], dtype="<i4").tobytes())
                for values in arrays:
                    file.write(values.data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _io_error("write", name, error) from error
