"""The same small features in the structure of every format that is read, written as its own programs write it."""

import collections
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    """Rows sorted by class, with class numbers that neither start at 0 nor are without gaps."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]


def make_rows(classes: tuple[int, ...] = (3, 7, 11), images: int = 4, dimension: int = 5, seed: int = 0) -> Rows:
    features = np.random.default_rng(seed).gamma(2.0, size=(len(classes) * images, dimension)).astype(np.float32)
    return Rows(features, np.repeat(np.array(classes, dtype=np.int64), images))


def shuffled(rows: Rows) -> Rows:
    """In an order that is not by class, but keeps the order within each class."""
    order = np.argsort(np.tile(np.arange(len(rows.labels) // 3), 3), kind="stable")
    return Rows(rows.features[order], rows.labels[order])


def by_class(rows: Rows, key: Callable[[Any], Any] = int) -> dict[Any, list[NDArray[np.float32]]]:
    classes: dict[Any, list[NDArray[np.float32]]] = collections.defaultdict(list)
    for feature, label in zip(rows.features, rows.labels, strict=True):
        classes[key(label)].append(feature)
    return classes


def pickled(path: Path, content: object, protocol: int = 4) -> None:
    path.write_bytes(pickle.dumps(content, protocol))


def simpleshot(path: Path, rows: Rows) -> None:
    mean, logits = rows.features.mean(axis=0), by_class(Rows(rows.features[:, :2], rows.labels))
    pickled(path, [mean, mean[:2], by_class(rows), logits])


def tensors(rows: Rows, *names: str) -> dict[str, torch.Tensor]:
    return dict(zip(names, map(torch.from_numpy, (rows.features, rows.labels)), strict=True))


def stacked(rows: Rows) -> dict[int, NDArray[np.float32]]:
    return {label: np.stack(vectors) for label, vectors in by_class(rows).items()}


def s2m2_hdf5(path: Path, rows: Rows) -> None:
    rows = shuffled(rows)
    count, stored = len(rows.labels), len(rows.labels) + 3
    with h5py.File(path, "w") as file:
        labels = file.create_dataset("all_labels", (stored,), dtype="i")
        features = file.create_dataset("all_feats", (stored, rows.features.shape[1]), dtype="f")
        labels[:count], features[:count] = rows.labels, rows.features
        file.create_dataset("count", (1,), dtype="i")[0] = count


def npz(path: Path, rows: Rows) -> None:
    with path.open("wb") as stream:
        np.savez(stream, features=rows.features, labels=rows.labels)


def npz_splits(path: Path, rows: Rows) -> None:
    with path.open("wb") as stream:
        np.savez_compressed(stream, novel_features=rows.features.astype(np.float64), novel_labels=rows.labels)


def torch_classes(path: Path, rows: Rows) -> None:
    classes = {label: torch.from_numpy(table) for label, table in stacked(rows).items()}
    torch.save(classes, path, _use_new_zipfile_serialization=False)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "ptmap": lambda path, rows: pickled(path, by_class(rows)),
    "ptmap_old": lambda path, rows: pickled(path, by_class(rows, np.int64), 2),
    "s2m2_arrays": lambda path, rows: pickled(path, stacked(rows), 5),
    "simpleshot": simpleshot,
    "laplacianshot": lambda path, rows: pickled(path, [rows.features.mean(axis=0), by_class(rows)]),
    "tim": lambda path, rows: pickled(path, tensors(shuffled(rows), "concat_features", "concat_labels")),
    "s2m2_hdf5": s2m2_hdf5,
    "npz": npz,
    "npz_splits": npz_splits,
    "torch_dict": lambda path, rows: torch.save(tensors(rows, "features", "targets"), path),
    "torch_classes": torch_classes,
}


def easy(path: Path, tensor: NDArray[np.float32]) -> None:
    torch.save(torch.from_numpy(tensor), path)
