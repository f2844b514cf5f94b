"""From a file of unknown kind to the rows in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fsbench.errors import FsbenchError, missing_file
from fsbench.exchange.containers import (
    csv_file,
    hdf5_file,
    numpy_file,
    parquet_file,
    pickled,
    safetensors_file,
    torch_file,
)
from fsbench.exchange.foreign import foreign_content, foreign_file, refuse_checkpoint
from fsbench.exchange.found import Found, Opened, naming, reading
from fsbench.exchange.layouts import by_class, rows, simpleshot, stacked
from fsbench.exchange.unfolded import check_unfolded

if TYPE_CHECKING:
    from pathlib import Path


class Container(Protocol):
    """A module that opens one kind of file."""

    def recognise(self, path: Path, start: bytes) -> bool:
        """Whether a file with these first bytes is of the kind."""
        ...

    def read(self, path: Path) -> Opened:
        """Its content."""
        ...


class Layout(Protocol):
    """A module that knows one way of laying out features."""

    def recognise(self, content: object) -> bool:
        """Whether the content is laid out that way."""
        ...

    def read(self, opened: Opened, dataset: str, split: str) -> Found:
        """Its rows; `split` is the user's word on which split they are of, if there is one."""
        ...


CONTAINERS: tuple[Container, ...] = (
    hdf5_file, torch_file, numpy_file, parquet_file, pickled, safetensors_file, csv_file,
)  # fmt: skip
LAYOUTS: tuple[Layout, ...] = (rows, simpleshot, by_class, stacked)
START = 4096


def open_file(path: Path) -> Opened:
    """The content of a file, by the container that recognises it."""
    try:
        with path.open("rb") as file:
            start = file.read(START)
    except IsADirectoryError:
        raise FsbenchError(f"{path} is a folder.", "Name the files in it.") from None
    except FileNotFoundError:
        raise missing_file(path, "Check the path.") from None
    except OSError as error:
        raise FsbenchError(f"{path} cannot be read: {error.strerror or error}.") from error
    for container in CONTAINERS:
        if container.recognise(path, start):
            with naming(path):
                return container.read(path)
    raise foreign_file(path, start)


def read_file(path: Path, dataset: str, split: str = "") -> tuple[str, Found]:
    """What a file is, in words, and the rows in it.

    Args:
        path: The file.
        dataset: Name of the data set, which tells how stacked classes divide.
        split: The user's word on which split the file holds, if there is one.
    """
    opened = open_file(path)
    with naming(path), reading(path, opened.container):
        check_unfolded(opened)
        refuse_checkpoint(opened)
        for layout in LAYOUTS:
            if layout.recognise(opened.content):
                found = layout.read(opened, dataset, split)
                kind = opened.container.partition(" ")[2]
                return f"{kind}: {found.layout}", Found(found.layout, found.parts, opened.remarks + found.remarks)
        raise foreign_content(opened)
