"""Baseline, entropy-min, TIM, alpha-TIM and alpha-AM against the loop versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fsbench
from fsbench.methods.alpha_am import AlphaAm
from fsbench.methods.base import Context
from fsbench.methods.registry import method_class
from fsbench.tasks.batch import TaskBatch
from tests.oracle import rivals_gradients as rivals
from tests.oracle.algorithms import softmax
from tests.oracle.test_bavardage import tasks_of
from tests.synthetic import Features, make_features

SIZES = pytest.mark.parametrize(("shots", "ways", "queries"), [(1, 5, 30), (5, 5, 30), (3, 4, 20), (1, 2, 9)])
SETTINGS = pytest.mark.parametrize("balanced", [False, True])
TASKS = 2


def assert_agrees(found: np.ndarray, expected: np.ndarray) -> None:
    """Probabilities to 10⁻³ and the same predictions."""
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert (found.argmax(axis=-1) == expected.argmax(axis=-1)).mean() >= 0.995


@pytest.mark.parametrize("order", [1.0, 2.0, 7.0, 0.5])
@pytest.mark.parametrize("terms", [(1.0, 10.0, 1.0), (0.3, 0.0, 2.0), (0.0, 1.0, 0.0)])
def test_the_gradients_of_the_loops_are_those_of_the_losses(
    features: Features, order: float, terms: tuple[float, float, float]
) -> None:
    support, labels, query, _ = tasks_of(features, 1, shots=2, ways=3, queries=8)
    x = rivals.l2n(np.concatenate([support[0], query[0]]))
    w = rivals.means(x, labels[0], 3) + 0.1

    def loss(heads: Any) -> Any:
        p = rivals.complex_softmax(rivals.head_logits(x, heads, 15.0))
        return rivals.information(p, labels[0], terms, order)

    found = rivals.head_gradient(x, labels[0], w, 15.0, terms, order)
    np.testing.assert_allclose(found, rivals.derivative(loss, w), atol=1e-9)


@SIZES
@SETTINGS
def test_baselines(features: Features, balanced: bool, shots: int, ways: int, queries: int) -> None:
    alpha = None if balanced else 2.0
    support, labels, query, _ = tasks_of(features, TASKS, shots=shots, ways=ways, queries=queries, alpha=alpha)
    plain = fsbench.predict("baseline", support, labels, query, balanced=balanced)
    cosine = fsbench.predict("baseline++", support, labels, query, balanced=balanced)
    for b in range(TASKS):
        x, asked = support[b].astype(np.float64), query[b].astype(np.float64)
        w = rivals.head(x, labels[b], ways, terms=(1, 0, 0), rate=1e-3, steps=100)
        assert_agrees(plain[b], softmax(rivals.head_logits(asked, w, 15.0)))
        assert_agrees(cosine[b], softmax(15.0 * rivals.cosines(asked, w)))


@SIZES
@SETTINGS
@pytest.mark.parametrize("name", ["entropy-min:head", "tim-gd", "alpha-tim"])
def test_heads_with_information(
    features: Features, name: str, balanced: bool, shots: int, ways: int, queries: int
) -> None:
    """With the parameters that the settings call for, and steps that are large enough to leave the class means."""
    order = {1: 2.0, 3: 5.0, 5: 7.0}[shots] if name == "alpha-tim" else 1.0
    marginal = {"entropy-min:head": 0.0, "tim-gd": 10.0 if balanced else 1.0, "alpha-tim": 1.0}[name]
    alpha = None if balanced else 2.0
    support, labels, query, _ = tasks_of(features, TASKS, shots=shots, ways=ways, queries=queries, alpha=alpha)
    found = fsbench.predict(name, support, labels, query, balanced=balanced, rate=1e-3, steps=60)
    for b in range(TASKS):
        x = rivals.l2n(np.concatenate([support[b], query[b]]))
        w = rivals.head(x, labels[b], ways, terms=(1, marginal, 1), order=order, rate=1e-3, steps=60)
        assert_agrees(found[b], softmax(rivals.head_logits(x[len(labels[b]) :], w, 15.0)))


@pytest.mark.parametrize(("name", "order"), [("tim-gd", 1.0), ("alpha-tim", 2.0)])
def test_the_whole_schedule(features: Features, name: str, order: float) -> None:
    """A thousand steps, as the defaults have it, in float64 and in the engine's float32."""
    support, labels, query, _ = tasks_of(features, 1, queries=20)
    found = fsbench.predict(name, support, labels, query)
    method = method_class(name).configure(Context(balanced=False))
    rows = torch.from_numpy(np.concatenate([support, query], axis=1)).float()
    with torch.inference_mode():
        short = method.classify(TaskBatch(method.embed(rows, None), torch.from_numpy(labels), 5)).numpy()
    x = rivals.l2n(np.concatenate([support[0], query[0]]))
    w = rivals.head(x, labels[0], 5, terms=(1, 1, 1), order=order, rate=1e-4, steps=1000)
    expected = softmax(rivals.head_logits(x[5:], w, 15.0))
    assert_agrees(found[0], expected)
    assert_agrees(short[0], expected)


