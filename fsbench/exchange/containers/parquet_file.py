"""Parquet tables: one image per row, one of the columns its label. Needs pyarrow."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.containers.columns import fields_of
from fsbench.exchange.found import COPY_AGAIN, Opened, largest, names_array, reading
from fsbench.io.trial import refuse_dangerous

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

CONTAINER = "a parquet table"
_NUMBER_BYTES = 8


def recognise(path: Path, start: bytes) -> bool:
    """Parquet's mark."""
    return start.startswith(b"PAR1")


def read(path: Path) -> Opened:
    """Columns by name; a column of lists of equal length is one of vectors."""
    if importlib.util.find_spec("pyarrow") is None:
        raise FsbenchError(
            f"{path} is a parquet table, and pyarrow, which reads it, is not installed.",
            "Install it with: pip install 'fsbench[import]'. Or save the table as csv.",
        )
    refuse_dangerous(path, CONTAINER, __name__, largest(path), COPY_AGAIN)
    with reading(path, CONTAINER):
        table = _table(path, largest(path))
        columns = {name: _column(path, name, table.column(name).combine_chunks()) for name in table.column_names}
        content, remarks = fields_of(path, columns)
    return Opened(path, CONTAINER, content, largest(path), remarks)


def try_out(path: Path, most: int, allow_memory: Callable[[int], None]) -> None:
    """Read a table within a limit of memory: it may hold more than it claims."""
    allow_memory(most)
    _table(path, most)


def _table(path: Path, most: int) -> Any:
    """The table, texts as dictionaries: a value that is repeated takes next to nothing in the file.

    Args:
        path: The file.
        most: Bytes that it may claim to hold.
    """
    from pyarrow import parquet

    described = parquet.read_metadata(path)
    columns = [described.schema.column(i) for i in range(described.num_columns)]
    claimed = _NUMBER_BYTES * described.num_rows * described.num_columns
    for group in map(described.row_group, range(described.num_row_groups)):
        for i, column in enumerate(columns):
            part, width = group.column(i), max(_NUMBER_BYTES, column.length or 0)
            claimed += max(part.total_uncompressed_size, width * part.num_values)
    if claimed > most:
        raise ValueError(f"it claims {claimed} bytes, more than a file of its size can hold")
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read(use_threads=False).unify_dictionaries()
    table.validate(full=True)
    return table


def _column(path: Path, name: str, column: Any) -> NDArray[Any]:
    from pyarrow import types

    if column.null_count:
        raise FsbenchError(f"{path}: column {name!r} has {column.null_count} empty cells.")
    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        flat = column.flatten()
        lengths = set(column.value_lengths().to_pylist())
        if len(lengths) != 1 or flat.null_count:
            raise FsbenchError(f"{path}: the vectors of column {name!r} differ in length: {sorted(lengths)[:5]}.")
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)
    if types.is_dictionary(kind):
        known = column.dictionary
        if types.is_string(known.type) or types.is_large_string(known.type) or types.is_binary(known.type):
            names = [str(item) for item in known.to_pylist()]
            return names_array(path, [names[i] for i in column.indices.to_pylist()])
        column = column.dictionary_decode()
    if types.is_floating(column.type) or types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return names_array(path, [str(item) for item in column.to_pylist()])
