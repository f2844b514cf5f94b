"""Pieces that several methods share."""

import pytest
import torch

from fsbench.methods.bavardage import clamp_by_products, clamp_eigenvalues
from fsbench.methods.paddle import scale_to_queries
from fsbench.methods.transport import equal_sizes
from fsbench.tasks.batch import TaskBatch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 10.0])
@pytest.mark.parametrize(("ways", "queries"), [(2, 1), (5, 75), (50, 20)])
def test_classes_get_equal_sizes(dtype: torch.dtype, sharpness: float, ways: int, queries: int) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = sharpness * torch.randn(4, ways, queries, generator=generator, dtype=torch.float64)
    logits[0, 1:] -= 2 * sharpness  # everything wants to be in class 0
    plan, potentials = equal_sizes(logits.to(dtype), torch.zeros(4, ways, 1, dtype=dtype), 60)
    tolerance = {torch.float32: 2e-3, torch.float64: 1e-9}[dtype]
    sizes = torch.full((4, ways), queries / ways, dtype=dtype)
    torch.testing.assert_close(plan.sum(dim=2), sizes, atol=tolerance * queries / ways, rtol=0)
    torch.testing.assert_close(plan.sum(dim=1), torch.ones(4, queries, dtype=dtype))
    torch.testing.assert_close(plan, torch.softmax(logits.to(dtype) + potentials, dim=1))
    hard = 1e5 * logits.to(dtype)  # which gives numbers, too
    assert all(part.isfinite().all() for part in equal_sizes(hard, torch.zeros(4, ways, 1, dtype=dtype), 20))


def test_few_steps_suffice_and_never_overshoot() -> None:
    """The dual function of the transport falls with every step, from a start far away."""
    logits = 20 * torch.randn(30, 5, 75, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    start = 50 * torch.randn(30, 5, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    values = []
    for steps in range(25):
        _, v = equal_sizes(logits, start, steps)
        values.append(torch.logsumexp(logits + v, dim=1).sum(dim=1) - 15 * v.sum(dim=(1, 2)))
    fall = torch.stack(values).diff(dim=0)
    assert (fall < 1e-8).all()
    assert (fall[0] < -1).all()


def test_scaling_survives_ranges_that_are_next_to_nothing() -> None:
    rows = torch.rand(1, 12, 4)
    rows[0, 2:, 1] = 1e-30 * torch.rand(10)
    rows[0, 2:, 2] = 0.5
    scaled = scale_to_queries(TaskBatch(rows, torch.tensor([[0, 1]]), 2))
    assert torch.isfinite(scaled.square().sum())
    assert scaled[0, 2:, [0, 1]].amax() - scaled[0, 2:, [0, 1]].amin() <= 2
    torch.testing.assert_close(scaled[0, :2, 2], rows[0, :2, 2] - 0.5)


@pytest.mark.parametrize("spread", [0.5, 2.0, 5.0])
def test_the_spectral_minimum_is_the_same_by_eigenvalues_and_by_products(spread: float) -> None:
    generator = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(4, 30, 30, dtype=torch.float64, generator=generator))[0]
    values = 10 ** (spread * torch.rand(4, 30, dtype=torch.float64, generator=generator))
    values[0, :3] = 0.0
    limit = float(values[1, 7])  # an eigenvalue that is the limit itself, too
    matrix = (turn * values[:, None, :]) @ turn.mT
    factor = torch.randn(4, 30, 30, dtype=torch.float64, generator=generator).tril()
    expected = factor @ (turn * values.clamp_max(limit)[:, None, :]) @ turn.mT @ factor.mT
    for clamp in (clamp_eigenvalues, clamp_by_products):
        torch.testing.assert_close(clamp(factor, matrix, limit), expected, rtol=0, atol=1e-5 * limit)
