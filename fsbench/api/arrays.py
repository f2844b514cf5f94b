"""Methods on tensors in memory: the Python door to fsbench."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch

from fsbench.errors import FsbenchError
from fsbench.methods import method_class, split_variant
from fsbench.methods.base import Context, Stepwise
from fsbench.tasks.batch import TaskBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods.base import Method

    Array = TypeVar("Array", Tensor, NDArray[Any])


def predict(
    method: str,
    support: Tensor | NDArray[Any],
    support_labels: Tensor | NDArray[Any],
    query: Array,
    *,
    base: BaseStatistics | None = None,
    balanced: bool = False,
    dataset: str = "",
    **params: Any,
) -> Array:
    """Class probabilities of the queries of a batch of tasks.

    Args:
        method: `bavardage`, `bavardage:released`, `soft-kmeans`, `ncm`, …
        support: (B, S, D) raw features; the method's own pre-processing is applied.
        support_labels: (B, S) labels in 0..K-1, every class with at least one sample.
        query: (B, Q, D) raw features.
        base: Statistics of the base classes, `BaseStatistics.fit(features, labels)`.
        balanced: Whether the method may assume that the classes are equally frequent among the queries.
        dataset: `mini`, `tiered`, `cub`, `fc100` or `cifarfs` for the article's parameters of that data set; else
            the scale-free ones.
        **params: Parameters of the method, e.g. `variant="released", t_km=10, t_vb=4, s_max=5`.

    Returns:
        (B, Q, K), a NumPy array or a tensor like the queries. On the CPU everything is computed in float64.

    Example:
        >>> import numpy as np, fsbench
        >>> rng = np.random.default_rng(0)
        >>> base = fsbench.BaseStatistics.fit(rng.random((300, 16)), np.repeat(np.arange(10), 30))
        >>> support, query = rng.random((2, 5, 16)), rng.random((2, 75, 16))
        >>> labels = np.tile(np.arange(5), (2, 1))
        >>> fsbench.predict("bavardage", support, labels, query, base=base).shape
        (2, 75, 5)
    """
    configured, batch = _prepared(method, support, support_labels, query, base, balanced, dataset, params)
    return _like(query, configured.classify(batch))


def trajectory(
    method: str,
    support: Tensor | NDArray[Any],
    support_labels: Tensor | NDArray[Any],
    query: Array,
    *,
    base: BaseStatistics | None = None,
    balanced: bool = False,
    dataset: str = "",
    **params: Any,
) -> Array:
    """Class probabilities of the queries after every step of `soft-kmeans` or `bavardage`.

    Takes what `predict` takes. The first step is the nearest class mean, softmax(−T_km d²); steps 1 to `km_steps` are
    Soft-KMEANS; those after are variational Bayes; the last one is what `predict` gives.

    Returns:
        (T, B, Q, K) for T steps, a NumPy array or a tensor like the queries.
    """
    configured, batch = _prepared(method, support, support_labels, query, base, balanced, dataset, params)
    if not isinstance(configured, Stepwise):
        raise FsbenchError(f"{method} does not show its steps.", "Methods that do: soft-kmeans, bavardage.")
    steps = torch.stack(list(configured.assignments(batch)))  # (T, B, K, Q)
    return _like(query, steps.mT)


def _prepared(
    method: str,
    support: Any,
    support_labels: Any,
    query: Any,
    base: BaseStatistics | None,
    balanced: bool,
    dataset: str,
    params: dict[str, Any],
) -> tuple[Method, TaskBatch]:
    """The configured method, and the tasks as it wants them."""
    batch = _batch_of(support, support_labels, query, base)
    context = Context(balanced=balanced, dataset=dataset, base=base, shots=batch.support_size // batch.ways)
    name, variant = split_variant(method)
    configured = method_class(name).configure(context, **{**variant, **params})
    embedded = configured.embed(batch.rows.flatten(end_dim=1), base).unflatten(0, batch.rows.shape[:2])
    return configured, TaskBatch(embedded, batch.support_labels, batch.ways)


def _like(query: Array, probabilities: Tensor) -> Array:
    """Probabilities as the kind of array that the queries are."""
    if isinstance(query, torch.Tensor):
        return probabilities.to(query.dtype) if query.is_floating_point() else probabilities
    return probabilities.numpy()


def _batch_of(support: Any, support_labels: Any, query: Any, base: BaseStatistics | None) -> TaskBatch:
    """Check shapes and values, and put support and queries together."""
    support, query = (torch.as_tensor(array) for array in (support, query))
    labels = torch.as_tensor(support_labels)
    if (
        support.ndim != 3
        or query.ndim != 3
        or support.shape[::2] != query.shape[::2]
        or labels.shape != support.shape[:2]
    ):
        raise FsbenchError(
            "Expected support (B, S, D), support_labels (B, S) and query (B, Q, D), got "
            f"{tuple(support.shape)}, {tuple(labels.shape)} and {tuple(query.shape)}."
        )
    if base is not None and len(base.mean) != support.shape[2]:
        raise FsbenchError(f"The tasks have {support.shape[2]} features, the base statistics {len(base.mean)}.")
    if labels.is_floating_point() or not labels.numel():
        raise FsbenchError(f"Support labels must be integers, at least one per task, got {labels.dtype}.")
    ways = int(labels.max()) + 1
    present = (labels[:, :, None] == torch.arange(ways, device=labels.device)).any(dim=1)  # (B, K)
    if int(labels.min()) < 0 or not bool(present.all()):
        raise FsbenchError(
            f"Support labels must be 0..K-1, every class in every task; found {int(labels.min())}..{ways - 1}."
        )
    rows = torch.cat([support, query], dim=1)
    rows = rows.double() if rows.device.type == "cpu" else rows.float()
    if not bool(torch.isfinite(rows).all()):
        raise FsbenchError("Features must be finite: NaN or infinity found among support or queries.")
    return TaskBatch(rows, labels.to(rows.device), ways)
