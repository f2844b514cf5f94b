"""What identifies an image: the hash of its bytes.

Hashes of files are kept in an index with the size, times and inode of each file, so that an unchanged file is not read
again. The index is a cache: it can be deleted at any time, and a damaged one is ignored. It tells which features can be
reused; an image that is decoded is always decoded from bytes that were hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.data.dataset import PIXEL_FOLDER, FolderImages, ImageDataset, ImageSplit, OutOfReachError
from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from PIL import Image

    from fsbench.reporter import Reporter

INDEX = "images.index"
_SETTLED = 2_000_000_000  # nanoseconds: a file that changed just now may change again without a new time


@dataclass(frozen=True, eq=False)
class HashedSplit(ImageSplit):
    """A split whose images are told apart by content wherever marks are compared; `hashes` are in its order."""

    hashes: tuple[str, ...] = ()

    @classmethod
    def of(cls, split: ImageSplit, hashes: Iterable[str]) -> HashedSplit:
        """A split with the hashes of its images."""
        return cls(**{**vars(split), "hashes": tuple(hashes)})

    def open(self, index: int) -> Image.Image:
        """The image of that row in RGB, from the very bytes that have its hash."""
        name = self.images[index]
        content = self.reader.content(name)
        if _hash(content) != self.hashes[index]:
            hint = f"Run the command again; if it says so again, delete .{INDEX} and {PIXEL_FOLDER}/{INDEX} first."
            raise OutOfReachError(f"The image {name} of {self.dataset} has changed since it was listed.", hint)
        return self.reader.open(name, content)

    def image_mark(self, index: int) -> int:
        """The first 60 bits of the hash, or of that of a text in its place."""
        return int(_hash(self.hashes[index].encode())[:15], 16)


def hashed(dataset: ImageDataset, index: Path | None, reporter: Reporter, ranks: Ranks = ALONE) -> ImageDataset:
    """The same data set with splits that know the hashes of their images; process 0 reads them."""
    hashes = iter(ranks.agree(lambda: image_hashes(dataset.splits.values(), index, reporter)))
    splits = {name: HashedSplit.of(split, islice(hashes, len(split))) for name, split in dataset.splits.items()}
    return replace(dataset, splits=splits)


def image_hashes(splits: Iterable[ImageSplit], index: Path | None, reporter: Reporter) -> list[str]:
    """The BLAKE2b (16 bytes, in hexadecimal) of every image, split after split.

    A file that cannot be read has a text with its name in place of a hash: whoever opens it reports the reason.
    """
    splits, files, hashes = list(splits), _Index(index), list[str]()
    with reporter.bar("checking images", sum(map(len, splits))) as advance:
        for split in splits:
            reader = split.reader
            root = os.path.abspath(reader.root) if isinstance(reader, FolderImages) else None  # noqa: PTH100 - fast
            for start in range(0, len(split), 1024):
                block = split.images[start : start + 1024]
                hashes += [files.hash_of(root, name) if root else _hash(reader.content(name)) for name in block]
                advance(len(block))
    files.save()
    return hashes


class _Index:
    """Hashes of files by path, with the size, times and inode that each file had."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.changed = path, False
        self.entries: dict[str, list[int | str]] = {}
        with contextlib.suppress(OSError):
            checksum, _, content = path.read_bytes().partition(b"\n") if path else (b"", b"", b"")
            if checksum == _hash(content).encode():
                self.entries = json.loads(content)

    def hash_of(self, root: str, name: str) -> str:
        """The hash of a file, from the index if it has not changed."""
        place, now = f"{root}/{name}", time.time_ns()
        try:
            stat = os.stat(place)  # noqa: PTH116 - a Path takes as long as the hash
            stamp: list[int | str] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
            entry = self.entries.get(place)
            if entry is not None and entry[:4] == stamp:
                return str(entry[4])
            with open(place, "rb", buffering=0) as stream:  # noqa: PTH123
                value = _hash(stream.read())
        except OSError:
            return f"unreadable {name}"
        if max(stat.st_mtime_ns, stat.st_ctime_ns) < now - _SETTLED:
            self.entries[place], self.changed = [*stamp, value], True
        return value

    def save(self) -> None:
        """Write the index if it has changed."""
        if self.path is not None and self.changed:
            content = json.dumps(self.entries, separators=(",", ":")).encode()
            with contextlib.suppress(FsbenchError), whole_file(self.path) as temporary:  # merely slower without it
                temporary.write_bytes(_hash(content).encode() + b"\n" + content)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
