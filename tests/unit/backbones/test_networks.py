"""The modules themselves: sizes, shapes, registration, training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import timm
import torch
from torch import nn

from fsbench.backbones import conv4, resnet12, resnet18, wideresnet
from fsbench.backbones.families import SHAPES
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from fsbench.backbones.base import Backbone


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("model", "options", "count", "dim"),
    [
        ("fsbench_rn12", {}, 12_424_320, 640),
        ("fsbench_rn12", {"widths": SHAPES["rn12"].widths_of(45)}, 6_141_398, 450),
        ("fsbench_rn12", {"widths": SHAPES["rn12"].widths_of(32)}, 3_108_928, 320),
        ("fsbench_rn18", {}, 11_168_832, 512),
        ("fsbench_rn18_7x7", {}, 11_176_512, 512),
        ("fsbench_wrn", {}, 36_482_880, 640),
        ("fsbench_wrn_s2m2", {}, 36_472_784, 640),
        ("fsbench_conv4", {}, 112_832, 256),
        ("fsbench_conv4", {"widths": SHAPES["conv4"].widths_of(16)}, 7_472, 64),
    ],
)
def test_parameter_counts_and_feature_dimensions(model: str, options: dict[str, Any], count: int, dim: int) -> None:
    with torch.device("meta"):
        network = timm.create_model(model, num_classes=0, **options)
    assert parameters(network) == count
    assert network.feature_dim == dim


@pytest.mark.parametrize(("size", "sides"), [(84, [42, 21, 10, 5]), (32, [16, 8, 4, 2]), (16, [8, 4, 2, 1])])
def test_resnet12_resolutions(size: int, sides: list[int]) -> None:
    assert stage_sides(resnet12.ResNet12((2, 3, 4, 5)), size) == sides


@pytest.mark.parametrize(("size", "sides"), [(84, [42, 21, 10, 5]), (32, [16, 8, 4, 2]), (16, [8, 4, 2, 1])])
def test_conv4_resolutions(size: int, sides: list[int]) -> None:
    network = conv4.Conv4((2, 3, 4, 5))
    assert stage_sides(network, size) == sides
    assert network(torch.zeros(1, 3, size, size)).shape == (1, 20)


def test_conv4_flattens_maps_of_2x2_positions_and_averages_larger_ones() -> None:
    network = conv4.Conv4((2, 3, 4, 5))
    small, large = torch.rand(6, 5, 2, 2), torch.rand(6, 5, 4, 4)
    assert torch.equal(network.pool(small), small.reshape(6, 20))
    corner = network.pool(large).unflatten(1, (5, 2, 2))[:, :, 0, 1]
    torch.testing.assert_close(corner, large[:, :, :2, 2:].mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("kernel", "size", "sides"),
    [(3, 84, [84, 42, 21, 11]), (3, 32, [32, 16, 8, 4]), (7, 224, [56, 28, 14, 7]), (7, 84, [21, 11, 6, 3])],
)
def test_resnet18_resolutions(kernel: int, size: int, sides: list[int]) -> None:
    assert stage_sides(resnet18.ResNet18((2, 3, 4, 5), kernel), size) == sides


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("size", "sides"), [(84, [84, 42, 21]), (32, [32, 16, 8])])
def test_wideresnet_resolutions(bias: bool, size: int, sides: list[int]) -> None:
    assert stage_sides(wideresnet.WideResNet((2, 3, 4, 5), 1, bias), size) == sides


def stage_sides(network: Backbone, size: int) -> list[int]:
    maps = network.eval().stem(torch.zeros(1, 3, size, size))
    sides = []
    for stage in network.stages():
        maps = stage(maps)
        assert maps.shape[2] == maps.shape[3]
        sides.append(maps.shape[2])
    return sides


RECTIFIED = [resnet18.ResNet18((4, 5, 6, 7)), wideresnet.WideResNet((4, 5, 6, 7), 2), conv4.Conv4((4, 5, 6, 7))]


@pytest.mark.parametrize("network", RECTIFIED)
def test_features_after_a_relu_are_not_negative(network: Backbone) -> None:
    assert network.eval()(torch.randn(3, 3, 32, 32)).min() >= 0


@pytest.mark.parametrize(
    "network",
    [
        resnet12.ResNet12((4, 5, 6, 7)),
        resnet18.ResNet18((4, 5, 6, 7)),
        wideresnet.WideResNet((4, 5, 6, 7), 2),
        conv4.Conv4((4, 5, 6, 7)),
    ],
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
        resnet12.ResNet12((4, 5, 6, 7))(torch.zeros(shape))


@pytest.mark.parametrize("model", ["fsbench_rn12", "fsbench_rn18", "fsbench_rn18_7x7", "fsbench_wrn", "fsbench_conv4"])
@pytest.mark.parametrize("option", [{"pretrained": True}, {"num_classes": 10}, {"widthz": (1, 2, 3, 4)}])
def test_timm_options_without_meaning_here_are_refused(model: str, option: dict[str, Any]) -> None:
    with pytest.raises(FsbenchError, match=next(iter(option))):
        timm.create_model(model, **option)


def test_default_widths_belong_to_the_standard_base_width() -> None:
    assert SHAPES["rn12"].standard == {"widths": (64, 160, 320, 640)}
    assert SHAPES["rn18"].standard == {"widths": (64, 128, 256, 512)}
    assert SHAPES["wrn"].standard == {"widths": (16, 160, 320, 640), "blocks": 4}
    assert SHAPES["conv4"].standard == {"widths": (64, 64, 64, 64)}
