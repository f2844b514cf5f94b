from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.exchange.exporting import export_file
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.reporter import Reporter
from tests.unit.exchange.samples import make_rows
from tests.unit.exchange.test_formats import imported

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features

QUIET = Reporter(quiet=True)


@pytest.fixture
def file(features: Features, tmp_path: Path) -> FeatureFile:
    splits = {"base": features.base, "val": features.val, "novel": features.novel}
    named = {
        name: replace(split, class_names=tuple(f"{name} {label}" for label in split.class_names))
        for name, split in splits.items()
    }
    write_features(tmp_path / "synthetic.h5", Provenance("synthetic", "none"), named)
    return FeatureFile.open(tmp_path / "synthetic.h5")


@pytest.mark.parametrize("layout", ["npz", "ptmap"])
def test_what_is_exported_is_imported_to_the_same_rows(file: FeatureFile, tmp_path: Path, layout: str) -> None:
    paths = export_file(file, layout, tmp_path / "out", QUIET)
    sources = [f"{path.stem}={path}" for path in paths] if layout == "ptmap" else map(str, paths)
    again = imported(*sources, out=tmp_path / "again.h5")
    assert {name: split.digest for name, split in again.splits.items()} == {
        name: split.digest for name, split in file.splits.items()
    }


def test_names_of_classes_and_images_survive_an_npz(tmp_path: Path) -> None:
    rows = make_rows()
    split = make_split(rows.features, np.repeat([0, 1, 2], 4), ["z", "ä", "b"], [f"{i}.jpg" for i in range(12)])
    write_features(tmp_path / "f.h5", Provenance("a", "b"), {"novel": split})
    (path,) = export_file(FeatureFile.open(tmp_path / "f.h5"), "npz", None, QUIET)
    assert path == tmp_path / "f.npz"
    again = imported(str(path), out=tmp_path / "again.h5").read("novel")
    assert again.class_names == ("z", "ä", "b")
    assert again.images == split.images
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {f"novel_{part}" for part in ("features", "labels", "class_names", "images")}


def test_pickles_load_anywhere_and_number_classes_as_s2m2_does(file: FeatureFile, tmp_path: Path) -> None:
    paths = export_file(file, "ptmap", tmp_path, QUIET)
    assert [path.name for path in paths] == ["base.plk", "val.plk", "novel.plk"]
    loaded = [pickle.loads(path.read_bytes()) for path in paths]
    assert [list(classes) for classes in loaded] == [
        list(range(16)), list(range(16, 24)), list(range(24, 34)),
    ]  # fmt: skip
    split = file.read("novel")
    assert np.array_equal(np.stack(loaded[2][25]), split.features[split.offsets[1] : split.offsets[2]])
    assert loaded[2][25][0].dtype == np.float32
    assert b"numpy._core" not in paths[2].read_bytes()  # a name that numpy 1 does not know
    code = f"import pickle, sys; pickle.load(open({str(paths[2])!r}, 'rb')); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True).strip() == "False"


def test_unknown_layouts_are_refused(file: FeatureFile) -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'ptmap'"):
        export_file(file, "pt-map", None, QUIET)
