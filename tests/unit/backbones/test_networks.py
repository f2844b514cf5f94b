"""The modules themselves: sizes, shapes, training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from fsbench.backbones.families import SHAPES
from fsbench.backbones.networks import NETWORKS, Conv4, ResNet12, ResNet18, WideResNet
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from fsbench.backbones.base import Backbone


@pytest.mark.parametrize(
    ("model", "width", "count", "dim"),
    [
        ("rn12", 64, 12_424_320, 640),
        ("rn12", 45, 6_141_398, 450),
        ("rn12", 32, 3_108_928, 320),
        ("rn18", 64, 11_168_832, 512),
        ("rn18-7x7", 64, 11_176_512, 512),
        ("wrn", 10, 36_482_880, 640),
        ("wrn-s2m2", 10, 36_472_784, 640),
        ("conv4", 64, 112_832, 256),
        ("conv4", 16, 7_472, 64),
    ],
)
def test_parameter_counts_and_feature_dimensions(model: str, width: int, count: int, dim: int) -> None:
    shape = SHAPES[model.partition("-")[0]]
    with torch.device("meta"):
        network = NETWORKS[model](**{**shape.standard, "widths": shape.widths_of(width)})
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert network.feature_dim == dim


def test_conv4_flattens_maps_of_2x2_positions_and_averages_larger_ones() -> None:
    network = Conv4((2, 3, 4, 5))
    small, large = torch.rand(6, 5, 2, 2), torch.rand(6, 5, 4, 4)
    assert torch.equal(network.pool(small), small.reshape(6, 20))
    corner = network.pool(large).unflatten(1, (5, 2, 2))[:, :, 0, 1]
    torch.testing.assert_close(corner, large[:, :, :2, 2:].mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("network", "sides_by_size"),
    [
        (ResNet12((2, 3, 4, 5)), {84: [42, 21, 10, 5], 32: [16, 8, 4, 2], 16: [8, 4, 2, 1]}),
        (Conv4((2, 3, 4, 5)), {84: [42, 21, 10, 5], 32: [16, 8, 4, 2], 16: [8, 4, 2, 1]}),
        (ResNet18((2, 3, 4, 5), 3), {84: [84, 42, 21, 11], 32: [32, 16, 8, 4]}),
        (ResNet18((2, 3, 4, 5), 7), {224: [56, 28, 14, 7], 84: [21, 11, 6, 3]}),
        (WideResNet((2, 3, 4, 5), 1, True), {84: [84, 42, 21], 32: [32, 16, 8]}),
        (WideResNet((2, 3, 4, 5), 1, False), {84: [84, 42, 21], 32: [32, 16, 8]}),
    ],
)
def test_resolutions_of_the_stages(network: Backbone, sides_by_size: dict[int, list[int]]) -> None:
    for size, sides in sides_by_size.items():
        maps = network.eval().stem(torch.zeros(1, 3, size, size))
        for stage, side in zip(network.stages(), sides, strict=True):
            maps = stage(maps)
            assert maps.shape[2:] == (side, side)
        assert network(torch.zeros(1, 3, size, size)).shape == (1, network.feature_dim)


RECTIFIED = [ResNet18((4, 5, 6, 7)), WideResNet((4, 5, 6, 7), 2), Conv4((4, 5, 6, 7))]


@pytest.mark.parametrize("network", RECTIFIED)
def test_features_after_a_relu_are_not_negative(network: Backbone) -> None:
    assert network.eval()(torch.randn(3, 3, 32, 32)).min() >= 0


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


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (3, 32, 32), (2, 3, 15, 32)])
def test_images_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FsbenchError, match=r"Expected images of shape \(B, 3, H, W\).*at least 16"):
        ResNet12((4, 5, 6, 7))(torch.zeros(shape))
