"""Rows of the csv files that list pictures, in all the dialects of the field.

A header may be there or not, and which column names the file differs. Both are decided by content, because
code bases that skip the first line of a csv without header lose a picture per split.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.catalog import plain
from fsbench.data.images import is_picture
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

_FILE_COLUMNS = (
    "filename",
    "imagename",
    "file",
    "image",
    "path",
    "filepath",
    "imagepath",
    "imagefile",
    "name",
)
_CLASS_COLUMNS = ("label", "classname", "class", "category", "wnid", "labelname", "target")


@dataclass(frozen=True)
class PictureRow:
    """One picture of a csv.

    Attributes:
        line: Where it stands, counted from 1.
        file: The file's name as written.
        label: The class as written, empty if the csv has one column only.
    """

    line: int
    file: str
    label: str


def read_picture_rows(path: Path) -> list[PictureRow]:
    """Read a csv that lists pictures and their classes.

    Raises:
        FsbenchError: It cannot be read, is empty, or has no column of picture names.
    """
    rows = read_csv(path)
    file_column, class_column = _columns(path, rows)
    if _is_header(rows[0][1]):
        rows = rows[1:]
    needed = max(file_column, class_column or 0) + 1
    found = []
    for line, cells in rows:
        if len(cells) < needed:
            raise FsbenchError(
                f"Expected {needed} columns, found {len(cells)} in line {line} of {path}.",
                "Is the file cut off? Copy it again, or repair the line.",
            )
        label = "" if class_column is None else cells[class_column]
        found.append(PictureRow(line, cells[file_column], label))
    return found


def read_csv(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a csv that are not blank, stripped, with their line numbers.

    Raises:
        FsbenchError: It is not a readable csv, or there is no row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FsbenchError(f"Could not read {path} as csv: {error}", "Copy the file again.") from error
    if not rows:
        raise FsbenchError(f"Expected rows, found an empty file: {path}.", "Copy the file again.")
    return rows


def _is_header(cells: list[str]) -> bool:
    """A first row that names no picture is a header."""
    return not any(_names_picture(cell) for cell in cells)


def _names_picture(cell: str) -> bool:
    return is_picture(cell.replace("\\", "/").split("/")[-1])


def _columns(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[int, int | None]:
    """The columns of the file name and of the class, None if there is a single column."""
    first = rows[0][1]
    header = [plain(cell) for cell in first] if _is_header(first) else []
    sample = rows[min(1, len(rows) - 1)][1] if header else first
    by_content = [column for column, cell in enumerate(sample) if _names_picture(cell)]
    by_header = [header.index(name) for name in _FILE_COLUMNS if name in header]
    file_columns = by_header or by_content
    if not file_columns or (header and len(rows) == 1):
        raise FsbenchError(
            f"Expected a column with names of pictures, found none in {path}; its first row is {', '.join(first)}.",
            "Write rows such as `picture.jpg,class`, with or without a header `filename,label`.",
        )
    file_column = file_columns[0]
    named = [header.index(name) for name in _CLASS_COLUMNS if name in header]
    others = [column for column in range(len(sample)) if column != file_column]
    return file_column, next(iter(named or others), None)
