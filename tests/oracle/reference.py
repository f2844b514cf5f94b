"""Tasks to compare on, and the way from raw features to the algorithms of `tests.oracle.algorithms`, in float64."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import fsbench
from fsbench.methods.base import Context
from fsbench.methods.bavardage import RIDGE, Bavardage
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.oracle import algorithms
from tests.synthetic import Features

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Tasks:
    """Tasks of synthetic features, which methods and their slow versions solve."""

    support: NDArray[Any]  # (B, S, D)
    labels: Ints  # (B, S)
    query: NDArray[Any]  # (B, Q, D)

    @property
    def rows(self) -> NDArray[Any]:
        return np.concatenate([self.support, self.query], axis=1)

    def predict(self, name: str, **params: Any) -> Any:
        return fsbench.predict(name, self.support, self.labels, self.query, **params)

    def slowly(self, slow: Callable[..., Any]) -> Any:
        """What a function of (rows, labels, ways) gives for every task."""
        ways = int(self.labels.max()) + 1
        return np.stack([slow(rows, labels, ways) for rows, labels in zip(self.rows, self.labels, strict=True)])

    def agree(self, name: str, slow: Callable[..., Any], atol: float = 1e-5, **params: Any) -> Any:
        """Require the probabilities and the predictions of the slow version."""
        predicted, expected = self.predict(name, **params), self.slowly(slow)
        np.testing.assert_allclose(predicted, expected, atol=atol)
        assert (predicted.argmax(axis=2) == expected.argmax(axis=2)).mean() >= 0.995
        return predicted


UNEQUAL = (1, 20, 4, 9, 6)  # shots of the classes of a task, eight on average


def tasks_of(data: Features, count: int, unequal: Sequence[int] = (), **protocol: Any) -> Tasks:
    """The first tasks of a protocol; with unequal shots, so many of each class are kept of the largest number."""
    rules = {**protocol, **({"shots": max(unequal)} if unequal else {})}
    drawn = sample_tasks(TaskProtocol(**rules), data.novel.offsets, 3, np.arange(count))
    labels = drawn.support_labels  # 0 to K - 1, as often as there are shots
    kept = [n for n, k in enumerate(labels[0]) if not unequal or n // len(unequal) < unequal[k]]
    support = data.novel.features[drawn.support[:, kept]]
    return Tasks(support, labels[:, kept], data.novel.features[drawn.query])


def cl2n(x: NDArray[Any], mean: Floats) -> Floats:
    centred = x.astype(np.float64) - mean
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)


@dataclass
class Base:
    """Eq. 6 and the class-weighted matrix of the released program, by loops over classes and images."""

    mean: Floats
    scatter: Floats
    class_weighted: Floats
    per_class: float

    @classmethod
    def fit(cls, features: NDArray[Any], labels: NDArray[Any]) -> Self:
        mean = features.astype(np.float64).mean(axis=0)
        x = cl2n(features, mean)
        sums = []
        for c in np.unique(labels):
            rows = x[labels == c]
            centre = rows.mean(axis=0)
            total = np.zeros((x.shape[1], x.shape[1]))
            for row in rows:
                total += np.outer(row - centre, row - centre)
            sums.append(total)
        norms = [np.linalg.norm(total) for total in sums]
        weighted = np.mean([total / norm for total, norm in zip(sums, norms, strict=True)], axis=0) * np.mean(norms)
        return cls(mean, np.sum(sums, axis=0) / len(x), weighted, len(x) / len(sums))

    def sphere(self, x: Floats, method: Bavardage) -> Floats:
        """Samples of a task, sphered as the variant does it."""
        if method.variant != "released":
            return algorithms.sphere(x, self.scatter, method.sigma)
        matrix = (self.class_weighted + RIDGE * np.eye(x.shape[1])) / self.per_class
        return algorithms.sphere_in_span(x, np.linalg.inv(matrix), method.sigma)


def configured(base: Any, *, balanced: bool = False, **params: Any) -> Bavardage:
    """BAVARDAGE as `fsbench.predict` configures it with the same arguments."""
    return Bavardage.configure(Context(balanced=balanced, base=base), **params)


def bavardage(rows: NDArray[Any], labels: Ints, ways: int, *, base: Base, method: Bavardage) -> Floats:
    """Algorithm 1 from raw features (N, D) to probabilities (Q, K)."""
    x = cl2n(rows, base.mean)
    sphered = base.sphere(x, method)
    even = method.variant == "transport" or method.sizes == "equal"
    solved = algorithms.bavardage(x, sphered, labels, method, sinkhorn if even else None)[len(labels) :]
    if method.sizes == "auto" and algorithms.look_equal(solved):
        return algorithms.bavardage(x, sphered, labels, method, sinkhorn)[len(labels) :]
    return solved


def sinkhorn(logits: Floats, sizes: Floats | None = None, rounds: int = 100_000) -> Floats:
    """Scale exp(logits) (Q, K) to rows of 1 and columns of Q/K, or of the sizes given, in turns until nothing moves."""
    queries, ways = logits.shape
    target = np.full(ways, queries / ways) if sizes is None else sizes
    row, column = np.zeros((queries, 1)), np.zeros(ways)
    for _ in range(rounds):
        row = -np.logaddexp.reduce(logits + column, axis=1, keepdims=True)
        before, column = column, np.log(target) - np.logaddexp.reduce(logits + row, axis=0)
        if np.abs(column - before).max() < 1e-8:
            break
    return np.exp(logits + row + column)
