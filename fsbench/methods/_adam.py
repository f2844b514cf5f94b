"""Adam without autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

FIRST_DECAY = 0.9  # β₁
SECOND_DECAY = 0.999  # β₂
EPSILON = 1e-8


class Adam:
    """Adam with bias correction on one tensor, which it changes in place.

    Kingma, Ba: "Adam: A Method for Stochastic Optimization", ICLR 2015. Every coordinate has its own step size, so
    the tasks of a batch do not see each other; for the same reason a rotation of the features changes the path.
    """

    def __init__(self, parameter: Tensor, rate: float) -> None:
        self.parameter = parameter
        self.rate = rate
        self.count = 0
        self._first = torch.zeros_like(parameter)
        self._second = torch.zeros_like(parameter)
        self._root = torch.empty_like(parameter)

    def step(self, gradient: Tensor) -> None:
        """One step down the gradient.

        With m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ), the step m̂ / (√v̂ + ε) is computed as
        m / (√v + ε √(1 − β₂ᵗ)) times √(1 − β₂ᵗ) / (1 − β₁ᵗ), which saves two passes over the tensor.
        """
        self.count += 1
        first_bias = 1 - FIRST_DECAY**self.count
        second_bias = (1 - SECOND_DECAY**self.count) ** 0.5
        self._first.lerp_(gradient, 1 - FIRST_DECAY)
        self._second.mul_(SECOND_DECAY).addcmul_(gradient, gradient, value=1 - SECOND_DECAY)
        torch.sqrt(self._second, out=self._root)
        self._root.add_(EPSILON * second_bias)
        self.parameter.addcdiv_(self._first, self._root, value=-self.rate * second_bias / first_bias)
