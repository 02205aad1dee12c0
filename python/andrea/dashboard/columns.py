"""Columns of numbers that grow: NumPy arrays with room to spare."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Columns:
    """Named columns of equal length, appended to in blocks; an append costs amortised constant time."""

    def __init__(self, **types: npt.DTypeLike) -> None:
        """Start empty, one column a keyword."""
        self._room = 1024
        self._data: dict[str, npt.NDArray[Any]] = {
            name: np.empty(self._room, dtype=kind) for name, kind in types.items()
        }
        self.length = 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return the column as a view that later appends leave as it is."""
        return self._data[name][: self.length]

    def append(self, **blocks: npt.ArrayLike) -> None:
        """Append a block of equal length to every column."""
        arrays = {name: np.asarray(block, dtype=self._data[name].dtype) for name, block in blocks.items()}
        count = len(next(iter(arrays.values())))
        end = self.length + count
        if end > self._room:
            self._room = max(end, 2 * self._room)
            for name, old in self._data.items():
                self._data[name] = np.empty(self._room, dtype=old.dtype)
                self._data[name][: self.length] = old[: self.length]
        for name, array in arrays.items():
            self._data[name][self.length : end] = array
        self.length = end

    def clear(self) -> None:
        """Forget everything; views handed out stay as they are."""
        self._data = {name: np.empty(1024, dtype=old.dtype) for name, old in self._data.items()}
        self._room, self.length = 1024, 0
