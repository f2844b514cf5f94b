"""What must hold for every method, whatever the task."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fsbench
from fsbench.methods.base import Context
from fsbench.methods.centroids import Clusters, inner_products
from fsbench.methods.registry import METHODS, method_class
from fsbench.tasks.batch import TaskBatch, by_name
from fsbench.testing import check_method
from tests.synthetic import make_features

DATA = make_features(seed=11)
BASE = DATA.statistics
TEXT = np.random.default_rng(2).normal(size=(50, 48)) + 1  # of the classes of a task, for methods that use it
SHORTER: dict[str, dict[str, Any]] = {  # schedules of many small steps: fewer, and larger ones
    "entropy-min": {"variant": "head", "steps": 25, "rate": 1e-3},
    "tim-gd": {"steps": 25, "rate": 1e-3},
    "tim-adm": {"steps": 15},  # with fewer queries than classes it does not settle, and magnifies rounding errors
    "alpha-tim": {"steps": 25, "rate": 1e-3},
    "alpha-am": {"steps": 12, "rate": 1e-3},
    "am": {"steps": 12, "rate": 1e-3},
    "ilpc": {"steps": 20},
    "protolp": {"rounds": 10},
    "em-dirichlet": {"inner_steps": 5},
}
FEWER: dict[str, dict[str, Any]] = {  # steps, where each of them is like the one before
    **{name: {"steps": 8} for name in ("baseline", "baseline++", "paddle", "tim-gd", "alpha-tim", "entropy-min")},
    **{name: {"steps": 4} for name in ("am", "alpha-am", "ilpc")},
    "bms": {"steps": 3, "passes": 5},
    "protolp": {"rounds": 3},
    "pt-map": {"epochs": 2},
}
DEPENDS_ON_AXES = {
    # Adam gives every coordinate its own step size.
    *("baseline", "baseline++", "entropy-min", "tim-gd", "alpha-tim", "alpha-am", "am"),
    # Pre-processing acts on each coordinate: powers (PT-MAP, BMS, protoLP, iLPC) and ranges (PADDLE).
    *("pt-map", "bms", "protolp", "ilpc", "paddle"),
    *("transclip", "stata"),  # covariances are diagonal
}
TOLD_BY_ORDER = {"zlap", "transclip", "stata"}  # which of two equal queries is a neighbour, and gets its share
ON_FEATURES = [name for name in METHODS if not method_class(name).info.network_for(SHORTER.get(name, {}))]
CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, SHORTER.get(name, {})) for name in ON_FEATURES),
    ("bavardage", {"variant": "released"}),
    ("bavardage", {"variant": "transport"}),
    ("bavardage", {"variant": "weighted"}),
    ("bavardage", {"variant": "weighted", "sizes": "free"}),
    ("bavardage", {"stage": "vb"}),
    ("bavardage", {"tau": "learned"}),
    ("bavardage", {"sigma": float("inf")}),
    ("bavardage", {"variant": "released", "sigma": float("inf")}),
    ("protolp", {"graph": "anchor", "rounds": 10}),
    ("lda", {"variant": "ridge"}),
    ("lda", {"scatter": "released"}),
    ("simpleshot", {"norm": "UN"}),
    ("simpleshot", {"norm": "L2N"}),
    ("laplacianshot", {"weight": 0.7, "rectify": True}),
    ("em-dirichlet", {"variant": "hard", "inner_steps": 5}),
]
METHOD = pytest.mark.parametrize(("name", "params"), CONFIGURATIONS, ids=lambda value: str(value))
ROTATED = pytest.mark.parametrize(
    ("name", "params"), [one for one in CONFIGURATIONS if one[0] not in DEPENDS_ON_AXES | TOLD_BY_ORDER], ids=str
)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Support with unequal class counts, queries, from the synthetic novel classes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ways = draw(st.integers(2, 6))
    batch, queries = draw(st.integers(1, 3)), draw(st.integers(1, 25))
    labels = np.concatenate([np.arange(ways), rng.integers(0, ways, size=draw(st.integers(0, 8)))])
    labels = np.stack([rng.permutation(labels) for _ in range(batch)])
    support = np.empty((batch, labels.shape[1], 48))
    query = np.empty((batch, queries, 48))
    for b in range(batch):
        classes = rng.permutation(10)[:ways]
        first, last = DATA.novel.offsets[classes], DATA.novel.offsets[classes + 1]
        support[b] = DATA.novel.features[rng.integers(first[labels[b]], last[labels[b]])]
        truth = rng.integers(0, ways, size=queries)
        query[b] = DATA.novel.features[rng.integers(first[truth], last[truth])]
    return support, labels, query


def run(
    name: str, params: dict[str, Any], support: Any, labels: Any, query: Any, base: Any = BASE, text: Any = TEXT
) -> np.ndarray:
    text = text[: labels.max() + 1] if method_class(name).info.text else None
    return fsbench.predict(name, support, labels, query, base=base, text=text, **params)


@METHOD
def test_methods_pass_the_check_for_contributors(name: str, params: dict[str, Any]) -> None:
    check_method(method_class(name), **{**params, **FEWER.get(name, {})})


@METHOD
@given(task=tasks(), seed=st.integers(0, 1000), balanced=st.booleans())
@settings(max_examples=10, deadline=None)
def test_order_and_names_do_not_matter(name: str, params: dict[str, Any], task: Any, seed: int, balanced: bool) -> None:
    """The order of samples, and the names of classes."""
    support, labels, query = task
    rng, params = np.random.default_rng(seed), {**params, "balanced": balanced}
    query = query + 1e-3 * rng.random(query.shape) if name in TOLD_BY_ORDER else query
    expected = run(name, params, support, labels, query)
    assert expected.shape == (*query.shape[:2], labels.max() + 1)
    np.testing.assert_allclose(expected.sum(axis=2), 1, atol=1e-6)
    order, shots = rng.permutation(query.shape[1]), rng.permutation(support.shape[1])
    renamed = rng.permutation(labels.max() + 1)
    text = TEXT[np.argsort(renamed)]
    shuffled = run(name, params, support[:, shots], renamed[labels[:, shots]], query[:, order], text=text)
    allowed = 1e-5
    if np.abs(shuffled[:, :, renamed] - expected[:, order]).max() > allowed:  # twice what other last digits do
        nearby = [support * (1 + 1e-15 * rng.normal(size=support.shape)) for _ in range(6)]
        allowed = 2 * max(np.abs(run(name, params, other, labels, query) - expected).max() for other in nearby)
    np.testing.assert_allclose(shuffled[:, :, renamed], expected[:, order], atol=allowed)


@ROTATED
@given(task=tasks(), seed=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_rotating_all_features_changes_nothing(name: str, params: dict[str, Any], task: Any, seed: int) -> None:
    support, labels, query = task
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(48, 48)))[0]
    turned = fsbench.BaseStatistics.fit(DATA.base.features.astype(np.float64) @ rotation, DATA.base.labels)
    expected = run(name, params, support, labels, query)
    found = run(name, params, support @ rotation, labels, query @ rotation, turned, TEXT @ rotation)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # base features are stored in float32


@METHOD
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["coincident", "duplicates", "base mean", "one query", "zeros", "many ways", "huge"])
def test_degenerate_tasks(name: str, params: dict[str, Any], balanced: bool, dtype: torch.dtype, case: str) -> None:
    rng = np.random.default_rng(0)
    ways = 50 if case == "many ways" else 5
    labels = np.tile(np.arange(ways), (2, 2))
    support = rng.random((2, 2 * ways, 48)) * 2
    query = rng.random((2, 1 if case == "one query" else 30, 48)) * 2
    if case == "coincident":
        support[:] = support[:, :1]
    elif case == "duplicates":
        query[:] = support[:, :1]
    elif case == "base mean":
        query[:, ::2] = BASE.mean.numpy()
        support[0, 0] = BASE.mean.numpy()
    elif case == "zeros":
        support[:], query[:] = 0.0, 0.0
    elif case == "huge":
        support, query = support * 1e12, query * 1e12
    method = method_class(name).configure(Context(balanced=balanced, base=BASE), **params)
    rows = torch.from_numpy(np.concatenate([support, query], axis=1)).to(dtype)
    spaces = by_name(method.embed(rows.reshape(-1, 48), BASE))
    embedded = {space: one.reshape(*rows.shape[:2], -1) for space, one in spaces.items()}
    text = torch.nn.functional.normalize(torch.from_numpy(TEXT[:ways]).to(dtype)).expand(2, -1, -1)
    p = method.classify(TaskBatch(embedded, torch.from_numpy(labels), ways, text))
    assert torch.isfinite(p).all()
    torch.testing.assert_close(p.sum(dim=2), torch.ones_like(p[:, :, 0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dimension", [12, 100])  # through the features, and through the Gram matrix
def test_centroids_are_those_of_the_weighted_samples(dimension: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 26, dimension, dtype=torch.float64, generator=generator)
    support = torch.nn.functional.one_hot(torch.tensor([[0, 1, 2, 0, 1, 1], [2, 2, 1, 0, 0, 1]])).mT.double()
    assigned = torch.rand(2, 3, 20, dtype=torch.float64, generator=generator)
    weight = torch.rand(2, 3, 1, dtype=torch.float64, generator=generator) + 1
    clusters = Clusters(inner_products(x), support)
    similarity, squared = clusters.centroids(assigned, weight)
    for b in range(2):
        for k in range(3):
            shares = [*support[b, k], *assigned[b, k]]
            m = sum(o * row for o, row in zip(shares, x[b], strict=True)) / weight[b, k]
            torch.testing.assert_close(similarity[b, k], x[b, 6:] @ m)
            torch.testing.assert_close(squared[b, k, 0], (m * m).sum())
            torch.testing.assert_close(clusters.count(assigned)[b, k, 0], sum(shares))
