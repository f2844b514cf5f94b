"""The inner loops never ask the device for a value: they trace into one graph and run on tensors without data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fsbench.methods.alpha_am import AlphaAm
from fsbench.methods.alpha_tim import AlphaTim
from fsbench.methods.baseline import Baseline, BaselinePlusPlus
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.bd_cspn import BdCspn
from fsbench.methods.bms import Bms
from fsbench.methods.entropy_min import EntropyMin
from fsbench.methods.laplacianshot import LaplacianShot
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.paddle import Paddle
from fsbench.methods.pt_map import PtMap
from fsbench.methods.simpleshot import SimpleShot
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.methods.tim import TimAlternating, TimGradient
from fsbench.tasks.batch import TaskBatch

METHODS = [
    (Bavardage(), 96),
    (Bavardage(variant="released"), 96),
    (Bavardage(tau="learned", stage="vb"), 96),
    (Bavardage(mixing="uniform"), 40),  # more samples than features
    (SoftKMeans(), 48),
    (NearestClassMean(), 48),
    (SimpleShot(), 48),
    (BdCspn(), 48),
    (LaplacianShot(rectify=True, steps=4), 48),
    (PtMap(epochs=1), 48),
    (Bms(steps=2, passes=3), 48),
    (Paddle(steps=3), 20),  # more samples than features
    (Baseline(steps=3), 48),
    (BaselinePlusPlus(steps=3), 48),
    (EntropyMin(steps=3), 48),
    (TimGradient(steps=3), 48),
    (AlphaTim(steps=3), 48),
    (TimAlternating(steps=3), 48),
    (TimAlternating(steps=3), 20),  # more samples than features
    (AlphaAm(steps=3), 48),
]


def inputs(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 35, width), torch.arange(5).expand(3, 5).contiguous()


@pytest.mark.parametrize(("method", "width"), METHODS)
def test_runs_on_fake_tensors(method: Any, width: int) -> None:
    rows, labels = inputs(width)
    with FakeTensorMode() as mode:
        p = method.classify(TaskBatch(mode.from_tensor(rows), mode.from_tensor(labels), 5))
    assert p.shape == (3, 30, 5)


@pytest.mark.parametrize(("method", "width"), METHODS)
def test_traces_into_one_graph(method: Any, width: int) -> None:
    torch.compiler.reset()  # or it counts the methods before as recompilations of one function
    rows, labels = inputs(width)

    def classify(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = method.classify(TaskBatch(rows, labels, 5))
        return found

    torch.compiler.reset()  # one function is compiled for all methods, which would count as compiling it again
    compiled = torch.compile(classify, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(rows, labels), classify(rows, labels), atol=1e-4, rtol=1e-4)
