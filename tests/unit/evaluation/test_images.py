"""Methods on images run on the same tasks as methods on features, and give what the same features would give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from fsbench.backbones.load import load_backbone, save_backbone
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.evaluation.compare import compare
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.spec import Spec
from fsbench.features.extract import Settings, Weights, extract_all
from fsbench.features.store import FeatureFile
from tests.comparing import CPU, QUIET, runner

if TYPE_CHECKING:
    from fsbench.results.record import RunRecord

METHODS = Path(__file__).with_name("own_image_methods.py")
CLASSES = {"base": ["b0", "b1"], "novel": ["n0", "n1", "n2", "n3"]}


def write_faint_images(root: Path, images: int = 12) -> None:
    """Classes that differ by a little colour, so that methods make mistakes."""
    rng = np.random.default_rng(0)
    for split, names in CLASSES.items():
        for name in names:
            (root / split / name).mkdir(parents=True)
            tint = rng.integers(0, 12, size=3)
            for i in range(images):
                tone = tint + rng.integers(0, 20, size=3)
                noise = rng.integers(0, 100, size=(40, 40, 3))
                Image.fromarray((tone + noise).astype(np.uint8)).save(root / split / name / f"{i}.png")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a data set, a small network for it, and its features."""
    root = tmp_path_factory.mktemp("images")
    write_faint_images(root / "data" / "tints")
    backbone = load_backbone("rn12", random_seed=0, width=4)
    (root / "weights" / "tints").mkdir(parents=True)
    for name, seed in (("colours", 0), ("colours-other", 1)):
        other = load_backbone("rn12", random_seed=seed, width=4)
        save_backbone(other, root / "weights" / "tints" / f"{name}.safetensors", {"image_size": "24"})
    save_backbone(backbone, root / "weights" / "tints" / "rn12.safetensors", {})
    datasets = choose_datasets(None, OwnData(root / "data" / "tints"), root, QUIET)
    weights = Weights("rn12", root / "weights" / "tints" / "rn12.safetensors", None, root)
    extract_all(datasets, weights, Settings(transform="simpleshot"), CPU, root / "features", QUIET)
    return root


def ran(place: Path, *methods: str, data: Path | None = None, **words: object) -> dict[str, RunRecord]:
    """The records of methods on 20 tasks of 3 classes, by their labels."""
    names = [f"{METHODS}:{name}" if name[0].isupper() else name for name in methods]
    options = {"baseline": "", "shots": 2, "settings": "unbalanced", "ways": 3, "queries": 9, "tasks": 20, **words}
    spec = Spec.from_words(methods=names[0] if names == ["all"] else names, published=False, **options)  # type: ignore[arg-type]
    images = ImagePlaces(data or place / "data", place / "weights")
    file = FeatureFile.open(place / "features" / "tints-rn12.h5")
    table = compare(spec, [file], runner(images=images))
    return {label: cell.record for (label, _), cell in table.groups[0].cells.items() if cell.record}


def test_a_method_on_images_gives_what_the_same_features_give(place: Path) -> None:
    found = ran(place, "MeanOfNetwork", "simpleshot:L2N")
    images, features = found["MeanOfNetwork"], found["simpleshot:L2N"]
    assert images.correct == features.correct
    assert 40 < features.accuracy < 100
    assert (images.key.features_sha256, images.queries) == (features.key.features_sha256, features.queries)
    made = FeatureFile.open(place / "features" / "tints-rn12.h5").provenance
    assert images.key.params == {"weights": f"rn12.safetensors@{made.weights_sha256[:8]}"}
