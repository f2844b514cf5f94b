"""alpha-TIM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fsbench.methods.catalog import INFOS
from fsbench.methods.heads import InformationHead, Objective

if TYPE_CHECKING:
    from fsbench.methods.base import Context, MethodInfo


@dataclass(frozen=True)
class AlphaTim(InformationHead):
    """TIM-GD with entropies that tolerate unequal classes among the queries. Transductive.

    Tsallis' entropies of order α take the place of Shannon's in H(Y) and H(Y|X); the cross-entropy of the support
    stays. H(Y) is still largest for uniform proportions, but the higher the order, the less small classes are pushed
    up, so the proportions follow the data. The parameters are the same for balanced and unbalanced tasks.
    """

    order: float = 2.0
    cross_entropy: float = 1.0
    marginal: float = 1.0
    conditional: float = 1.0
    temperature: float = 15.0
    rate: float = 1e-4
    steps: int = 1000

    info: ClassVar[MethodInfo] = INFOS["alpha-tim"]

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The order: 2 for one shot, 7 from five shots on, 5 between, as in the released program."""
        return {"order": 2.0 if context.shots <= 1 else 5.0 if context.shots < 5 else 7.0}

    def objective(self) -> Objective:
        """The loss with Tsallis' entropies."""
        return Objective(self.cross_entropy, self.marginal, self.conditional, self.order)
