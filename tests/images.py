"""Tiny image folders."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_images(
    root: Path, classes: dict[str, list[str]], images: int = 4, side: int = 20, seed: int = 0, ending: str = "png"
) -> Path:
    """Split folders with class folders of random images; classes of a split share a hue, so that features differ."""
    rng = np.random.default_rng(seed)
    for split, names in classes.items():
        for name in names:
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            tint = rng.integers(0, 200, size=3)
            for i in range(images):
                pixels = np.clip(tint + rng.integers(0, 90, size=(side, side, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:03d}.{ending}")
    return root


SPLITS = {"base": ["b0", "b1", "b2"], "val": ["v0", "v1"], "novel": ["n0", "n1", "n2"]}
