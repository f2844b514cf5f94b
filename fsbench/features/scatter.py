"""Statistics of the base classes: their mean and within-class scatter, from memory or streamed from a feature file.

All on CL2N features (centred with the mean of the raw base features, unit norm), in float64:

- `scatter`: S_w of Eq. 6, divided by the number of base images;
- `class_weighted`: the matrix of the released program: sums per class (not divided), each scaled to unit Frobenius
  norm, averaged, and scaled back by the mean norm. It is larger than `scatter` by about n̄, the number of images per
  base class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import apply_rows
from fsbench.features.store import FeatureFile, make_split
from fsbench.io.hdf5 import attribute_of, open_hdf5, sealed_hdf5
from fsbench.reporter import Reporter

FORMAT = "fsbench-scatter"
VERSION = 1
_ROWS_AT_ONCE = 1024  # rows that stay in the cache
_ARRAYS = ("mean", "scatter", "class_weighted", "eigenvalues", "eigenvectors")


@dataclass(frozen=True)
class BaseStatistics:
    """What the methods need to know of the base classes. Tensors are float64."""

    mean: Tensor  # (D,) mean of the raw base features, every image with the same weight
    scatter: Tensor  # (D, D) S_w as in Eq. 6.
    class_weighted: Tensor  # (D, D) the released program's matrix, on the scale of sums per class
    eigenvalues: Tensor  # (D,) of `scatter`, in descending order, none negative
    eigenvectors: Tensor  # (D, D) of `scatter`, in columns
    class_counts: tuple[int, ...]  # images of every base class
    digest: str = ""  # SHA-256 of the base features they come from; empty for features given in memory

    @property
    def images_per_class(self) -> float:
        """n̄ = N_base / |C_base|, the bridge between the article's units and the scale-free ones."""
        return sum(self.class_counts) / len(self.class_counts)

    @property
    def effective_rank(self) -> float:
        """Exp of the entropy of the normalised spectrum: how many directions carry the scatter."""
        share = self.eigenvalues / self.eigenvalues.sum()
        return float(torch.exp(torch.special.entr(share).sum()))

    def share_clamped(self, sigma: float) -> float:
        """Share of the directions whose scaling λ^(-1/2) exceeds σ (Eq. 7)."""
        return float((self.eigenvalues * sigma**2 < 1).double().mean())

    @classmethod
    def fit(cls, features: Tensor | NDArray[Any], labels: Tensor | NDArray[Any]) -> BaseStatistics:
        """Compute from raw base features (M, D) and their labels (M,), in any order."""
        both = (given.detach().cpu() if isinstance(given, torch.Tensor) else given for given in (features, labels))
        rows, classes = map(np.asarray, both)
        split = make_split(rows, classes)
        return cls._fit_blocks(lambda: [split.features], split.offsets)

    @classmethod
    def fit_file(cls, file: FeatureFile, progress: Callable[[int], None] = lambda rows: None) -> BaseStatistics:
        """Stream the base split of a feature file: two passes, memory O(D²) plus one block."""
        summary = file.summary("base")

        def blocks() -> Iterable[NDArray[np.float32]]:
            for block in file.stream("base"):
                yield block
                progress(len(block))

        return cls._fit_blocks(blocks, summary.offsets, summary.digest)

    @classmethod
    def _fit_blocks(
        cls, blocks: Callable[[], Iterable[NDArray[np.float32]]], offsets: NDArray[np.int64], digest: str = ""
    ) -> BaseStatistics:
        """Compute from blocks of rows, sorted by class, gone through twice."""
        parts = (part for block in blocks() for part in torch.from_numpy(block).split(_ROWS_AT_ONCE))
        mean = sum((part.double().sum(dim=0) for part in parts), torch.zeros(())) / int(offsets[-1])
        scatter, class_weighted = _scatter_matrices(blocks(), offsets, mean)
        ascending, columns = torch.linalg.eigh(scatter)
        eigenvalues, eigenvectors = ascending.flip(0).clamp_min(0.0), columns.flip(1).contiguous()
        counts = tuple(np.diff(offsets).tolist())
        return cls(mean, scatter, class_weighted, eigenvalues, eigenvectors, class_counts=counts, digest=digest)

    def save(self, path: Path) -> None:
        """Write the scatter file, whole or not at all."""
        with sealed_hdf5(path, FORMAT, VERSION) as file:
            file.attrs["features_sha256"] = self.digest
            for name in _ARRAYS:
                file.create_dataset(name, data=getattr(self, name).numpy())
            file.create_dataset("class_counts", data=np.array(self.class_counts, dtype=np.int64))

    @classmethod
    def load(cls, path: str | Path) -> BaseStatistics:
        """Read and check a scatter file."""
        path = Path(path)
        with open_hdf5(path, FORMAT, VERSION) as file:
            arrays = {name: torch.from_numpy(file[name][()]) for name in _ARRAYS}
            counts = file["class_counts"][()].tolist()
            digest = str(attribute_of(file, "features_sha256"))
        return cls(**arrays, class_counts=tuple(counts), digest=digest)


def scatter_path(features: Path) -> Path:
    """Where the scatter file of a feature file lies: beside it."""
    return features.with_suffix(".scatter.h5")


def base_statistics(file: FeatureFile, reporter: Reporter) -> BaseStatistics:
    """The statistics of a file's base split: from the scatter file if it is intact and belongs to it, else computed."""
    path = scatter_path(file.path)
    with contextlib.suppress(FsbenchError):
        if path.exists() and (stored := BaseStatistics.load(path)).digest == file.summary("base").digest:
            return stored
    with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
        computed = BaseStatistics.fit_file(file, advance)
    try:
        if not file.in_memory:
            computed.save(path)
    except FsbenchError as error:  # a folder of someone else, or a full disk
        reporter.warn(f"The scatter is computed again next time. {error.message}")
    return computed


def _scatter_matrices(
    blocks: Iterable[NDArray[np.float32]], offsets: NDArray[np.int64], mean: Tensor
) -> tuple[Tensor, Tensor]:
    """Eq. 6, and the released program's class-weighted matrix, from blocks that may cut classes anywhere."""
    pooled = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    balanced, norms = torch.zeros_like(pooled), 0.0
    for count, total, second in _class_moments(blocks, offsets, mean):
        scatter = second.addr_(total, total, alpha=-1.0 / count)  # Σ x xᵀ − n m mᵀ
        norm = float(torch.linalg.matrix_norm(scatter))
        pooled += scatter
        balanced.add_(scatter, alpha=1.0 / norm if norm > 0 else 0.0)
        norms += norm
    return pooled / int(offsets[-1]), balanced * (norms / (len(offsets) - 1) ** 2)


def _class_moments(
    blocks: Iterable[NDArray[np.float32]], offsets: NDArray[np.int64], mean: Tensor
) -> Iterable[tuple[int, Tensor, Tensor]]:
    """Number, sum and second moment of the CL2N rows of one class after another."""
    ends = offsets[1:].tolist()
    total, second = torch.zeros_like(mean), torch.zeros(len(mean), len(mean), dtype=torch.float64)
    row, c = 0, 0
    for block in blocks:
        done = 0
        while done < len(block):
            part = torch.from_numpy(block[done : done + min(ends[c] - row, _ROWS_AT_ONCE)])
            x = apply_rows("CL2N", part.double(), mean)
            total += x.sum(dim=0)
            second.addmm_(x.mT, x)
            row, done = row + len(x), done + len(x)
            if row == ends[c]:
                yield row - int(offsets[c]), total, second
                total.zero_()
                second.zero_()
                c += 1
