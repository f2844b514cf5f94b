"""Finding the known data sets under a data root by the names of their folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.catalog import dataset_info, names_for_folder
from fsbench.data.check import nearest_variant
from fsbench.data.folders import visible_folders
from fsbench.data.layouts import scan_folder
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.listing import Listing


@dataclass(frozen=True, eq=False)
class FoundDataset:
    """A folder that bears the name of a known data set.

    Attributes:
        info: The data set. If the folder follows another split of the same pictures, it is that one.
        path: The folder.
        listing: What the folder holds, None if it could not be read.
        problem: Why it could not be read.
        named: The data set that the folder's name stands for.
    """

    info: DatasetInfo
    path: Path
    listing: Listing | None
    problem: FsbenchError | None
    named: DatasetInfo


def find_datasets(root: Path) -> list[FoundDataset]:
    """The known data sets under a data root, complete or not, in the order of their folders' names.

    A folder with raw CIFAR-100 pictures counts for FC100 and for CIFAR-FS. If the root itself bears the name
    of a data set and none is below it, the root is taken.

    Args:
        root: Usually ``data/``; it need not exist.
    """
    if not root.is_dir():
        return []
    found = [item for folder in visible_folders(root) for item in _examine(folder)]
    return found or [item for item in _examine(root) if item.listing is not None]


def other_folders(root: Path) -> list[str]:
    """The folders under a data root whose names stand for no known data set."""
    return [folder.name for folder in visible_folders(root) if not names_for_folder(folder.name)]


def _examine(folder: Path) -> list[FoundDataset]:
    found = []
    for name in names_for_folder(folder.name):
        named = dataset_info(name)
        try:
            listing = scan_folder(folder, named)
        except FsbenchError as error:
            found.append(FoundDataset(named, folder, None, error, named))
            continue
        found.append(FoundDataset(nearest_variant(listing, named), folder, listing, None, named))
    return found
