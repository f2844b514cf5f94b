"""iLPC: labels that spread over a graph of neighbours; the cleanest are kept, and the rest is spread anew."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fsbench.features.preprocess import centre_task
from fsbench.methods.base import Context, Count, Method, MethodInfo
from fsbench.methods.centroids import mean_weights
from fsbench.methods.transport import given_sizes
from fsbench.tasks.batch import TaskBatch, gram

_POWER = 3  # of similarities, and of the probabilities that are balanced
_FEWEST = 5  # kept in a round, or it was the last one
_FLOOR = 1e-8  # of probabilities, so that every class can be given its size
_BALANCING = 24  # Newton steps
_TIE = 1e-9
_MATRICES = 9  # (N, N) that a task takes, measured
_MOMENTUM, _RATE, _DECAY = 0.9, 0.1, 5e-4


class Ilpc(Method):
    """Label propagation, balancing and label cleaning, repeated until every query has a label. Transductive.

    In every round the labels of what is known spread over a graph of nearest neighbours, the probabilities are scaled
    to the class sizes that are left, and the queries of every class that a linear classifier finds easiest become
    known. The class sizes are uniform, also on unbalanced tasks: the released program is given the true ones there.
    """

    propagation: Annotated[float, Field(gt=0, lt=1)] = 0.8  # α, how much a node takes from its neighbours
    neighbours: Count = 20  # k, neighbours per sample
    kept: Count = 3  # queries per class that become known in a round
    steps: Count = 1000  # of the classifier's gradient descent

    preprocessing = "power"
    info = MethodInfo(
        "ilpc", "iLPC", 'Lazarou, Stathaki, Avrithis, "Iterative label cleaning for transductive and semi-supervised '
        'few-shot learning", ICCV 2021', url="https://arxiv.org/abs/2012.07962", order=130,
        prior="uniform", grid={"propagation": (0.6, 0.8, 0.9), "neighbours": (5, 10, 20, 40)}, cost="slow",
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """α and k as the same authors use them in α-AM."""
        many = context.shots >= 5
        return {"propagation": 0.9 if many else 0.8, "neighbours": 10 if many else 20}

    def memory_per_task(self, samples: int) -> int:
        """Bytes of the (N, N) matrices of a task: products, graph, what its inverse takes."""
        return _MATRICES * 4 * samples**2

    def classify(self, tasks: TaskBatch) -> Tensor:
        """One-hot for queries that became known, balanced probabilities for those that never did, (B, Q, K)."""
        products = gram(centre_task(tasks.rows))  # (B, N, N)
        influence = self._influence(products)  # (B, N, N)
        support, size = tasks.one_hot(), tasks.support_size  # (B, K, S)
        means = mean_weights(tasks)  # (B, K, N)
        _, ways, samples = means.shape
        queries = samples - size
        known = functional.pad(support, (0, queries))  # (B, K, N) labels, 0 where there is none
        left = torch.full_like(means[:, :, :1], queries / ways)  # (B, K, 1) sizes
        labels = torch.zeros_like(means[:, :, size:])  # (B, K, Q)
        going = torch.ones_like(means[:, :1, :1])  # (B, 1, 1) 1 until the last round
        # Every round but the last keeps at least five. Fixed number of rounds: an early stop would synchronise.
        for _ in range(-(-queries // _FEWEST)):
            open_ = (1 - known[:, :, size:].sum(dim=1, keepdim=True)) * going  # (B, 1, Q)
            plan = self._balanced((known @ influence.mT)[:, :, size:], left, open_)
            labels = torch.where(open_ > 0, plan, labels)
            guess = functional.one_hot(labels.argmax(dim=1), ways).mT.to(labels.dtype)  # (B, K, Q)
            target = torch.cat([support, torch.where(open_ > 0, guess, known[:, :, size:])], dim=2)  # (B, K, N)
            effort = self._effort(products, _imprinted(products, known), target)[:, None, size:]  # (B, 1, Q)
            chosen = self._easiest(effort, guess * open_)  # (B, K, Q) 1 where a query becomes known
            counts = chosen.sum(dim=2, keepdim=True)  # (B, K, 1)
            going = going * (counts.sum(dim=1, keepdim=True) >= _FEWEST)
            known = known + functional.pad(chosen * going, (size, 0))
            left = (left - counts * going).clamp_min(0)
        kept = known[:, :, size:]
        return torch.where(kept.sum(dim=1, keepdim=True) > 0, kept, labels).mT

    def _influence(self, products: Tensor) -> Tensor:
        """(I − α D^(−½) W D^(−½))⁻¹ of the graph of neighbours, (B, N, N)."""
        samples = products.shape[1]
        identity = torch.eye(samples, dtype=products.dtype, device=products.device)
        others = products.masked_fill(identity > 0, -torch.inf)
        border = others.topk(min(self.neighbours, samples - 1), dim=2).values[:, :, -1:]
        # Departs from the released program: a neighbour at more than 90° has no weight instead of a negative one.
        near = torch.where(others >= border - _TIE, products.clamp_min(0), 0.0) ** _POWER * (1 - identity)
        graph = near + near.mT
        root = graph.sum(dim=2, keepdim=True).clamp_min(torch.finfo(graph.dtype).tiny ** 0.5).rsqrt()
        # Departs from the released program: solved directly, not by 20 steps of conjugate gradients.
        inverse: Tensor = torch.linalg.inv_ex(identity - self.propagation * graph * root * root.mT)[0]
        return inverse

    def _balanced(self, reached: Tensor, sizes: Tensor, open_: Tensor) -> Tensor:
        """Probabilities (B, K, Q), cubed and scaled so that the open queries fill the sizes (B, K, 1) that are left."""
        reached = reached.clamp_min(0)
        p = reached / reached.sum(dim=1, keepdim=True).clamp_min(torch.finfo(reached.dtype).tiny)
        logits = _POWER * p.clamp_min(_FLOOR).log()
        count = open_.sum(dim=2, keepdim=True)  # (B, 1, 1)
        # Where ties made more known than a class had left, the others make room.
        target = sizes * count / sizes.sum(dim=1, keepdim=True).clamp_min(_FLOOR)
        return given_sizes(logits, target, open_, _BALANCING)

    def _effort(self, products: Tensor, weights: Tensor, target: Tensor) -> Tensor:
        """Loss of every sample, (B, N), averaged over the steps of a linear classifier that is fitted to all of them.

        The classifier's weights are W X for samples X: its gradient is the residual R X, so gradient descent on W with
        the Gram matrix alone goes the same way. Departs from the released program: the bias starts at 0, not at random.
        """
        samples = target.shape[2]
        bias = torch.zeros_like(weights[:, :, :1])  # (B, K, 1)
        state = torch.cat([weights, bias], dim=2)  # (B, K, N + 1)
        velocity, effort = torch.zeros_like(state), torch.zeros_like(target[:, 0])
        with_bias = functional.pad(products, (0, 0, 0, 1), value=1.0)  # (B, N + 1, N)
        for step in range(self.steps):
            logits = torch.bmm(state, with_bias)  # (B, K, N)
            log_p = torch.log_softmax(logits, dim=1)
            effort = effort - (log_p * target).sum(dim=1)
            residual = log_p.exp().sub_(target).div_(samples)
            gradient = torch.cat([residual, residual.sum(dim=2, keepdim=True)], dim=2).add_(state, alpha=_DECAY)
            velocity = gradient if step == 0 else velocity.mul_(_MOMENTUM).add_(gradient)
            state = state.sub(velocity, alpha=_RATE)
        return effort / self.steps

    def _easiest(self, effort: Tensor, candidates: Tensor) -> Tensor:
        """1 for the queries of each class with the least effort, (B, K, Q); equally easy ones are all taken."""
        cost = torch.where(candidates > 0, effort, torch.inf)  # (B, K, Q)
        border = cost.topk(min(self.kept, cost.shape[2]), dim=2, largest=False).values
        last = torch.where(border.isfinite(), border, -torch.inf).amax(dim=2, keepdim=True)
        return (cost <= last + _TIE).to(effort.dtype)


def _imprinted(products: Tensor, known: Tensor) -> Tensor:
    """Class means of what is known, scaled to unit norm, as weights over the samples, (B, K, N)."""
    means = known / known.sum(dim=2, keepdim=True)
    squared = ((means @ products) * means).sum(dim=2, keepdim=True)
    return means / squared.clamp_min(1e-24).sqrt()
