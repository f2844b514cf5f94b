"""The modules themselves: sizes, shapes, training."""

import pytest
import torch

from fsbench.backbones.base import Backbone
from fsbench.backbones.networks import Conv4, ResNet12, ResNet18, WideResNet
from fsbench.errors import FsbenchError


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


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (3, 32, 32), (2, 3, 15, 32)])
def test_images_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FsbenchError, match=r"Expected images of shape \(B, 3, H, W\).*at least 16"):
        ResNet12((4, 5, 6, 7))(torch.zeros(shape))
