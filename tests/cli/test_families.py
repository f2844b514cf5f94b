"""Families of checkpoints, all the way: checkpoint, recognition, extraction, record, published numbers."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from fsbench.backbones.checkpoints import read_checkpoint, recognise
from fsbench.backbones.families import BACKBONES, FAMILIES, SHAPES
from fsbench.backbones.load import encode_backbone, load_backbone
from fsbench.data.transforms import RECIPES, transform_for
from fsbench.evaluation.source import load_source
from fsbench.features.store import FeatureFile
from fsbench.results.published import published
from fsbench.results.record import load_record
from fsbench.results.warnings import own_warnings
from tests.cli import run, succeed
from tests.images import write_images
from tests.oracle import backbone_reference as reference
from tests.records import make_record

# The list of keys and the container of a family; the oracles have those that only rename the keys of another.
FILES = {
    "rn12-easy": ("rn12-easy", ""),
    "rn12-metaoptnet": ("rn12-rfs", "model"),
    "rn18-simpleshot": ("rn18-simpleshot", "state_dict"),
    "rn18-closerlook": ("rn18-closerlook", "state"),
    "wrn-simpleshot": ("wrn-simpleshot", "state_dict"),
    "wrn-s2m2": ("wrn-s2m2", "state"),
    "conv4-fsbench": ("conv4-fsbench", ""),
}


def write_checkpoint(path: Path, family: str) -> Path:
    """A narrow checkpoint with the key names and the container of a family."""
    keys, container = FILES[family]
    state = reference.random_state(reference.narrowed(reference.key_shapes(keys), 16))
    torch.save({container: state} if container else state, path)
    return path


@pytest.fixture
def folder(here: Path) -> Path:
    write_images(here / "photos", {"base": ["b"], "val": ["v"], "novel": ["n0", "n1", "n2", "n3", "n4"]}, images=2)
    return here


def test_the_registry_is_whole() -> None:
    assert {family.backbone for family in FAMILIES.values()} == set(BACKBONES) == set(SHAPES)
    assert {family.transform for family in FAMILIES.values()} <= set(RECIPES)


@pytest.mark.parametrize("name", FILES)
def test_from_a_checkpoint_to_the_published_number(name: str, folder: Path) -> None:
    family = FAMILIES[name]
    path = write_checkpoint(folder / "a.pth", name)
    assert recognise(read_checkpoint(path)).family == family
    (folder / "saved.safetensors").write_bytes(encode_backbone(load_backbone(family.backbone, path), {}))
    assert load_backbone(family.backbone, folder / "saved.safetensors").info.family == name

    extract = ("extract", "--data", "photos", "--backbone", family.backbone, "--workers", "0", "--quiet")
    succeed(*extract, "--weights", "a.pth")
    made = FeatureFile.open(folder / "features" / f"photos-{family.backbone}.h5")
    assert made.provenance.family == name
    small = transform_for(family.transform, None, 20)
    assert json.loads(made.provenance.transform) == json.loads(json.dumps(asdict(small)))
    if family.image_size:
        assert made.provenance.image_size == family.image_size

    succeed("solve", "--method", "ncm", "--balanced", "--shots", "1", "--queries", "5", "--tasks", "3", "--quiet")
    record = load_record(next(folder.glob("results/*ncm*.h5")))
    digest = made.provenance.weights_sha256[:8]
    assert (record.provenance.family, record.provenance.named_weights) == (name, f"a.pth@{digest}")
    assert f"|photos/{family.backbone}({name}@{digest})/novel|" in record.signature

    features: dict[str, Any] = {"dataset": "mini", "backbone": record.backbone, "family": name}
    features["network"] = record.network
    numbers = [published(make_record(method, alpha=None, **features)) for method in ("bavardage", "pt-map")]
    assert any(numbers) is bool(family.published)
    warnings = own_warnings(make_record("bavardage", **features))
    assert any("the network is not the published one: widths" in one.text for one in warnings) is bool(family.published)


def test_own_weights_are_not_the_published_ones(folder: Path) -> None:
    narrow = load_backbone("rn12", random_seed=0, width=4)
    (folder / "own.safetensors").write_bytes(encode_backbone(narrow, {"epochs": "2"}))
    run("extract", "--data", "photos", "--workers", "0", "--quiet", "--weights", "own.safetensors")
    source = load_source(FeatureFile.open(folder / "features/photos-rn12.h5"), "novel", None)
    assert source.network == "trained by fsbench; widths 4-10-20-40, not widths 64-160-320-640"
