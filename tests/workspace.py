"""A folder as its user may have it: features, images, a checkpoint, files of others. All of it small."""

from __future__ import annotations

import shutil
from pathlib import Path

from fsbench.features.store import FeatureFile
from tests.images import write_images
from tests.synthetic import make_features

SHIPPED = Path(__file__).parents[1] / "weights" / "glyphs"


def write_feature_files(folder: Path) -> None:
    """Feature files of the names that documents use, all with the same made-up rows."""
    features = make_features()
    for dataset, backbone in (("glyphs", "rn12"), ("mini", "wrn")):
        path = folder / "features" / f"{dataset}-{backbone}.h5"
        path.parent.mkdir(exist_ok=True)
        features.write(path, dataset, backbone)


def write_photos(folder: Path, classes: int = 25, images: int = 30) -> None:
    """Class folders of small pictures in `photos`, and a checkpoint `my.pth` for them."""
    names = [f"bird{number:02d}" for number in range(classes)]
    write_images(folder, {"photos": names}, images=images)
    shutil.copy(SHIPPED / "rn12.safetensors", folder / "my.pth")


def open_features(folder: Path, name: str) -> FeatureFile:
    return FeatureFile.open(folder / "features" / f"{name}.h5")
