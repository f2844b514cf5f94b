"""Tasks as tensors, and the axis letters of the whole package.

==  =======================================================
B   tasks in a batch
N   samples of a task, support first: N = S + Q
S   support samples of a task
Q   queries of a task
K   classes of a task (ways)
D   features
==  =======================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsbench.errors import UsageError

_CACHED_TASKS = 8  # whose rows stay in the cache of a CPU while their inner products are computed


class TaskBatch:
    """A batch of tasks of equal size, as a method sees it: their rows in one space or several, and support labels."""

    def __init__(
        self, rows: Tensor | Mapping[str, Tensor], support_labels: Tensor, ways: int, text: Tensor | None = None
    ) -> None:
        """A batch of B tasks.

        Args:
            rows: (B, N, D) embedded features, support first; or several such tensors by the names of their spaces.
            support_labels: (B, S) labels in 0..K-1; every class has at least one support sample, unless it has text.
            ways: K.
            text: (B, K, D) text prototypes of the classes, of unit norm, where there are some.
        """
        self.spaces, self.support_labels, self.ways, self.text = by_name(rows), support_labels, ways, text
        first = next(iter(self.spaces.values()))
        self.shape, self.dtype = tuple(first.shape), first.dtype  # B, N and D of `rows`

    @property
    def rows(self) -> Tensor:
        """(B, N, D) embedded features, support first, in the only space or the first."""
        return self.space()

    @property
    def support_size(self) -> int:
        """S, the number of support samples of a task."""
        return self.support_labels.shape[1]

    def with_rows(self, rows: Tensor | Mapping[str, Tensor]) -> TaskBatch:
        """The same tasks with other features (B, N, D)."""
        return TaskBatch(rows, self.support_labels, self.ways, self.text)

    def one_hot(self) -> Tensor:
        """(B, K, S) one-hot labels of the support, in the dtype of the rows."""
        classes = torch.arange(self.ways, device=self.support_labels.device)
        return (self.support_labels[:, None, :] == classes[None, :, None]).to(self.dtype)

    def space(self, name: str = "") -> Tensor:
        """(B, N, D) the rows in the space of that name; without a name, in the first."""
        return self.spaces[name or next(iter(self.spaces))]

    def gram(self, name: str = "") -> Tensor:
        """(B, N, N) inner products of all samples in a space; methods that share tasks share them."""
        return gram(self.space(name))


def by_name(rows: Tensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """What `embed` gives, as tensors by the names of their spaces."""
    return {"rows": rows} if isinstance(rows, Tensor) else rows


def gram(x: Tensor, out: Tensor | None = None) -> Tensor:
    """X Xᵀ (B, N, N); on the CPU NumPy notices the symmetry and does half the work."""
    return product(x, x.mT, out)


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """A B, by NumPy on the CPU, which is faster there for matrices of the size of a task."""
    if not (_by_numpy(a) and _by_numpy(b)):
        return torch.matmul(a, b, out=out)
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy(), out=None if out is None else out.numpy()))


def _by_numpy(x: Tensor) -> bool:
    """Whether NumPy computes: not in graphs (torch.compile, fake tensors), nor with tensors that need gradients."""
    return x.device.type == "cpu" and type(x) is Tensor and not torch.compiler.is_compiling() and not x.requires_grad


def gathered_gram(table: Tensor, index: Tensor) -> Tensor:
    """(B, N, N) inner products of rows (B, N) of a table; on the CPU for few tasks at once, whose rows stay cached."""
    if not _by_numpy(table):
        return gram(table[index])
    tasks, samples = index.shape
    products = table.new_empty(tasks, samples, samples)
    rows = table.new_empty(min(tasks, _CACHED_TASKS), samples, table.shape[1])
    for first in range(0, tasks, _CACHED_TASKS):
        part = index[first : first + _CACHED_TASKS]
        # Other modes than `clip` copy once more.
        table.numpy().take(part.numpy(), axis=0, out=rows[: len(part)].numpy(), mode="clip")
        gram(rows[: len(part)], products[first : first + len(part)])
    return products


def batch_of(support: Any, support_labels: Any, query: Any, text: Any = None) -> TaskBatch:
    """Put arrays or tensors of support and queries together, after a check of their shapes and values.

    Text prototypes of the classes, (K, D) or (B, K, D), come with them; `support` may be None then.
    """
    if support is None and text is not None:
        rows = _rows("query", query)
        nothing = torch.zeros(len(rows), 0, dtype=torch.int64, device=rows.device)
        return _with_text(TaskBatch(rows, nothing, _tensor("text", text).shape[-2]), text)
    batch = _with_support(_rows("support", support), _tensor("support_labels", support_labels), _rows("query", query))
    return batch if text is None else _with_text(batch, text)


def _with_support(support: Tensor, labels: Tensor, query: Tensor) -> TaskBatch:
    tasks, shots, dimension = support.shape
    if query.shape[::2] != (tasks, dimension):
        expected = f"expected ({tasks}, Q, {dimension}), as many tasks and features as support has"
        raise UsageError("query", f"{expected}, got {tuple(query.shape)}")
    if labels.shape != (tasks, shots):
        raise UsageError("support_labels", f"expected ({tasks}, {shots}), one per support, got {tuple(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise UsageError("support_labels", f"must be integers from 0, got {labels.dtype}")
    ways = int(labels.max()) + 1
    present = (labels[:, :, None] == torch.arange(ways, device=labels.device)).any(dim=1)  # (B, K)
    if int(labels.min()) < 0 or not bool(present.all()):
        found = f"found {int(labels.min())}..{ways - 1}"
        raise UsageError("support_labels", f"must be 0..K-1, with every class in every task; {found}")
    if ways < 2:
        raise UsageError("support_labels", "a task needs at least two classes, got one")
    both = torch.cat([support, query], dim=1)
    return TaskBatch(both, labels.to(both.device), ways)


def _with_text(batch: TaskBatch, text: Any) -> TaskBatch:
    """The batch with text prototypes of its classes, of unit norm."""
    expected, table = (batch.shape[0], batch.ways, batch.shape[2]), _tensor("text", text)
    if table.shape not in (expected, expected[1:]) or not bool(torch.isfinite(table).all()):
        raise UsageError("text", f"expected finite numbers {expected} or {expected[1:]}, got {tuple(table.shape)}")
    unit = torch.nn.functional.normalize(table.to(batch.rows), dim=-1).expand(expected)
    return TaskBatch(batch.spaces, batch.support_labels, batch.ways, unit)


def _rows(name: str, array: Any) -> Tensor:
    """Rows (B, N, D), checked; in double precision on the CPU."""
    rows = _tensor(name, array)
    if rows.ndim != 3 or not rows.numel():
        raise UsageError(name, f"expected (B, {name[0].upper()}, D), got {tuple(rows.shape)}")
    if rows.is_complex() or not bool(torch.isfinite(rows).all()):
        raise UsageError(name, "must be finite real numbers")
    return rows.double() if rows.device.type == "cpu" else rows.float()


def _tensor(name: str, array: Any) -> Tensor:
    try:
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(array, "dtype", type(array).__name__)
        raise UsageError(name, f"expected an array of numbers, got {kind}") from error
