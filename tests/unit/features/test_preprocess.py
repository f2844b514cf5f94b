import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import apply_rows, power


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


def test_unknown_chains_get_the_nearest_name() -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'CL2N'"):
        apply_rows("CL2", torch.ones(1, 5))
    with pytest.raises(FsbenchError, match="needs the mean of the base"):
        apply_rows("CL2N", torch.ones(1, 5))
