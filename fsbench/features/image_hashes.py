"""What identifies an image: the hash of its bytes.

Hashes of files are kept in an index with the size, times and inode of each file, so that an unchanged file is not read
again. The index is a cache: it can be deleted at any time, and a damaged one is ignored. It tells which features can be
reused.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from fsbench.data.dataset import FolderImages, ImageDataset, ImageSplit, content_hash
from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.ranks import ALONE, Ranks
from fsbench.reporter import Reporter

INDEX = "images.index"
UNREADABLE = "unreadable"  # begins what stands in place of the hash of a file that cannot be read
_SETTLED = 2_000_000_000  # nanoseconds: a file that changed just now may change again without a new time


def hashed(dataset: ImageDataset, index: Path | None, reporter: Reporter, ranks: Ranks = ALONE) -> ImageDataset:
    """The same data set with splits that know the hashes of their images; process 0 reads them."""
    hashes = iter(ranks.agree(lambda: image_hashes(dataset.splits.values(), index, reporter)))
    every = dataset.splits.items()
    splits = {name: replace(split, hashes=tuple(islice(hashes, len(split)))) for name, split in every}
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
                hashes += [files.hash_of(root, name) if root else content_hash(reader.content(name)) for name in block]
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
            if checksum == content_hash(content).encode():
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
                value = content_hash(stream.read())
        except OSError:
            return f"{UNREADABLE} {name}"
        if max(stat.st_mtime_ns, stat.st_ctime_ns) < now - _SETTLED:
            self.entries[place], self.changed = [*stamp, value], True
        return value

    def save(self) -> None:
        """Write the index if it has changed."""
        if self.path is not None and self.changed:
            content = json.dumps(self.entries, separators=(",", ":")).encode()
            with contextlib.suppress(FsbenchError), whole_file(self.path) as temporary:  # merely slower without it
                temporary.write_bytes(content_hash(content).encode() + b"\n" + content)
