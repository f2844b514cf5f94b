"""`check_method` passes what is right and names what is wrong; the methods of fsbench are checked in `properties`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Count, MethodInfo, Positive
from fsbench.methods.ncm import NearestClassMean
from fsbench.tasks.batch import TaskBatch
from fsbench.testing import check_method

FACTS = {"transductive": False, "needs_base": True}


class Right(NearestClassMean):
    exponent: Positive = 0.5
    steps: Count = 3
    info = MethodInfo("right", reference="Us,\nhere", **FACTS, grid={"exponent": (0.5, 1)})  # type: ignore[arg-type]

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        x = super().embed(features, base)
        return x.sign() * x.abs() ** self.exponent


class UnknownGrid(Right):
    info = MethodInfo("right", **FACTS, grid={"exponnent": (1.0,)})  # type: ignore[arg-type]


class WrongGrid(Right):
    info = MethodInfo("right", **FACTS, grid={"exponent": (-1.0,)})  # type: ignore[arg-type]


class NoBase(Right):
    info = MethodInfo("right", transductive=False)


class IgnoresBase(Right):
    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return features


class WritesFeatures(Right):
    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return super().embed(features.abs_().add_(1), base)


class Standardises(Right):
    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return super().embed(features - features.mean(dim=0), base)


def classifying(change: Callable[[Tensor, TaskBatch], Tensor]) -> type[Right]:
    """A method that changes the probabilities, or its tasks."""

    class Wrong(Right):
        def classify(self, tasks: TaskBatch) -> Tensor:
            return change(super().classify(tasks), tasks)

    return Wrong


def first_query(p: Tensor, _: TaskBatch) -> Tensor:
    return torch.cat([p[:, :1] ** 2 / (p[:, :1] ** 2).sum(dim=2, keepdim=True), p[:, 1:]], dim=1)


def equal_shots(p: Tensor, tasks: TaskBatch) -> Tensor:
    counts = tasks.one_hot().sum(dim=2)
    return p * (counts == counts[:, :1]).all()


def solved_with(rows: Callable[[Tensor], Tensor]) -> type[Right]:
    return classifying(lambda _, tasks: Right().classify(tasks.with_rows(rows(tasks.rows))))


PREFERS_FIRST = classifying(lambda p, tasks: (p + torch.eye(3)[0].to(p)) / 2)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (UnknownGrid, "its facts name parameters that it does not have: exponnent"),
        (NoBase, "its facts do not say needs_base"),
        (IgnoresBase, "its facts say needs_base"),
        (WritesFeatures, "embed writes into the features"),
        (Standardises, "embed does not map row by row"),
        (classifying(lambda p, _: p.log()), "a probability is negative"),
        (classifying(lambda p, _: p.mT), "not (B, Q, K) = (3, 11, 3)"),
        (classifying(lambda p, _: (p + torch.rand_like(p)).softmax(dim=2)), "other probabilities the second time"),
        (classifying(lambda p, tasks: p + tasks.rows.zero_()[0, 0, 0]), "classify writes into the rows"),
        (solved_with(lambda rows: rows - rows.mean(dim=0)), "a task alone has other probabilities"),
        (classifying(first_query), "the order of the samples of a task matters"),
        (PREFERS_FIRST, "the numbering of the classes matters"),
        (solved_with(lambda rows: rows / rows.std(dim=1, keepdim=True)), "its facts say inductive"),
        (classifying(lambda p, _: p * torch.ones(3)), "fails on a GPU"),
        (classifying(equal_shots), "do not add up to 1"),
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
    check_method(PREFERS_FIRST, leave_out=["classes"])
    check_method(classifying(equal_shots), leave_out=["unequal shots"])
    with pytest.raises(FsbenchError, match=r"exponent must be a positive number, got -1\.0"):
        check_method(WrongGrid)
