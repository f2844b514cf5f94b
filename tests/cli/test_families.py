"""Families of checkpoints, all the way: checkpoint, recognition, extraction, record, published numbers."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from fsbench.backbones.families import BACKBONES, FAMILIES, SHAPES
from fsbench.data.transforms import RECIPES, transform_for
from fsbench.features.store import FeatureFile
from fsbench.results.record import load_record
from tests.cli import succeed
from tests.images import write_images
from tests.oracle import backbone_reference as reference


@pytest.fixture
def folder(here: Path) -> Path:
    names = ["Möwe grün", "鳥の写真", "طائر أزرق", "👩‍🔬🧪", 'ก็นก "<b>" &']
    write_images(here / "photos", {"base": ["b"], "val": ["v"], "novel": names}, images=2)
    return here


def test_the_registry_is_whole() -> None:
    assert {family.backbone for family in FAMILIES.values()} == set(BACKBONES) == set(SHAPES)
    assert {family.transform for family in FAMILIES.values()} <= set(RECIPES)


def test_from_a_checkpoint_to_a_record(folder: Path) -> None:
    """A file of CloserLook, whose network needs images of 224 pixels."""
    state = reference.random_state(reference.narrowed(reference.key_shapes("rn18-closerlook"), 16))
    torch.save({"state": state}, folder / "a.pth")
    succeed("extract", "--data", "photos", "--backbone", "rn18", "--workers", "0", "--quiet", "--weights", "a.pth")
    made = FeatureFile.open(folder / "features" / "photos-rn18.h5").provenance
    assert (made.family, made.image_size) == ("rn18-closerlook", 224)
    assert json.loads(made.transform) == json.loads(json.dumps(asdict(transform_for("closerlook", None, 20))))
    succeed("solve", "--method", "ncm", "--balanced", "--shots", "1", "--queries", "5", "--tasks", "3", "--quiet")
    record = load_record(next(folder.glob("results/*ncm*.h5")))
    assert {*record.class_names} == {path.name for path in (folder / "photos" / "novel").iterdir()}  # in any script
    digest = made.weights_sha256[:8]
    assert (record.provenance.family, record.provenance.named_weights) == (made.family, f"a.pth@{digest}")
    assert f"|photos/rn18(rn18-closerlook@{digest})/novel@" in record.signature