@SIZES
@SETTINGS
def test_tim_adm(features: Features, balanced: bool, shots: int, ways: int, queries: int) -> None:
    alpha = None if balanced else 2.0
    support, labels, query, _ = tasks_of(features, TASKS, shots=shots, ways=ways, queries=queries, alpha=alpha)
    found = fsbench.predict("tim-adm", support, labels, query, balanced=balanced)
    for b in range(TASKS):
        x = rivals.l2n(np.concatenate([support[b], query[b]]))
        assert_agrees(found[b], rivals.tim_adm(x, labels[b], ways, lam=0.1, b=1.0, c=0.1, steps=150))


def test_tim_adm_with_more_samples_than_features() -> None:
    data = make_features(dimension=12, seed=5)
    support, labels, query, _ = tasks_of(data, TASKS, shots=2, queries=40)
    found = fsbench.predict("tim-adm", support, labels, query)
    for b in range(TASKS):
        x = rivals.l2n(np.concatenate([support[b], query[b]]))
        assert_agrees(found[b], rivals.tim_adm(x, labels[b], 5, lam=0.1, b=1.0, c=0.1, steps=150))


@SETTINGS
@pytest.mark.parametrize(
    ("chain", "shots", "ways", "queries"), [("PLC", 1, 3, 12), ("L2N", 1, 3, 12), ("PLC", 5, 2, 8), ("L2N", 2, 4, 9)]
)
def test_alpha_am(balanced: bool, chain: str, shots: int, ways: int, queries: int) -> None:
    """Small tasks: the reference differentiates numerically in every coordinate."""
    data = make_features(dimension=6, seed=2)
    alpha = None if balanced else 2.0
    support, labels, query, _ = tasks_of(data, 2, shots=shots, ways=ways, queries=queries, alpha=alpha)
    many = shots > 1 if balanced else shots >= 5
    graph: dict[str, Any] = {"k": 10 if many else 20, "alpha": 0.9 if many else 0.8}
    if shots == 1:
        graph["k"] = 6  # fewer than all
    found = fsbench.predict(
        "am" if balanced else "alpha-am", support, labels, query,
        balanced=balanced, chain=chain, steps=8, rate=3e-3, neighbours=graph["k"],
    )  # fmt: skip
    order = 1.0 if balanced else 5.0 if many else 2.0
    for b in range(2):
        rows = np.concatenate([support[b], query[b]])
        x = rivals.plc(rows) if chain == "PLC" else rivals.l2n(rows)
        terms = (1.0, 10.0 if balanced else 1.0, 1.0)
        expected = rivals.alpha_am(x, labels[b], ways, **graph, terms=terms, order=order, steps=8, rate=3e-3)
        np.testing.assert_allclose(found[b], expected, atol=1e-6)


@pytest.mark.parametrize("shots", [1, 5])
def test_alpha_am_agrees_with_automatic_differentiation(features: Features, shots: int) -> None:
    """Larger tasks, more steps: PyTorch's own gradients and optimiser."""
    support, labels, query, _ = tasks_of(features, 1, shots=shots, queries=40)
    found = fsbench.predict("alpha-am", support, labels, query, steps=30, rate=1e-3)
    method = AlphaAm.configure(Context(balanced=False, shots=shots))
    x = torch.from_numpy(rivals.plc(np.concatenate([support[0], query[0]])))
    expected = _automatic(x, torch.from_numpy(labels[0]), method, steps=30, rate=1e-3)
    assert_agrees(found[0], expected.numpy())


