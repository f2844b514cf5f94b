"""The same small features in the structure of every format that is read, written as its own programs write it."""

from __future__ import annotations

import collections
import csv
import io
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import torch
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    found: dict[Any, list[NDArray[np.float32]]] = collections.defaultdict(list)
    for feature, label in zip(rows.features, rows.labels, strict=True):
        found[key(label)].append(feature)
    return found


def ptmap(path: Path, rows: Rows) -> None:
    path.write_bytes(pickle.dumps(by_class(rows)))


def ptmap_old(path: Path, rows: Rows) -> None:
    path.write_bytes(pickle.dumps(by_class(rows, np.int64), protocol=2))


def ptmap_text(path: Path, rows: Rows) -> None:
    path.write_bytes(pickle.dumps(by_class(rows), protocol=0))


def s2m2_arrays(path: Path, rows: Rows) -> None:
    path.write_bytes(pickle.dumps({label: np.stack(found) for label, found in by_class(rows).items()}, protocol=5))


def simpleshot(path: Path, rows: Rows) -> None:
    mean, logits = rows.features.mean(axis=0), by_class(Rows(rows.features[:, :2], rows.labels))
    path.write_bytes(pickle.dumps([mean, mean[:2], by_class(rows), logits]))


def laplacianshot(path: Path, rows: Rows) -> None:
    path.write_bytes(pickle.dumps([rows.features.mean(axis=0), by_class(rows)]))


def tim(path: Path, rows: Rows) -> None:
    rows = shuffled(rows)
    content = {"concat_features": torch.from_numpy(rows.features), "concat_labels": torch.from_numpy(rows.labels)}
    path.write_bytes(pickle.dumps(content))


def s2m2_hdf5(path: Path, rows: Rows) -> None:
    rows = shuffled(rows)
    count, room = len(rows.labels), len(rows.labels) + 3
    with h5py.File(path, "w") as file:
        labels = file.create_dataset("all_labels", (room,), dtype="i")
        features = file.create_dataset("all_feats", (room, rows.features.shape[1]), dtype="f")
        labels[:count], features[:count] = rows.labels, rows.features
        file.create_dataset("count", (1,), dtype="i")[0] = count


def compressed_hdf5(path: Path, rows: Rows) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("novel/features", data=rows.features, compression="gzip")
        file.create_dataset("novel/labels", data=rows.labels)


def npz(path: Path, rows: Rows) -> None:
    with path.open("wb") as stream:
        np.savez(stream, features=rows.features, labels=rows.labels)


def npz_splits(path: Path, rows: Rows) -> None:
    with path.open("wb") as stream:
        np.savez_compressed(stream, novel_features=rows.features.astype(np.float64), novel_labels=rows.labels)


def torch_dict(path: Path, rows: Rows) -> None:
    torch.save({"features": torch.from_numpy(rows.features), "targets": torch.from_numpy(rows.labels)}, path)


def torch_pair(path: Path, rows: Rows) -> None:
    torch.save((torch.from_numpy(rows.features), torch.from_numpy(rows.labels)), path)


def torch_classes(path: Path, rows: Rows) -> None:
    classes = {label: torch.from_numpy(np.stack(found)) for label, found in by_class(rows).items()}
    torch.save(classes, path, _use_new_zipfile_serialization=False)


def safetensors(path: Path, rows: Rows) -> None:
    save_file({"test_features": rows.features, "test_labels": rows.labels}, path)


def csv_table(path: Path, rows: Rows) -> None:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["", "label", *(f"f{i}" for i in range(rows.features.shape[1]))])
    for number, (feature, label) in enumerate(zip(rows.features.tolist(), rows.labels.tolist(), strict=True)):
        table.writerow([number, label, *feature])
    path.write_text(text.getvalue(), encoding="utf-8")


def parquet_columns(path: Path, rows: Rows) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {f"f{i}": rows.features[:, i] for i in range(rows.features.shape[1])}
    parquet.write_table(pa.table({"label": rows.labels, **columns}), path)


def parquet_vectors(path: Path, rows: Rows) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    names = [f"class{label:02d}" for label in rows.labels]
    parquet.write_table(pa.table({"embedding": list(rows.features), "class_name": names}), path)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    writer.__name__: writer
    for writer in (
        ptmap, ptmap_old, ptmap_text, s2m2_arrays, simpleshot, laplacianshot, tim, s2m2_hdf5, compressed_hdf5, npz,
        npz_splits, torch_dict, torch_pair, torch_classes, safetensors, csv_table,
    )
}  # fmt: skip
PARQUET = {"parquet_columns": parquet_columns, "parquet_vectors": parquet_vectors}


def easy(path: Path, tensor: NDArray[np.float32]) -> None:
    torch.save(torch.from_numpy(tensor), path)
