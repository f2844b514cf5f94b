import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from fsbench.backbones.base import Backbone
from fsbench.backbones.load import load_backbone
from fsbench.train.images import Batch, Keys, Mixing
from fsbench.train.loop import Objective, Trainer, learning_rate, memory_format_of, mixed_features
from fsbench.train.settings import LABEL_SMOOTHING, TrainSettings
from tests.pretend import NoWaiting

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
META = torch.device("meta")  # tensors without data stand for those of a GPU
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
        upright = Objective(network, classes=5, rotation=False, seed=0)
        plain = upright.class_head(network(images))
        expected = functional.cross_entropy(plain, LABELS, label_smoothing=LABEL_SMOOTHING)
        torch.testing.assert_close(upright(images, LABELS, TURNS, None), expected)


def test_the_rate_rises_to_the_peak_and_falls_as_half_a_cosine() -> None:
    rates = [learning_rate(step, 200, 0.4, 0.05) for step in range(200)]
    assert rates[:10] == pytest.approx([0.04 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 0.4
    assert all(before > after for before, after in pairwise(rates[9:]))
    assert 0 < rates[-1] < 1e-3 * 0.4
    rates = [learning_rate(step, 10, 1.0, 0.0) for step in range(10)]  # one warm-up step and nine more
    assert rates == pytest.approx([math.cos(math.pi * step / 20) ** 2 for step in range(10)])
    assert learning_rate(0, 1, 0.1, 0.05) == 0.1


def test_channels_come_last_unless_strided_convolutions_would_overrun() -> None:
    for width, safe in ((2, False), (8, True), (12, False)):
        network = load_backbone("rn18", random_seed=0, width=width)
        assert memory_format_of(network, CPU) is (torch.channels_last if safe else torch.contiguous_format)
        assert memory_format_of(network, CUDA) is torch.channels_last


def test_a_step_does_not_wait_for_the_gpu() -> None:
    settings = TrainSettings("rn12", width=2, rotation=True, mixup=True)
    trainer = Trainer(Objective(backbone("rn12"), 4, rotation=True, seed=0), Keys(settings, 384), META)
    labels = torch.zeros(6, dtype=torch.int64)
    batch = Batch(torch.zeros(6, 3, 32, 32), labels, labels)
    with NoWaiting():
        for epoch in range(3):  # mixed in other places
            trainer.step(batch, epoch, 0)
    assert trainer._loss.device == META
    with NoWaiting(), pytest.raises(AssertionError, match="waits"):
        batch.images.to(META)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_bf16_is_for_products_and_the_weights_stay_in_fp32(precision: str, dtype: torch.dtype) -> None:
    """Without computing: some CPUs have no instructions for bf16."""
    settings = TrainSettings("rn12", width=2, rotation=True, mixup=True, precision=precision)
    objective = Objective(backbone("rn12"), 4, rotation=True, seed=0)
    trainer, labels = Trainer(objective, Keys(settings, 384), CPU), torch.zeros(6, dtype=torch.int64)
    dtypes: list[torch.dtype] = []
    for module in (objective.class_head, objective.backbone.stages()[1]):
        module.register_forward_hook(lambda module, given, result: dtypes.append(result.dtype))
    with FakeTensorMode(allow_non_fake_inputs=True):
        trainer.step(Batch(torch.zeros(6, 3, 32, 32), labels, labels), 0, 0)
        assert trainer._loss.dtype == torch.float32
    assert set(dtypes) == {dtype}
    assert {one.dtype for one in objective.parameters()} == {torch.float32}
    assert settings.facts().get("precision", "fp32") == precision
