from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fsbench.backbones.base import Backbone
from fsbench.backbones.load import load_backbone
from fsbench.train.images import Batch
from fsbench.train.loop import ClassTrainer, choose_workers, learning_rate, memory_format_of
from fsbench.train.settings import TrainSettings

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
META = torch.device("meta")  # tensors without data stand for those of a GPU


@pytest.mark.parametrize(
    ("name", "width", "safe"),
    [
        ("rn12", 2, True),
        ("rn18", 2, False),
        ("rn18", 8, True),
        ("rn18", 12, False),
        ("wrn", 1, True),
        ("wrn", 0.125, False),
    ],
)
def test_channels_come_last_unless_strided_convolutions_would_overrun(name: str, width: float, safe: bool) -> None:
    network = load_backbone(name, random_seed=0, width=width)
    assert memory_format_of(network, CPU) is (torch.channels_last if safe else torch.contiguous_format)
    assert memory_format_of(network, CUDA) is torch.channels_last


def test_workers_are_those_asked_for_or_as_many_as_are_useful() -> None:
    assert choose_workers(3, CPU, in_memory=True) == 3
    assert choose_workers(0, CUDA, in_memory=False) == 0
    assert choose_workers(None, CPU, in_memory=True) == 0
    assert choose_workers(None, CPU, in_memory=False) == 1
    assert 1 <= choose_workers(None, CUDA, in_memory=True) <= 8


def test_it_rises_to_the_peak_and_falls_towards_zero() -> None:
    rates = [learning_rate(step, 200, 0.4, 0.05) for step in range(200)]
    assert rates[:10] == pytest.approx([0.04 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 0.4
    assert all(before > after for before, after in pairwise(rates[9:]))
    assert 0 < rates[-1] < 1e-3 * 0.4


def test_the_descent_is_half_a_cosine() -> None:
    """One warm-up step and nine more: ten equal parts of the half-wave."""
    rates = [learning_rate(step, 10, 1.0, 0.0) for step in range(10)]
    assert rates == pytest.approx([math.cos(math.pi * step / 20) ** 2 for step in range(10)])


def test_a_single_step_has_the_peak_rate() -> None:
    assert learning_rate(0, 1, 0.1, 0.05) == 0.1


class NoWaiting(TorchDispatchMode):
    """Fails where the host would wait for a GPU: values that are read, and copies that are not left to themselves."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = func.overloadpacket.__name__, kwargs or {}
        assert name not in {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal"}, name
        if name == "_to_copy" and torch.device(options.get("device") or args[0].device).type != args[0].device.type:
            assert options.get("non_blocking"), "a copy that the host waits for"
        return func(*args, **options)


@pytest.mark.parametrize("epoch", range(3))  # mixed in other places
def test_a_step_does_not_wait_for_the_gpu(epoch: int) -> None:
    settings = TrainSettings("rn12", width=2, rotation=True, mixup=True)
    network = load_backbone("rn12", random_seed=0, width=2).network
    assert isinstance(network, Backbone)
    trainer = ClassTrainer(network, 4, settings, META)
    labels = torch.zeros(6, dtype=torch.int64)
    batch = Batch(torch.zeros(6, 3, 32, 32), labels, labels)
    with NoWaiting():
        trainer.step(batch, epoch, 0, 5)
    assert trainer._loss.device == META
    with NoWaiting(), pytest.raises(AssertionError, match="waits"):
        batch.images.to(META)
