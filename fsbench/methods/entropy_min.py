"""Entropy minimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fsbench.methods.base import MethodInfo
from fsbench.methods.heads import InformationHead, Objective


@dataclass(frozen=True)
class EntropyMin(InformationHead):
    """A head that fits the support and is sure of every query. Transductive.

    The loss is a·CE + c·H(Y|X) on unit-norm features, with logits −T/2 d² to one weight vector per class. The
    proportions of the classes play no role: nothing keeps a class from taking over its neighbours.

    Departs from Dhillon et al.: they adapt the whole network, whose weights and batch statistics a file of features
    does not hold, so their published numbers cannot be obtained here and the title says "head only". With their 25
    steps of 5·10⁻⁵ a head alone hardly moves; it is given the schedule of TIM-GD, of which this is the case b = 0.
    """

    cross_entropy: float = 1.0
    conditional: float = 1.0
    temperature: float = 15.0
    rate: float = 1e-4
    steps: int = 1000

    info: ClassVar[MethodInfo] = MethodInfo(
        name="entropy-min",
        title="Entropy-min (head only)",
        reference='Dhillon et al., "A Baseline for Few-Shot Image Classification", ICLR 2020',
        url="https://arxiv.org/abs/1909.02729",
        transductive=True,
        prior="none",
        grid={
            "temperature": (5.0, 10.0, 15.0, 30.0, 60.0),
            "conditional": (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 10.0),
        },
        published={"Entropy-min": {}},
        cost="slow",
    )

    def objective(self) -> Objective:
        """The loss without H(Y)."""
        return Objective(self.cross_entropy, 0.0, self.conditional)
