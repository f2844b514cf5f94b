from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import TSNE
from sklearn.manifold._t_sne import _joint_probabilities

from fsbench.evaluation.task_views import divergence, joint_probabilities, perplexity_of, tsne


def clusters(samples: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 30)) + 1.5 * rng.normal(size=(3, 30))[np.arange(samples) % 3]


@pytest.mark.parametrize(("samples", "perplexity"), [(12, 3.0), (78, 25.0), (90, 30.0)])
def test_neighbourhoods_equal_those_of_scikit_learn(samples: int, perplexity: float) -> None:
    x = clusters(samples)
    distances = squareform(pdist(x, "sqeuclidean")).astype(np.float32)
    expected = squareform(_joint_probabilities(distances, perplexity, 0))
    np.testing.assert_allclose(joint_probabilities(x, perplexity), expected, atol=2e-7)


@pytest.mark.parametrize(("samples", "seed"), [(20, 0), (78, 1), (78, 2), (120, 3)])
def test_the_divergence_is_as_small_as_that_of_scikit_learn(samples: int, seed: int) -> None:
    x = clusters(samples, seed)
    perplexity = perplexity_of(samples)
    peer = TSNE(perplexity=perplexity, init="pca", method="exact", random_state=0)
    peer.fit(x)
    found, slope = divergence(joint_probabilities(x, perplexity), tsne(x))
    assert found < 1.03 * peer.kl_divergence_
    assert np.abs(slope).max() < 1e-3  # at a minimum


def test_the_slope_is_that_of_the_divergence() -> None:
    target = joint_probabilities(clusters(15), 4.0)
    start = np.random.default_rng(1).normal(size=30)

    def value(y: np.ndarray) -> float:
        return divergence(target, y.reshape(-1, 2))[0]

    slope = approx_fprime(start, value, 1e-7)
    np.testing.assert_allclose(divergence(target, start.reshape(-1, 2))[1].ravel(), slope, atol=1e-6)


def test_the_same_samples_give_the_same_picture() -> None:
    x = clusters(40)
    np.testing.assert_array_equal(tsne(x), tsne(x.copy()))


@pytest.mark.parametrize("x", [np.ones((9, 4)), np.repeat(np.eye(3), 4, axis=0), np.arange(8.0)[:, None]])
def test_degenerate_samples_stay_finite(x: np.ndarray) -> None:
    y = tsne(x)
    assert y.shape == (len(x), 2)
    assert np.isfinite(y).all()
