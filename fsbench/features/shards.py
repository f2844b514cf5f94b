"""Finished pieces of an extraction, kept until the feature file is whole.

A shard holds the features of a fixed range of images. It appears whole or not at all, so a run that was killed goes
on with the shards that are missing. Shards belong to one plan; those of another plan are never mixed in.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.reporter import Reporter

IMAGES_PER_SHARD = 1024
PATIENCE = 60.0  # seconds in which a network file system shows what another machine has written


@dataclass(frozen=True)
class Shards:
    """The shards of one plan: their folder, the number of images in all, and of features."""

    folder: Path
    images: int
    dimension: int

    @classmethod
    def open(cls, out: Path, plan: Mapping[str, Any], images: int, dimension: int) -> Shards:
        """The shards of a plan beside the file to come; those of another plan are removed."""
        folder = out.with_name(f".{out.name}.{fingerprint(plan)[:12]}.parts")
        for other in out.parent.glob(f".{out.name}.*.parts"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        write_text(folder / "plan.json", json.dumps(plan, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        return cls(folder, images, dimension)

    def ranges(self) -> list[range]:
        """The ranges of images, one per shard."""
        starts = range(0, self.images, IMAGES_PER_SHARD)
        return [range(start, min(start + IMAGES_PER_SHARD, self.images)) for start in starts]

    def missing(self) -> list[range]:
        """The ranges that are still to be done."""
        return [part for part in self.ranges() if self._read(part) is None]

    def write(self, part: range, features: NDArray[np.float32], broken: dict[int, str]) -> None:
        """Keep a finished range; rows of broken images are NaN, with the reason beside."""
        if broken:
            write_text(self._path(part).with_suffix(".json"), json.dumps(broken))
        content = io.BytesIO()  # numpy would keep to itself why a file could not be written
        np.save(content, features.astype(np.float32))
        with whole_file(self._path(part)) as temporary:
            temporary.write_bytes(content.getvalue())

    def assemble(self) -> tuple[NDArray[np.float32], dict[int, str]]:
        """All features (M, D), rows of broken images included, and what was broken."""
        parts: list[NDArray[np.float32]] = []
        broken: dict[int, str] = {}
        deadline = time.monotonic() + PATIENCE
        for part in self.ranges():
            while (features := self._read(part)) is None and time.monotonic() < deadline:
                time.sleep(0.5)
            if features is None:
                raise FsbenchError(f"A piece of the extraction in {self.folder} is missing.", "Run extract again.")
            parts.append(features)
            notes = self._path(part).with_suffix(".json")
            try:
                stated = json.loads(notes.read_text()) if notes.exists() else {}
                broken |= {int(row): str(why) for row, why in stated.items()}
            except (OSError, ValueError, AttributeError) as error:
                raise FsbenchError(f"{notes} is damaged.", f"Remove {self.folder}, and run extract again.") from error
        return np.concatenate([np.empty((0, self.dimension), np.float32), *parts]), broken

    @contextmanager
    def explaining_interrupts(self, reporter: Reporter) -> Iterator[None]:
        """Say what an interrupted extraction keeps and what it loses."""
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C or a signal
            done = self.images - sum(len(part) for part in self.missing())
            reporter.warn(
                f"Kept: the features of {done:,} of {self.images:,} images, in {self.folder}. Lost: those after them."
                if done
                else f"The first block of {IMAGES_PER_SHARD:,} images was not finished, so nothing is kept yet."
            )
            raise

    def _path(self, part: range) -> Path:
        return self.folder / f"{part.start:09d}.npy"

    def _read(self, part: range) -> NDArray[np.float32] | None:
        try:
            features: NDArray[np.float32] = np.load(self._path(part), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return features if features.shape == (len(part), self.dimension) else None


def fingerprint(plan: Mapping[str, Any]) -> str:
    """SHA-256 of everything that determines the features."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
