"""Reading parquet tables of unknown origin: a value that is repeated takes next to nothing in the file.

It is also run by `trial.py`, and imports nothing of fsbench.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


_MEMORY = 1 << 30  # for the library itself
_NUMBER = 8  # bytes


def read_table(path: str, largest: int) -> Any:
    """The table, texts as dictionaries.

    Args:
        path: The file.
        largest: Bytes that it may claim to hold.
    """
    from pyarrow import parquet

    described = parquet.read_metadata(path)
    claimed = _claimed_bytes(described)
    if claimed > largest:
        raise ValueError(f"it claims {claimed} bytes, more than a file of its size can hold")
    columns = [described.schema.column(i) for i in range(described.num_columns)]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read(use_threads=False).unify_dictionaries()
    table.validate(full=True)
    return table


def try_out(path: str, largest: int, limit_memory: Callable[[int], None]) -> None:
    """Read a table within a limit of memory: it may hold more than it claims."""
    limit_memory(_MEMORY + 4 * largest)
    read_table(path, largest)


def _claimed_bytes(described: Any) -> int:
    """What the table takes in memory, by its own account."""
    width = [max(_NUMBER, described.schema.column(i).length or 0) for i in range(described.num_columns)]
    claimed = _NUMBER * described.num_rows * described.num_columns
    for group in map(described.row_group, range(described.num_row_groups)):
        for i, column in enumerate(map(group.column, range(group.num_columns))):
            claimed += max(column.total_uncompressed_size, width[i] * column.num_values)
    return int(claimed)
