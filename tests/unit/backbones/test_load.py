"""The door: names, seeds, widths, timm models, and what is written and read back."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fsbench.backbones.load import encode_backbone, halve, load_backbone
from fsbench.backbones.networks import Backbone, Conv4, ResNet12, ResNet18, WideResNet
from fsbench.errors import FsbenchError

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_the_seed_decides_and_the_global_random_numbers_are_left_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    first, again, other = (load_backbone("rn12", random_seed=seed, width=2)(IMAGES) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "rn12"}, "needs either a weights file or a random seed, found neither"),
        ({"name": "rn12", "weights": "a.pt", "random_seed": 1}, "found both"),
        ({"name": "rn13", "random_seed": 1}, "Unknown backbone 'rn13'.*\n?.*rn12"),
        ({"name": "rn12", "weights": "a.pt", "width": 5}, "A width belongs to random weights"),
        ({"name": "wrn", "random_seed": 0, "width": 0.01}, "wrn of width 0.01 has no channels"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(FsbenchError, match=words):
        load_backbone(**arguments)


@pytest.mark.parametrize(
    ("name", "width", "family", "dim"),
    [
        ("rn12", 6, "rn12-easy", 60),
        ("rn18", 5, "rn18-simpleshot", 40),
        ("wrn", 0.5, "wrn-simpleshot", 32),
        ("timm/resnet10t", None, "timm/resnet10t", 512),
    ],
)
def test_what_is_saved_is_read_back(tmp_path: Path, name: str, width: float | None, family: str, dim: int) -> None:
    backbone = load_backbone(name, random_seed=5, width=width)
    info = backbone.info
    assert (info.name, info.family, info.feature_dim, info.weights) == (name, family, dim, "none, seed 5")
    assert not backbone.training
    path = tmp_path / "new.safetensors"
    path.write_bytes(encode_backbone(backbone, {"dataset": "glyphs", "image_size": "32"}))
    again = load_backbone(name, path)
    assert again(IMAGES).shape == (2, dim)
    assert torch.equal(again(IMAGES), backbone(IMAGES))
    assert again.info.weights == "new.safetensors"
    assert again.info.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    facts = json.loads(again.info.metadata["fsbench"])
    assert (facts["dataset"], facts["family"], again.info.family) == ("glyphs", family, family)
    if width is not None:
        assert again.info.image_size == 32
        assert tuple(facts["widths"]) == tuple(backbone.info.architecture["widths"])


def test_conv4_flattens_maps_of_2x2_positions_and_averages_larger_ones() -> None:
    network = Conv4((2, 3, 4, 5))
    small, large = torch.rand(6, 5, 2, 2), torch.rand(6, 5, 4, 4)
    assert torch.equal(network.pool(small), small.reshape(6, 20))
    corner = network.pool(large).unflatten(1, (5, 2, 2))[:, :, 0, 1]
    torch.testing.assert_close(corner, large[:, :, :2, 2:].mean(dim=(2, 3)))


@pytest.mark.parametrize(
    "network", [ResNet12((4, 5, 6, 7)), ResNet18((4, 5, 6, 7)), WideResNet((4, 5, 6, 7), 2), Conv4((4, 5, 6, 7))]
)
def test_every_parameter_learns(network: Backbone) -> None:
    network.train()(torch.randn(4, 3, 32, 32)).pow(2).sum().backward()
    assert all(
        parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        for name, parameter in network.named_parameters()
        if not name.endswith("conv1.bias")  # a batch norm right after it takes a constant away again
    )


def test_weights_that_half_precision_cannot_hold_are_not_rounded() -> None:
    layer = torch.nn.Linear(3, 2)
    for value, rounded in ((1e6, False), (0.1, True)):
        torch.nn.init.constant_(layer.weight, value)
        halve(layer)
        assert bool((layer.weight == layer.weight.half().float()).all()) == rounded
