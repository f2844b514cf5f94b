"""`check_method` passes what is right and names what is wrong; the methods of fsbench are checked in `properties`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.methods.base import Count, MethodInfo, Positive
from fsbench.methods.ncm import NearestClassMean
from fsbench.testing import check_method

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

FACTS = {"transductive": False, "needs_base": True}


class Right(NearestClassMean):
    exponent: Positive = 0.5
    steps: Count = 3
    info = MethodInfo("right", reference="Us,\nhere", **FACTS, grid={"exponent": (0.5, 1)})  # type: ignore[arg-type]

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        x = super().embed(features, base)
        return x.sign() * x.abs() ** self.exponent


class Unprintable(Right):
    info = MethodInfo("right\n", **FACTS)  # type: ignore[arg-type]


class UnknownGrid(Right):
    info = MethodInfo("right", **FACTS, grid={"exponnent": (1.0,)})  # type: ignore[arg-type]


class WrongGrid(Right):
    info = MethodInfo("right", **FACTS, grid={"exponent": (-1.0,)})  # type: ignore[arg-type]


class NoBase(Right):
    info = MethodInfo("right", transductive=False)


class IgnoresBase(Right):
    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return features


class Logits(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        return super().classify(tasks).log()


class Transposed(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        return super().classify(tasks).mT


class Random(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        p = super().classify(tasks)
        return (p + torch.rand_like(p)).softmax(dim=2)


class Writes(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        tasks.rows[:, :, ::2] = 0
        return super().classify(tasks)


class WritesFeatures(Right):
    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return super().embed(features.abs_().add_(1), base)


class Standardises(Right):
    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return super().embed(features - features.mean(dim=0), base)


class CentresBatch(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        return super().classify(tasks.with_rows(tasks.rows - tasks.rows.mean(dim=0)))


class FirstQuery(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        p = super().classify(tasks)
        return torch.cat([p[:, :1] ** 2 / (p[:, :1] ** 2).sum(dim=2, keepdim=True), p[:, 1:]], dim=1)


class PrefersFirst(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        return (super().classify(tasks) + torch.eye(3)[0].to(tasks.rows)).div(2)


class ScalesQueries(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        return super().classify(tasks.with_rows(tasks.rows / tasks.rows.std(dim=1, keepdim=True)))


class OnTheCpu(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        return super().classify(tasks) * torch.ones(3)


class OnlyEqualShots(Right):
    def classify(self, tasks: TaskBatch) -> Tensor:
        counts = tasks.one_hot().sum(dim=2)
        return super().classify(tasks) * (counts == counts[:, :1]).all()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Unprintable, "name or title cannot be printed"),
        (UnknownGrid, "its facts name parameters that it does not have: exponnent"),
        (NoBase, "its facts do not say needs_base"),
        (IgnoresBase, "its facts say needs_base"),
        (Logits, "a probability is negative"),
        (Transposed, "not (B, Q, K) = (3, 11, 3)"),
        (Random, "other probabilities the second time"),
        (Writes, "classify writes into the rows"),
        (WritesFeatures, "embed writes into the features"),
        (Standardises, "embed does not map row by row"),
        (CentresBatch, "a task alone has other probabilities"),
        (FirstQuery, "the order of the samples of a task matters"),
        (PrefersFirst, "the numbering of the classes matters"),
        (ScalesQueries, "its facts say inductive"),
        (OnTheCpu, "fails on a GPU"),
        (OnlyEqualShots, "do not add up to 1"),
    ],
)
def test_what_is_wrong_is_named(method: Any, words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_method(method)
    assert str(caught.value).startswith(f"{method.__name__}: ")
    assert words in str(caught.value)


def test_what_is_right_passes() -> None:
    check_method(Right)
    check_method(Right, exponent=1)
    check_method(PrefersFirst, leave_out=["classes"])
    check_method(OnlyEqualShots, leave_out=["unequal shots"])
    with pytest.raises(FsbenchError, match=r"exponent must be a positive number, got -1\.0"):
        check_method(WrongGrid)
