from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.exchange.exporting import export_npz
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from tests.unit.exchange.samples import make_rows
from tests.unit.exchange.test_formats import imported

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_and_names_come_back_from_an_archive(tmp_path: Path) -> None:
    splits = {}
    for seed, name in enumerate(("base", "novel")):
        rows, images = make_rows(seed=seed), [f"{name}/{i}.jpg" for i in range(12)]
        splits[name] = make_split(rows.features, np.repeat([0, 1, 2], 4), [f"{name} {c}" for c in "zäb"], images)
    write_features(tmp_path / "f.h5", Provenance("a", "b"), splits)
    file = FeatureFile.open(tmp_path / "f.h5")
    path = export_npz(file)
    assert path == tmp_path / "f.npz"
    again = imported(str(path), out=tmp_path / "again.h5")
    for name, split in splits.items():
        read = again.read(name)
        assert (read.class_names, read.images) == (split.class_names, split.images)
        assert read.digest == file.splits[name].digest
    with np.load(path, allow_pickle=False) as arrays:
        parts = ("features", "labels", "class_names", "images")
        assert set(arrays) == {f"{name}_{part}" for name in splits for part in parts}
    with pytest.raises(FsbenchError, match="exists already"):
        export_npz(file)
    assert export_npz(file, force=True) == path
