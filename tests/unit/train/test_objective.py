from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch.nn import functional

from fsbench.backbones.base import Backbone
from fsbench.backbones.load import load_backbone
from fsbench.train.draws import Mixing
from fsbench.train.loop import Objective, mixed_features, rotate
from fsbench.train.settings import LABEL_SMOOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

PARTNERS = torch.tensor([2, 0, 1])
LABELS = torch.tensor([1, 0, 3])
TURNS = torch.tensor([0, 3, 2])
WIDTHS = {"rn12": 2, "rn18": 2, "wrn": 0.25, "conv4": 2}


def backbone(name: str) -> Backbone:
    network = load_backbone(name, random_seed=0, width=WIDTHS[name]).network
    assert isinstance(network, Backbone)
    return network  # in eval mode: an image's features then depend on that image alone


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def test_images_are_rotated_as_numpy_rotates_them(images: torch.Tensor) -> None:
    rotated = rotate(images, TURNS)
    for image, turns, found in zip(images.numpy(), TURNS.tolist(), rotated.numpy(), strict=True):
        np.testing.assert_array_equal(found, np.rot90(image, turns, axes=(1, 2)))


@pytest.mark.parametrize("name", WIDTHS)
def test_mixing_acts_after_the_given_number_of_stages(name: str, images: torch.Tensor) -> None:
    network = backbone(name)
    with torch.no_grad():
        parts: list[Callable[[torch.Tensor], torch.Tensor]] = [network.stem, *network.stages()]
        maps = [images]
        for part in parts:
            maps.append(part(maps[-1]))
        for position in range(len(network.stages()) + 1):
            mixed = maps[position + 1 if position else 0]  # maps[1] is the output of the stem
            mixed = 0.3 * mixed + 0.7 * mixed[PARTNERS]
            for part in parts[position + 1 if position else 0 :]:
                mixed = part(mixed)
            found = mixed_features(network, images, position, 0.3, PARTNERS)
            torch.testing.assert_close(found, network.pool(mixed), rtol=1e-5, atol=1e-6)
            untouched = mixed_features(network, images, position, 1.0, PARTNERS)
            torch.testing.assert_close(untouched, network(images), rtol=1e-5, atol=1e-6)


def test_loss_is_the_mean_of_class_and_rotation_loss_plus_the_mixed_loss(images: torch.Tensor) -> None:
    network = backbone("rn12")
    objective = Objective(network, classes=5, rotation=True, seed=0)
    assert objective.turn_head is not None
    with torch.no_grad():
        turned = network(torch.stack([image.rot90(int(n), (1, 2)) for image, n in zip(images, TURNS, strict=True)]))
        own = functional.cross_entropy(objective.class_head(turned), LABELS, label_smoothing=LABEL_SMOOTHING)
        rotation = functional.cross_entropy(objective.turn_head(turned), TURNS)
        logits = objective.class_head(network(0.25 * images + 0.75 * images[PARTNERS])).log_softmax(dim=1)
        targets = 0.25 * functional.one_hot(LABELS, 5) + 0.75 * functional.one_hot(LABELS[PARTNERS], 5)
        targets = (1 - LABEL_SMOOTHING) * targets + LABEL_SMOOTHING / 5
        mixed = -(targets * logits).sum(dim=1).mean()
        found = objective(images, LABELS, TURNS, Mixing(0, 0.25, PARTNERS.numpy()))
        torch.testing.assert_close(found, (own + rotation) / 2 + mixed)
        torch.testing.assert_close(objective(images, LABELS, TURNS, None), (own + rotation) / 2)


def test_without_rotation_images_stay_upright(images: torch.Tensor) -> None:
    network = backbone("rn12")
    objective = Objective(network, classes=5, rotation=False, seed=0)
    assert objective.turn_head is None
    with torch.no_grad():
        logits = objective.class_head(network(images))
        expected = functional.cross_entropy(logits, LABELS, label_smoothing=LABEL_SMOOTHING)
        torch.testing.assert_close(objective(images, LABELS, TURNS, None), expected)


def test_heads_follow_the_seed_and_leave_the_global_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    heads = [Objective(backbone("rn12"), 4, rotation=True, seed=seed).class_head.weight for seed in (0, 0, 1)]
    torch.testing.assert_close(torch.rand(3), expected)
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
