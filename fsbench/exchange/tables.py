"""Tables, one image per row: text (csv) and parquet, which needs pyarrow.

One column is the label; others may be the split and the name of the image; all others are the features.
"""

from __future__ import annotations

import csv
import importlib.util
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.content import Container, Opened, largest, names_array
from fsbench.io.trial import refuse_dangerous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_PARQUET = "a parquet table"
_DELIMITERS = ",;\t"
_NUMBER_BYTES = 8
_LABELS = ("class_name", "class", "label", "labels", "target", "category", "y")  # the first that is there counts
_SPLITS = ("split", "subset", "partition")  # here, too
_IMAGES = ("image", "images", "image_name", "filename", "file", "path")
_ROW_NUMBERS = ("", "unnamed: 0", "__index_level_0__", "index", "id")


def _is_text(path: Path, start: bytes) -> bool:
    """Text whose first line has several columns, and is neither JSON nor a web page."""
    line = start.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    if b"\0" in start or start.lstrip()[:1] in {b"{", b"[", b"<"}:
        return False
    return any(sign.encode() in line for sign in _DELIMITERS)


def _read_text(path: Path) -> Opened:
    """Columns by their names in the first line."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        delimiter = max(_DELIMITERS, key=file.readline().count)
        file.seek(0)
        header, *rows = filter(None, csv.reader(file, delimiter=delimiter, strict=True))
    _by_plain_name(path, header)
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise FsbenchError(f"{path}: row {number} has {len(row)} columns, the first line names {len(header)}.")
    if not rows:
        raise FsbenchError(f"{path} has a line with names of columns, and no rows.")
    columns = {name: _text_column(path, name, [row[i] for row in rows]) for i, name in enumerate(header)}
    return _table(path, columns)


def _text_column(path: Path, name: str, values: list[str]) -> NDArray[Any]:
    plain = name.strip().lower()
    if plain in _LABELS:
        return _whole(path, values)
    if plain in {*_SPLITS, *_IMAGES}:
        return names_array(path, values)
    numbers = [_number(value) for value in values]
    wrong = [row for row, number in enumerate(numbers) if number is None]
    if not wrong:
        return np.array(numbers, dtype=np.float32)
    row, found = wrong[0] + 1, values[wrong[0]]
    if not any(values[row].strip() for row in wrong):
        raise FsbenchError(f"{path}: column {name!r} is empty in row {row}.")
    if 2 * len(wrong) <= len(values):
        raise FsbenchError(f"{path}: column {name!r} holds {found!r} in row {row}, which is not a number.")
    return names_array(path, values)


def _number(text: str) -> float | None:
    """A number as tables write it, or None: Python alone would take 1_0 for ten."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _whole(path: Path, values: list[str]) -> NDArray[Any]:
    """Labels that are whole numbers, as such, so that class 10 comes after class 9."""
    try:
        numbers = np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError):
        return names_array(path, values)
    return numbers if list(map(str, numbers.tolist())) == values else names_array(path, values)


def _read_parquet(path: Path) -> Opened:
    """Columns by name; a column of lists of equal length is one of vectors."""
    if importlib.util.find_spec("pyarrow") is None:
        raise FsbenchError(
            f"{path} is a parquet table, and pyarrow, which reads it, is not installed.",
            "Install it with: pip install 'fsbench[import]'. Or save the table as csv.",
        )
    refuse_dangerous(path, _PARQUET, __name__, largest(path))
    table = _parquet_table(path, largest(path))
    columns = {name: _parquet_column(path, name, table.column(name).combine_chunks()) for name in table.column_names}
    return _table(path, columns)


def try_out(path: Path, most: int, allow_memory: Callable[[int], None]) -> None:
    """Read a parquet table within a limit of memory: it may hold more than it claims."""
    allow_memory(most)
    _parquet_table(path, most)


def _parquet_table(path: Path, most: int) -> Any:
    """The table, if it claims no more than `most` bytes; texts as dictionaries, as repeated ones take no space."""
    from pyarrow import parquet  # noqa: PLC0415 - an optional package

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


def _parquet_column(path: Path, name: str, column: Any) -> NDArray[Any]:
    from pyarrow import types  # noqa: PLC0415 - an optional package

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


