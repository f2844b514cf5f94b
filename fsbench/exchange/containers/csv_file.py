"""Text tables: one image per line, one of the columns its label."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.containers.columns import IMAGES, LABELS, SPLITS, fields_of
from fsbench.exchange.found import Opened, largest, names_array, reading

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CONTAINER = "a text table"
_DELIMITERS = ",;\t"


def recognise(path: Path, start: bytes) -> bool:
    """Text whose first line has several columns, and is no JSON nor a web page."""
    line = start.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    if b"\0" in start or start.lstrip()[:1] in {b"{", b"[", b"<"}:
        return False
    return any(sign.encode() in line for sign in _DELIMITERS)


def read(path: Path) -> Opened:
    """Columns by their names in the first line."""
    with reading(path, CONTAINER):
        header, rows = _lines(path)
        columns: dict[str, NDArray[Any]] = {}
        for number, name in enumerate(header):
            values = [row[number] for row in rows]
            columns[name] = _column(path, name, values)
        content, remarks = fields_of(path, columns)
    return Opened(path, CONTAINER, content, largest(path), remarks)


def _lines(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(_DELIMITERS, key=first.count)
        lines = csv.reader(file, delimiter=delimiter, strict=True)
        header = next(lines)
        rows = [row for row in lines if row]
    if len(set(header)) < len(header):
        raise FsbenchError(f"{path} has two columns of the same name.", "The first line must name every column.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise FsbenchError(f"{path}: row {number} has {len(row)} columns, the first line names {len(header)}.")
    if not rows:
        raise FsbenchError(f"{path} has a line with names of columns, and no rows.")
    return header, rows


def _column(path: Path, name: str, values: list[str]) -> NDArray[Any]:
    plain = name.strip().lower()
    if plain in LABELS:
        return _whole(path, values)
    if plain in {*SPLITS, *IMAGES}:
        return names_array(path, values)
    try:
        return np.array([_number(value) for value in values], dtype=np.float32)
    except ValueError:
        wrong = [row for row, value in enumerate(values) if not _is_number(value)]
        row, found = wrong[0] + 1, values[wrong[0]]
        if not any(values[row].strip() for row in wrong):
            raise FsbenchError(f"{path}: column {name!r} is empty in row {row}.") from None
        if 2 * len(wrong) <= len(values):
            raise FsbenchError(f"{path}: column {name!r} holds {found!r} in row {row}, which is no number.") from None
        return names_array(path, values)


def _number(text: str) -> float:
    """A number as tables write it: Python alone would take 1_0 for ten."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


def _whole(path: Path, values: list[str]) -> NDArray[Any]:
    """Labels that are whole numbers, as such, so that class 10 comes after class 9."""
    try:
        numbers = [int(value) for value in values]
        return np.array(numbers, dtype=np.int64) if [str(n) for n in numbers] == values else names_array(path, values)
    except (ValueError, OverflowError):
        return names_array(path, values)
