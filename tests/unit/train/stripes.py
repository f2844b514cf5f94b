"""A tiny data set of striped images: the class is the direction and the colour of the stripes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import safe_open

from fsbench.data.dataset import ImageDataset
from fsbench.data.scan import OwnData

COUNTS = {"base": (6, 12), "val": (5, 20), "novel": (5, 4)}  # classes, images of each


def write_stripes(root: Path, side: int = 16, counts: dict[str, tuple[int, int]] = COUNTS) -> Path:
    """Write `root/<split>/<class>/<image>.png`."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side]
    for split, (classes, images) in counts.items():
        for label in range(classes):
            angle, colour = random.uniform(0, np.pi), random.uniform(0.3, 1, 3)
            folder = root / split / f"{split}{label}"
            folder.mkdir(parents=True)
            for image in range(images):
                phase = random.uniform(0, 2 * np.pi)
                waves = 0.5 + 0.5 * np.sin((x * np.cos(angle) + y * np.sin(angle)) * 1.2 + phase)
                pixels = 255 * (waves[:, :, None] * colour * 0.8 + random.uniform(0, 0.2, (side, side, 3)))
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{image:02d}.png")
    return root


def facts(path: Path | str) -> dict[str, Any]:
    """What the header of weights says of their training."""
    with safe_open(path, "pt") as file:
        header: dict[str, Any] = json.loads(file.metadata()["fsbench"])
        return header


def stripes(root: Path, side: int = 16, counts: dict[str, tuple[int, int]] = COUNTS) -> ImageDataset:
    """The same, read back as a user's own data."""
    return OwnData(write_stripes(root, side, counts)).load("stripes")
