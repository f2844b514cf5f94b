from __future__ import annotations

import pytest
import torch

from fsbench.backbones.load import load_backbone
from fsbench.train.loop import choose_workers, memory_format_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


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
