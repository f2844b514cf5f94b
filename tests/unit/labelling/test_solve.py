"""Answers, expectation, near-duplicates and suggestions against slow loops and scipy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from fsbench.labelling import solve
from fsbench.labelling.images import class_names
from fsbench.labelling.solve import NEAR, Solver, answers, calibrate, folds, hide_in_turn, near_duplicates, suggest
from fsbench.reporter import Reporter

Clusters = tuple[torch.Tensor, torch.Tensor, np.ndarray]


def clusters(ways: int = 4, shots: int = 3, queries: int = 90, spread: float = 0.3, seed: int = 0) -> Clusters:
    """Rows of separated classes, labelled ones first, their labels, and the true labels of the others."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(ways), shots)
    true = random.integers(ways, size=queries)
    centres = 3 + 2 * random.standard_normal((ways, 24))
    every = np.concatenate([labels, true])
    rows = centres[every] + spread * random.standard_normal((len(every), 24))
    return torch.from_numpy(rows).float(), torch.from_numpy(labels), true


@given(st.lists(st.integers(0, 5), min_size=2, max_size=60))
def test_every_image_is_hidden_once_and_a_class_never_whole(values: list[int]) -> None:
    _, labels = np.unique(values, return_inverse=True)
    parts = folds(labels)
    sizes = np.bincount(labels)
    hidden = np.concatenate([*parts, np.zeros(0, int)]).astype(int)
    assert sorted(hidden) == [row for row, label in enumerate(labels) if sizes[label] > 1]
    for part in parts:
        assert (np.bincount(labels[part], minlength=len(sizes)) < sizes).all()


@pytest.mark.parametrize(("right", "count"), [(0, 7), (138, 150), (9, 9), (1, 2)])
def test_the_interval_is_that_of_wilson(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(method="wilson")
    assert solve.wilson(right / count, count) == pytest.approx((expected.low, expected.high), abs=1e-4)


@pytest.mark.parametrize(
    ("method", "prior"),
    [("lda", lambda a, b: a**2), ("bavardage:weighted", lambda a, b: 6 * (a + 0.7) ** 2 + 40 * (b - 0.5) ** 2)],
)
def test_the_calibration_has_the_largest_posterior(method: str, prior: Callable[[float, float], float]) -> None:
    random = np.random.default_rng(0)
    odds = random.normal(4, 5, size=4000)
    right = random.random(4000) < 1 / (1 + np.exp(0.5 - 0.4 * odds))  # as methods are: too sure
    weights = random.random(4000)

    def loss(values: tuple[float, float]) -> float:
        total, slip = prior(*values), 1 / 4002
        for one, good, weight in zip(odds, right, weights * 4000 / weights.sum(), strict=True):
            share = 1 / (1 + np.exp(-values[0] - values[1] * one))
            target = 1 - slip if good else slip
            total -= weight * (target * np.log(share) + (1 - target) * np.log1p(-share))
        return total

    solver = Solver(method)
    offset, slope = calibrate(odds, right, weights, solver)
    assert (offset, slope) == pytest.approx((-0.5, 0.4), rel=0.2)
    best = loss((offset, slope))
    assert all(loss((offset + da, slope + db)) > best for da, db in ((0.02, 0), (-0.02, 0), (0, 0.01), (0, -0.01)))
    assert calibrate(odds[:0], right[:0], weights[:0], solver)[1] < 1  # where nothing was hidden
    few = calibrate(np.array([9.0, 8.0, 7.0]), np.array([True, True, True]), np.ones(3), solver)
    assert np.isfinite(few).all()


def test_blocks_of_queries_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels, true = clusters(ways=5, queries=101)
    whole = answers(Solver("simpleshot:L2N"), rows, labels, 5)
    monkeypatch.setattr(solve, "_LEAST_MEMORY", 1)
    monkeypatch.setattr(solve, "_COPIES", 50)  # so that blocks have 11 queries
    in_blocks = answers(Solver("simpleshot:L2N"), rows, labels, 5)
    np.testing.assert_array_equal(in_blocks.labels, whole.labels)
    np.testing.assert_allclose(in_blocks.odds, whole.odds, rtol=1e-3)
    np.testing.assert_allclose(in_blocks.outlier, whole.outlier, atol=1e-5)
    assert (whole.labels[:, 0] == true).mean() > 0.95


@pytest.mark.parametrize("method", ["bavardage:weighted", "soft-kmeans", "simpleshot:L2N"])
def test_hidden_images_come_back_and_a_wrong_label_does_not(method: str) -> None:
    rows, labels, true = clusters(queries=250)
    wrong = labels.clone()
    wrong[0] = 1
    hidden, back = hide_in_turn(Solver(method), rows, wrong, 4)
    assert sorted(hidden) == [*range(12)]
    assert hidden[back.labels[:, 0] != wrong.numpy()[hidden]] == [0]
    found = answers(Solver(method), rows, labels, 4)
    assert (found.labels[:, 0] == true).mean() > 0.95
    first, second = found.confidence((-0.5, 0.3)).T
    assert ((first >= second) & (second >= 0) & (first + second <= 1 + 1e-9)).all()


def test_near_duplicates_are_those_of_a_slow_search() -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((300, 200))
    for copy, original in ((40, 3), (41, 3), (250, 120), (299, 298)):
        rows[copy] = rows[original] + 0.02 * random.standard_normal(200)
    rows[100] = rows[99] + 0.5 * random.standard_normal(200)  # similar, but no duplicate
    table = torch.from_numpy(rows).float()
    centred = rows - rows.mean(axis=0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    expected = {}
    for one in range(300):
        cosines = [units[one] @ units[other] for other in range(one)]
        if cosines and max(cosines) >= NEAR:
            expected[one] = int(np.argmax(cosines))
    assert near_duplicates(table, block=64) == expected
    assert expected.keys() == {40, 41, 250, 299}


def test_suggestions_are_greedy_and_of_different_kinds() -> None:
    rows, _, true = clusters(ways=3, shots=1, queries=60, seed=2)
    confidence = np.where(true == 0, 0.9, 0.4) + 0.01 * np.random.default_rng(0).random(60)
    chosen = suggest(rows[3:], confidence, 6)
    x = solve.directions(rows[3:]).numpy().astype(float)
    similarity = np.maximum(x @ x.T, 0) ** 2
    expected: list[int] = []
    for _ in range(6):
        gains = [
            -1.0
            if one in expected
            else sum(
                (1 - confidence[q]) * max(0, similarity[q, one] - max([similarity[q, s] for s in expected], default=0))
                for q in range(60)
            )
            for one in range(60)
        ]
        expected.append(int(np.argmax(gains)))
    assert chosen == expected
    assert {true[one] for one in chosen[:2]} == {1, 2}  # both doubtful classes, before any of them again


def test_a_class_of_one_image_that_is_named_like_another_is_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    class_names(["bear", *["Bear"] * 4, *["cat"] * 4], "", Reporter())
    assert "bear has one labelled image and Bear a similar name" in capsys.readouterr().err
