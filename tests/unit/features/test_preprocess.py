from __future__ import annotations

import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import apply_rows, centre_parts, centre_task, power, power_rows


def unit(x: np.ndarray) -> np.ndarray:
    return np.stack([row / np.sqrt((row**2).sum()) for row in x])


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(9, 6))


def test_row_chains(x: np.ndarray) -> None:
    mean = np.arange(6) / 10
    rows, centre = torch.from_numpy(x), torch.from_numpy(mean)
    np.testing.assert_array_equal(apply_rows("UN", rows), x)
    np.testing.assert_allclose(apply_rows("L2N", rows), unit(x), rtol=1e-12)
    np.testing.assert_allclose(apply_rows("CL2N", rows, centre), unit(x - mean), rtol=1e-12)
    assert torch.equal(apply_rows("CL2N", centre[None], centre), torch.zeros(1, 6).double())  # not NaN
    assert power(torch.zeros(1)).item() == pytest.approx(1e-3)


def test_pt_centres_support_and_queries_apart(x: np.ndarray) -> None:
    x = np.abs(x)
    y = unit(np.sqrt(x + 1e-6))
    expected = np.concatenate([unit(y[:4] - y[:4].mean(axis=0)), unit(y[4:] - y[4:].mean(axis=0))])
    np.testing.assert_allclose(centre_parts(power_rows(torch.from_numpy(x)[None]), 4)[0], expected, rtol=1e-10)


def test_plc_centres_the_whole_task_and_takes_signed_features(x: np.ndarray) -> None:
    y = unit(np.sign(x) * np.sqrt(np.abs(x) + 1e-6))
    expected = unit(y - y.mean(axis=0))
    np.testing.assert_allclose(centre_task(power_rows(torch.from_numpy(x)[None]))[0], expected, rtol=1e-10)


def test_unknown_chains_get_the_nearest_name() -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'CL2N'"):
        apply_rows("CL2", torch.ones(1, 5))
    with pytest.raises(FsbenchError, match="needs the mean of the base"):
        apply_rows("CL2N", torch.ones(1, 5))
