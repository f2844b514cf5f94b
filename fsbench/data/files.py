"""Finding the files that a csv names, without ever leaving the data set's folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fsbench.data.images import is_picture
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PREFIXES = ("", "images/", "data/")


@dataclass(frozen=True, eq=False)
class FileIndex:
    """All pictures below a folder, by name.

    Attributes:
        root: The folder.
        paths: The pictures, as paths relative to the folder.
        by_name: The same, by their last part.
        outside: Links that lead out of the folder. They are not followed.
    """

    root: Path
    paths: frozenset[str]
    by_name: Mapping[str, tuple[str, ...]]
    outside: frozenset[str]

    def find(self, name: str, label: str) -> str | None:
        """The path of a picture that a csv names, relative to the root.

        The name may be a path from the root, from ``images/`` or ``data/``, or the end of a path.

        Args:
            name: The file's name in the csv.
            label: Its class, which decides between files of the same name in several folders.

        Raises:
            FsbenchError: The name leads out of the folder, or fits several files.
        """
        wanted = self._inside(name)
        for prefix in _PREFIXES:
            if prefix + wanted in self.paths:
                return prefix + wanted
        same_name = self.by_name.get(wanted.rpartition("/")[2], ())
        ending = [path for path in same_name if path.endswith("/" + wanted)]
        in_class_folder = [path for path in ending if path.endswith(f"/{label}/{path.rpartition('/')[2]}")]
        fitting = in_class_folder or ending
        if len(fitting) > 1:
            raise FsbenchError(
                f"The name {name!r} fits {len(fitting)} files in {self.root}: {fitting[0]} and {fitting[1]}.",
                "Give the folder in the csv too, or remove the copy that is not meant.",
            )
        return fitting[0] if fitting else None

    def _inside(self, name: str) -> str:
        """The normalised name, if it stays in the folder."""
        unified = name.replace("\\", "/")
        parts = [part for part in unified.split("/") if part not in {"", "."}]
        if unified.startswith("/") or ".." in parts:
            raise FsbenchError(
                f"Expected file names inside {self.root}, found {name!r}.",
                "Write names relative to the data set's folder, without '..'.",
            )
        path = "/".join(parts)
        for tried in (PurePosixPath(prefix, path) for prefix in _PREFIXES if self.outside):
            if self.outside.intersection(str(part) for part in (tried, *tried.parents)):
                raise FsbenchError(
                    f"The file {name!r} is a link, or lies behind one, that leads out of {self.root}.",
                    "Put the pictures there, or link the whole folder instead of a part of it.",
                )
        return path


def index_files(root: Path) -> FileIndex:
    """List all pictures below a folder.

    A link to a file counts as long as the file is inside the folder. Links to folders are not followed:
    inside they would show every picture twice.
    """
    paths: list[str] = []
    outside: set[str] = set()
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in visible:
            path = prefix + entry.name
            if entry.is_symlink() and not _stays_inside(root, path):
                outside.add(path)
            elif entry.is_dir(follow_symlinks=False):
                pending.append(path + "/")
            elif is_picture(entry.name) and entry.is_file():
                paths.append(path)
    by_name: dict[str, list[str]] = {}
    for path in sorted(paths):
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    groups = {name: tuple(group) for name, group in by_name.items()}
    return FileIndex(root, frozenset(paths), groups, frozenset(outside))


def _stays_inside(root: Path, path: str) -> bool:
    return (root / path).resolve().is_relative_to(root.resolve())
