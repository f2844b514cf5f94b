"""protoLP: prototypes whose assignments are smoothed by label propagation over a graph of the prototypes."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from torch import Tensor

from fsbench.features.preprocess import centre_task
from fsbench.methods.base import Context, Count, Method, MethodInfo, Positive, Share, Variants
from fsbench.methods.centroids import InnerProducts, inner_products, mean_weights
from fsbench.methods.soft_kmeans import over_classes
from fsbench.methods.transport import EqualSizes
from fsbench.tasks.batch import TaskBatch, gram

_PURIFIED = 60  # steps; on real tasks answers were those of eigenvectors from 40 on


class ProtoLp(Method):
    """Prototypes and a graph of them, in turns: queries are assigned, and the assignments spread over the graph.

    Transductive. On balanced tasks queries are assigned by transport to classes of equal size; on others by a softmax,
    after which the spread assignments are still scaled to equal sizes, as in the port of Lazarou et al.
    """

    # laplacian of the prototypes; each goes with one of the two released settings of weight, share and rounds.
    # `normalised`: I − ZᵀZ Λ⁻¹, with assignments Z (N, K) and their column sums Λ. `anchor`: ZᵀZ − ZᵀZ Λ⁻¹ ZᵀZ.
    graph: Literal["normalised", "anchor"] = "normalised"
    assignment: Literal["softmax", "transport"] = "softmax"  # `transport`, or `softmax`; by setting unless given
    weight: Positive = 1.0  # g of the graph
    share: Share = 0.6  # b, what spread assignments contribute to the new prototypes
    rate: Share = 0.2  # the part of the way that prototypes go in a round
    scale: Positive = 10.0  # λ of exp(−λ d²)
    dimensions: Count = 40  # leading directions of the task that are kept
    rounds: Count = 100

    preprocessing = "power"
    info = MethodInfo(
        "protolp", "protoLP",
        'Zhu, Koniusz, "Transductive Few-shot Learning with Prototype-based Label Propagation by Iterative '
        'Graph Refinement", CVPR 2023', url="https://arxiv.org/abs/2304.11598", order=120,
        prior="uniform", variants=Variants("graph", ("normalised", "anchor")),
        grid={"weight": (0.05, 0.3, 1.0, 10.0), "share": (0.3, 0.6, 0.7, 0.9), "scale": (5.0, 10.0, 20.0)},
    )  # fmt: skip

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The released settings of the graph that is asked for."""
        released = {"weight": 0.05, "share": 0.7, "rounds": 50} if options.get("graph") == "anchor" else {}
        return super().configure(context, **{**released, **options})

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """Equal sizes where tasks are known to have them."""
        return {"assignment": "transport" if context.balanced else "softmax"}

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries to the last prototypes, (B, Q, K)."""
        products = inner_products(centre_task(leading_directions(tasks.rows, self.dimensions)))
        support = tasks.one_hot()  # (B, K, S)
        weights = mean_weights(tasks)  # (B, K, N) prototypes as weights over the samples
        length = (products(weights) * weights).sum(dim=2, keepdim=True).clamp_min(1e-24).sqrt()  # (B, K, 1)
        prototypes = weights / length
        # Departs from the released program: Sinkhorn's limit, where that stops at 1e-3 and at 0.01. Support rows are
        # reset to one-hot in its second scaling, so that in the limit the queries alone have equal sizes.
        assign = EqualSizes(next_steps=4) if self.assignment == "transport" else over_classes
        balance = EqualSizes(next_steps=4)
        for _ in range(self.rounds):
            assigned = assign(self._logits(products, prototypes, tasks.support_size))  # (B, K, Q)
            smooth = balance(self._spread(support, assigned).log())
            mixed = torch.cat([support, self.share * smooth + (1 - self.share) * assigned], dim=2)  # (B, K, N)
            prototypes = prototypes + self.rate * (mixed / mixed.sum(dim=2, keepdim=True) - prototypes)
        return assign(self._logits(products, prototypes, tasks.support_size)).mT

    def _logits(self, products: InnerProducts, prototypes: Tensor, support: int) -> Tensor:
        """−λ d² of the queries, (B, K, Q), up to what is the same for all classes."""
        similarity = products(prototypes)  # (B, K, N)
        squared = (similarity * prototypes).sum(dim=2, keepdim=True)  # (B, K, 1)
        return self.scale * (2 * similarity[:, :, support:] - squared)

    def _spread(self, support: Tensor, assigned: Tensor) -> Tensor:
        """Z (Z_sᵀZ_s + g L)⁻¹ Z_sᵀ Y_s in the rows of the queries, (B, K, Q), positive.

        Z_s is the support's, one-hot like its labels Y_s, so that Z_sᵀZ_s and Z_sᵀY_s are its class sizes.
        """
        everything = torch.cat([support, assigned], dim=2)  # (B, K, N) Zᵀ
        among = everything @ everything.mT  # (B, K, K) ZᵀZ
        per_class = among / everything.sum(dim=2)[:, None, :]  # ZᵀZ Λ⁻¹
        identity = torch.eye(among.shape[1], dtype=among.dtype, device=among.device)
        laplacian = identity - per_class if self.graph == "normalised" else among - per_class @ among
        shots = torch.diag_embed(support.sum(dim=2))  # (B, K, K)
        anchors: Tensor = torch.linalg.solve_ex(shots + self.weight * laplacian, shots)[0]
        return (anchors.mT @ assigned).clamp_min(torch.finfo(assigned.dtype).tiny)


def leading_directions(rows: Tensor, count: int) -> Tensor:
    """Coordinates (B, N, R) of rows (B, N, D) along the first right singular vectors of each task, not centred.

    From the eigenvectors of X Xᵀ or of Xᵀ X, whichever is smaller. On NVIDIA GPUs the rows are projected instead,
    (B, N, D), which leaves the same inner products.
    """
    few = rows.shape[1] <= rows.shape[2]
    products = gram(rows if few else rows.mT)
    if rows.device.type == "cuda":
        onto = leading_projection(products, count)
        return onto @ rows if few else rows @ onto
    values, vectors = torch.linalg.eigh(products)  # ascending
    noise = values.shape[1] * torch.finfo(values.dtype).eps * values[:, -1:]
    above = (values > noise)[:, None, -count:]
    leading = vectors[:, :, -count:]
    lengths = torch.where(above, values[:, None, -count:], 0.0).sqrt()
    coordinates: Tensor = leading * lengths if few else rows @ (leading * above)
    return coordinates


def leading_projection(matrix: Tensor, count: int) -> Tensor:
    """Projection (B, n, n) onto the first eigenvectors of positive semi-definite matrices, by products alone.

    On GPUs eigenvalues of many small matrices are slow, and the host waits for them. Purification (Niklasson,
    "Expansion algorithm for the density matrix", Phys. Rev. B 66, 2002): every eigenvalue, scaled into [0, 1], is
    squared while their sum is above `count`, else moved the other way, so that the first ones go to 1 and others to 0.
    The matrix is lifted above its rounding errors, as what is negative would not end.
    """
    exact = matrix.double()
    largest = exact.abs().sum(dim=2).amax(dim=1)[:, None, None]  # ‖M‖∞, at least the largest eigenvalue
    noise = matrix.shape[1] * torch.finfo(matrix.dtype).eps
    lift = noise * torch.eye(matrix.shape[1], dtype=exact.dtype, device=exact.device)
    projection = (exact / largest.clamp_min(torch.finfo(matrix.dtype).tiny) + lift) / (1 + noise)
    for _ in range(_PURIFIED):
        square = projection @ projection
        above = projection.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None] > count
        projection = torch.where(above, square, 2 * projection - square)
    return projection.to(matrix.dtype)
