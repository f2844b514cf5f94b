"""A tiny data set of tinted images, and what its networks say of themselves."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from fsbench.data.dataset import ImageDataset
from fsbench.data.scan import OwnData
from tests.images import write_images

COUNTS = {"base": (6, 12), "val": (5, 20), "novel": (5, 4)}  # classes, images of each


def write_tints(root: Path, side: int = 16, counts: dict[str, tuple[int, int]] = COUNTS) -> Path:
    """Write `root/<split>/<class>/<image>.png`."""
    for seed, (split, (classes, images)) in enumerate(counts.items()):
        write_images(root, {split: [f"{split}{label}" for label in range(classes)]}, images, side, seed)
    return root


def facts(path: Path | str) -> dict[str, Any]:
    """What the header of weights says of their training."""
    with safe_open(path, "pt") as file:
        header: dict[str, Any] = json.loads(file.metadata()["fsbench"])
        return header


def tints(root: Path, side: int = 16, counts: dict[str, tuple[int, int]] = COUNTS) -> ImageDataset:
    """The same, read back as a user's own data."""
    return OwnData(write_tints(root, side, counts)).load("tints")
