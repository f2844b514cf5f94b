"""Tasks as a method sees them: named spaces, inner products, and products that gradients pass through."""

from typing import Any

import pytest
import torch

from fsbench.tasks.batch import gathered_gram, gram, product


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("function", [gram, lambda x: product(x, drawn(2, 4, 3))], ids=["gram", "product"])
def test_gradients_pass_through_products_on_the_cpu(function: Any) -> None:
    x = drawn(2, 5, 4).requires_grad_()
    torch.autograd.gradcheck(function, (x,))
    with torch.no_grad():
        torch.testing.assert_close(function(x.detach()), function(x))  # by NumPy, and by torch
    b = drawn(2, 4, 3).requires_grad_()
    product(drawn(2, 5, 4), b).sum().backward()
    assert b.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tasks", [1, 8, 19])
def test_inner_products_of_rows_of_a_table(dtype: torch.dtype, tasks: int) -> None:
    table = drawn(50, 6).to(dtype)
    index = torch.randint(50, (tasks, 9), generator=torch.Generator().manual_seed(0))
    expected = table[index] @ table[index].mT
    torch.testing.assert_close(gathered_gram(table, index), expected)
    out = torch.empty_like(expected)
    gram(table[index], out)
    torch.testing.assert_close(out, expected)
    table.requires_grad_()
    gathered_gram(table, index).sum().backward()
    assert table.grad is not None