def _table(path: Path, columns: Mapping[str, NDArray[Any]]) -> Opened:
    """Columns, (M,) each or (M, D) for vectors, as features, labels and so on: names that the layout of rows knows."""
    by_name = _by_plain_name(path, columns)
    if not any(name in by_name for name in _LABELS):
        raise FsbenchError(
            f"{path} has no column with the labels; its columns are {', '.join(list(columns)[:6])}, …",
            f"Name it one of: {', '.join(_LABELS)}.",
        )
    fields: dict[str, NDArray[Any]] = {}
    left_out = [by_name[name] for name in _ROW_NUMBERS if name in by_name]
    for role, known in (("labels", _LABELS), ("split", _SPLITS), ("images", _IMAGES)):
        present = [by_name[name] for name in known if name in by_name]
        if present:
            fields[role] = columns[present[0]]
            left_out += present[1:]
    others = {*_LABELS, *_SPLITS, *_IMAGES, *_ROW_NUMBERS}
    numbers = {name: columns[name] for plain, name in by_name.items() if plain not in others}
    _refuse_strays(path, numbers)
    _refuse_leaks(path, numbers, fields["labels"])
    fields["features"] = np.column_stack([column.astype(np.float32, copy=False) for column in numbers.values()])
    remarks = (f"columns left out, as they are not features: {_listed(left_out)}",) if left_out else ()
    return Opened(path, fields, largest(path), remarks)


def _by_plain_name(path: Path, columns: Iterable[str]) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for name in columns:
        plain = name.strip().lower()
        if plain in by_name:
            raise FsbenchError(
                f"{path} has two columns of the same name: {_listed([by_name[plain], name])}.",
                "Capitals and spaces do not count. Rename one of them, or remove it.",
            )
        by_name[plain] = name
    return by_name


def _refuse_strays(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Refuse text, and numbers beside the features, such as the number of the class or the size of the image."""
    for name, column in columns.items():
        if column.dtype.kind not in "fiu":
            raise FsbenchError(
                f"{path}: column {name!r} is neither numbers nor a label, a split or an image name.",
                "Remove the column, or rename it.",
            )
    if not columns:
        raise FsbenchError(f"{path} has labels but no column of numbers.")
    vectors = [name for name, column in columns.items() if column.ndim > 1]
    if len(vectors) > 1:
        raise FsbenchError(f"{path} has several columns of vectors: {_listed(vectors)}.", "Keep the features.")
    sizes = Counter(map(_series, columns))
    features = dict.fromkeys(vectors or [name for name in columns if sizes[_series(name)] > 1])
    strays = [name for name in columns if name not in features]
    if features and strays:
        raise FsbenchError(
            f"{path}: {_listed(strays)} holds numbers, but is not named like the features {_listed(features)}.",
            "Remove the column if it is not a feature, else name it like the others, with a number behind.",
        )


def _refuse_leaks(path: Path, columns: Mapping[str, NDArray[Any]], labels: NDArray[Any]) -> None:
    """Refuse columns that say the label in other words. A feature may be constant, but not all of a series."""
    _, first, classes = np.unique(labels, return_index=True, return_inverse=True)
    if len(first) in {1, len(labels)}:
        return
    varied: set[str] = set()
    leaks: dict[str, str] = {}
    for name, column in columns.items():
        series = _series(name)
        if series in varied or np.array_equal(column, column[:1].repeat(len(column), axis=0)):
            continue
        if np.array_equal(column, column[first[classes]]):
            leaks.setdefault(series, name)
        else:
            varied.add(series)
    told = [name for series, name in leaks.items() if series not in varied]
    if told:
        raise FsbenchError(
            f"{path}: column {_listed(told)} is the same for all images of a class: it gives the label away.",
            "Remove it if it is not a feature.",
        )


def _series(name: str) -> str:
    """What names of features such as f0, f1, … have in common; other names stand for themselves."""
    numbered = re.fullmatch(r"(.*?)\d+", name.strip().lower())
    return f"{numbered[1]}#" if numbered else name


def _listed(names: Iterable[str]) -> str:
    listed = [repr(name) for name in names]
    return ", ".join(listed) if len(listed) <= 4 else f"{', '.join(listed[:2])}, …, {listed[-1]}"


TEXT = Container("a text table", _is_text, _read_text)
PARQUET = Container(_PARQUET, lambda path, start: start.startswith(b"PAR1"), _read_parquet)