def _automatic(x: torch.Tensor, labels: torch.Tensor, method: AlphaAm, steps: int, rate: float) -> torch.Tensor:
    shots, n = len(labels), 5 + len(x)
    diagonal = torch.eye(n, dtype=torch.bool)
    mu = torch.stack([x[:shots][labels == k].mean(dim=0) for k in range(5)]).requires_grad_()
    gate = torch.ones(n, n, dtype=x.dtype, requires_grad=True)
    emphasis = torch.full((n, n), method.propagation, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.Adam([mu, gate, emphasis], lr=rate)
    for _ in range(steps):
        nodes = torch.cat([mu, x])
        squared = (nodes[:, None] - nodes[None]).square().sum(dim=2)
        distance = torch.where(squared > 0, squared.where(squared > 0, 1.0).sqrt(), 0.0)
        exponent = gate * distance / distance.std()
        ranked = exponent.detach().masked_fill(diagonal, torch.inf)
        kept = ranked <= ranked.sort(dim=1).values[:, method.neighbours - 1 : method.neighbours] * (1 + 1e-5)
        kept[:5] = False
        affinity = torch.where(kept, torch.exp(-exponent), 0.0)
        w = emphasis * (affinity + affinity.T) / 2
        root = (w.sum(dim=1) + 1e-12) ** -0.5
        system = torch.eye(n, dtype=x.dtype) - method.propagation * root[:, None] * w * root
        p = torch.softmax(method.temperature * torch.linalg.solve(system, torch.eye(n, 5, dtype=x.dtype))[5:], dim=1)
        fit = -torch.log(p[torch.arange(shots), labels] + 1e-12).mean()
        queries, a = p[shots:], method.order
        even = (1 - (queries.mean(dim=0) ** a).sum()) / (a - 1)
        sure = ((1 - ((queries + 1e-12) ** a).sum(dim=1)) / (a - 1)).mean()
        optimiser.zero_grad()
        (fit - even + sure).backward()
        optimiser.step()
    return queries.detach()


def test_scaling_the_weights_of_tim_does_not_change_its_path(features: Features) -> None:
    """Adam divides by the size of the gradients, up to its ε."""
    support, labels, query, _ = tasks_of(features, 6)
    one = fsbench.predict("tim-gd", support, labels, query, balanced=True, steps=200)
    other = fsbench.predict(
        "tim-gd", support, labels, query, cross_entropy=0.1, marginal=1.0, conditional=0.1, steps=200
    )
    np.testing.assert_allclose(one, other, atol=1e-5)
    third = fsbench.predict("tim-gd", support, labels, query, balanced=False, steps=200)
    assert np.abs(one - third).max() > 1e-2


def test_tim_without_marginal_entropy_is_entropy_min(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 6)
    one = fsbench.predict("tim-gd", support, labels, query, marginal=0.0, steps=200)
    np.testing.assert_array_equal(one, fsbench.predict("entropy-min:head", support, labels, query, steps=200))


def test_alpha_tim_approaches_tim_at_order_one(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 6)
    tim = fsbench.predict("tim-gd", support, labels, query, steps=200)
    near = fsbench.predict("alpha-tim", support, labels, query, order=1.0001, steps=200)
    np.testing.assert_allclose(near, tim, atol=1e-4)
    assert np.abs(near - tim).max() > 0
    there = fsbench.predict("alpha-tim", support, labels, query, order=1.0, steps=200)
    np.testing.assert_array_equal(there, tim)
    far = fsbench.predict("alpha-tim", support, labels, query, order=2.0, steps=200)
    assert np.abs(far - tim).max() > 1e-2


def test_a_lost_support_sample_no_longer_pulls() -> None:
    """p_y far below ε: with −log(p_y + ε) the sample has no weight, and the head stays at the class means."""
    support = np.array([[[0.0, 0.0], [40.0, 0.0], [40.0, 0.0], [30.0, 0.0]]])
    labels = np.array([[0, 0, 1, 1]])  # the second sample lies beyond the mean of the other class
    query = np.array([[[27.5, 1.0], [27.51, 0.0]]])  # halfway between the means, where any move of them shows
    found = fsbench.predict("baseline", support, labels, query)
    w = rivals.head(support[0], labels[0], 2, terms=(1, 0, 0), rate=1e-3, steps=100)
    np.testing.assert_allclose(w, rivals.means(support[0], labels[0], 2), atol=1e-9)
    np.testing.assert_allclose(found[0], softmax(rivals.head_logits(query[0], w, 15.0)), atol=1e-9)
