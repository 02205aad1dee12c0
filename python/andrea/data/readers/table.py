"""Parquet: rows of the same types as JSON lines, one row group's batch in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from andrea.data.readers.jsonl import Span, reason_of
from andrea.data.tally import Tally
from andrea.errors import DataError

T = TypeVar("T")
BATCH_ROWS = 256


def open_table(path: Path) -> Any:
    """Return a pyarrow ParquetFile; DataError if pyarrow is missing or the file is no Parquet."""
    try:
        pyarrow = import_module("pyarrow")
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs the package pyarrow: pip install pyarrow") from error
    try:
        return parquet.ParquetFile(path, memory_map=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file: {error}; fetch it again") from error


def row_groups(path: Path) -> int:
    """Return the number of row groups, the units of parallel reading."""
    return int(open_table(path).metadata.num_row_groups)


def table_rows(path: Path, tally: Tally, row_type: type[T], span: Span = None) -> Iterator[tuple[int, T]]:
    """Yield (row number from 1, row) of row groups [begin, end); other columns stay unread."""
    table = open_table(path)
    wanted = {field.encode_name for field in msgspec.structs.fields(row_type)}  # type: ignore[arg-type]
    columns = [name for name in table.schema_arrow.names if name in wanted]
    if not columns:
        raise DataError(
            f"{path}: none of the columns {sorted(wanted)} is there; it has {table.schema_arrow.names}"
        )
    begin, end, _ = span or (0, table.metadata.num_row_groups, 0)
    number = sum(table.metadata.row_group(g).num_rows for g in range(begin))
    for batch in table.iter_batches(BATCH_ROWS, row_groups=list(range(begin, end)), columns=columns):
        tally.read_bytes += batch.nbytes
        for values in batch.to_pylist():
            number += 1
            try:
                yield number, msgspec.convert(values, row_type)
            except msgspec.ValidationError as error:
                tally.drop(reason_of(error), f"{path}: row {number}: {error}")
