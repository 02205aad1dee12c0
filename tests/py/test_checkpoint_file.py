"""`.bin` in pure NumPy: the bytes of the contract, every refusal, and nothing lost when a write fails."""

import os
import resource
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from andrea.checkpoint import read_checkpoint, write_checkpoint
from andrea.errors import CheckpointError, IoError

WEIGHTS = np.array([1.5, -0.0, 3e-39], dtype=np.float32)
M = np.array([0.25, 1e30, -2.0], dtype=np.float32)
V = np.array([0.0, 7.0, 1e-45], dtype=np.float32)

finite = hnp.arrays(
    np.float32, st.integers(1, 40), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
)


def test_bytes_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "step_000007.bin"
    write_checkpoint(path, 7, WEIGHTS, M, V)
    assert path.read_bytes() == struct.pack("<ii9f", 7, 3, *WEIGHTS, *M, *V)
    assert os.listdir(tmp_path) == ["step_000007.bin"]


@given(weights=finite, step=st.integers(0, 2**31 - 1))
def test_round_trip_keeps_every_bit(
    tmp_path_factory: pytest.TempPathFactory, weights: np.ndarray, step: int
) -> None:
    path = tmp_path_factory.mktemp("bin") / "x.bin"
    write_checkpoint(path, step, weights, weights[::-1], -weights)
    read = read_checkpoint(path, weights.size)
    assert (read["step"], read["n_params"]) == (step, weights.size)
    assert read["weights"].tobytes() == weights.tobytes()
    assert read["m"].tobytes() == weights[::-1].tobytes()
    assert read["v"].tobytes() == (-weights).tobytes()
    copy = path.with_name("copy.bin")
    write_checkpoint(copy, **read)
    assert copy.read_bytes() == path.read_bytes()


def test_moments_left_out_are_zero(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "x.bin", 0, [1.0, 2.0])
    read = read_checkpoint(tmp_path / "x.bin")
    assert read["m"].tolist() == read["v"].tolist() == [0.0, 0.0]


def test_every_wrong_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_checkpoint(path, 7, WEIGHTS, M, V)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"x\.bin"):
            read_checkpoint(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(CheckpointError, match=r"45 bytes.*3 parameters, which makes 44"):
        read_checkpoint(path)


def test_wrong_number_of_parameters_says_both(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "x.bin", 7, WEIGHTS)
    with pytest.raises(CheckpointError, match="holds 3 parameters, but the model has 985472"):
        read_checkpoint(tmp_path / "x.bin", 985472)


@pytest.mark.parametrize("header", [(-1, 3), (0, 0), (0, -1), (0, -(2**31))])
def test_impossible_headers_are_refused(tmp_path: Path, header: tuple[int, int]) -> None:
    (tmp_path / "x.bin").write_bytes(struct.pack("<ii9f", *header, *range(9)))
    with pytest.raises(CheckpointError, match="its header says"):
        read_checkpoint(tmp_path / "x.bin")


@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "NaN"), (np.inf, r"\+infinity"), (-np.inf, "-infinity")]
)
def test_values_that_are_not_finite_are_refused_both_ways(tmp_path: Path, value: float, said: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(struct.pack("<ii9f", 7, 3, *WEIGHTS, 0, value, 0, *V))
    with pytest.raises(CheckpointError, match=f"element 1 of m is {said}"):
        read_checkpoint(path)
    write_checkpoint(path, 7, WEIGHTS)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"element 2 of v is {said}; nothing could resume"):
        write_checkpoint(path, 8, WEIGHTS, M, [0, 1, value])
    assert path.read_bytes() == before


def test_impossible_contents_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    for step, weights, m in [(-1, WEIGHTS, M), (2**31, WEIGHTS, M), (0, [], []), (0, WEIGHTS, M[:2])]:
        with pytest.raises(CheckpointError):
            write_checkpoint(path, step, weights, m)
    with pytest.raises(CheckpointError, match="one dimension"):
        write_checkpoint(path, 0, np.zeros((2, 2)))
    with pytest.raises(CheckpointError, match="n_params is 4"):
        write_checkpoint(path, 0, WEIGHTS, n_params=4)
    with pytest.raises(CheckpointError, match="infinity"):
        write_checkpoint(path, 0, [1e300])
    assert os.listdir(tmp_path) == []


def test_files_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="no such checkpoint"):
        read_checkpoint(tmp_path / "none.bin")
    with pytest.raises((CheckpointError, IoError)):
        read_checkpoint(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_checkpoint(tmp_path / "pipe")
    with pytest.raises(IoError, match="missing"):
        write_checkpoint(tmp_path / "missing" / "x.bin", 0, WEIGHTS)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_checkpoint(path, 3, WEIGHTS, M, V)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
        with pytest.raises(IoError, match="cannot write"):
            write_checkpoint(path, 4, WEIGHTS, M, V)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.bin"]
