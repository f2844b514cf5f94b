from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics, base_statistics, scatter_path
from fsbench.features.store import FeatureFile
from tests.comparing import QUIET
from tests.synthetic import Features, make_features


def same(a: BaseStatistics, b: BaseStatistics) -> None:
    for name in ("mean", "scatter", "class_weighted", "eigenvalues"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-12)
    assert a.class_counts == b.class_counts


@pytest.mark.parametrize("rows", [1, 7, 50, 10_000])
def test_streaming_gives_the_same_whatever_the_block(
    features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("fsbench.features.store._CHUNK_BYTES", rows * 48 * 4)
    path = features.write(tmp_path / "f.h5")
    seen: list[int] = []
    same(BaseStatistics.fit_file(FeatureFile.open(path), seen.append), features.statistics)
    assert sum(seen) == 2 * len(features.base.features)


def test_order_of_rows_and_names_of_labels_do_not_matter(features: Features) -> None:
    order = np.random.default_rng(0).permutation(len(features.base.features))
    shuffled = BaseStatistics.fit(features.base.features[order], 1000 - 3 * features.base.labels[order])
    torch.testing.assert_close(shuffled.scatter, features.statistics.scatter, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(shuffled.class_weighted, features.statistics.class_weighted, rtol=1e-10, atol=1e-12)
    tensors = BaseStatistics.fit(torch.from_numpy(features.base.features), torch.from_numpy(features.base.labels))
    same(tensors, features.statistics)


def test_the_scatter_file_is_made_once_and_again_when_it_is_damaged_or_the_features_change(tmp_path: Path) -> None:
    path = make_features(seed=1).write(tmp_path / "f.h5")
    first = base_statistics(FeatureFile.open(path), QUIET)
    assert scatter_path(path).name == "f.scatter.h5"
    made = scatter_path(path).stat().st_mtime_ns
    again = base_statistics(FeatureFile.open(path), QUIET)
    same(again, first)
    assert torch.equal(again.eigenvectors, first.eigenvectors)
    assert scatter_path(path).stat().st_mtime_ns == made
    with h5py.File(scatter_path(path), "r+") as stored:
        stored["mean"][3] = 0.5
    with pytest.raises(FsbenchError, match="not as it was written"):
        BaseStatistics.load(scatter_path(path))
    same(base_statistics(FeatureFile.open(path), QUIET), first)
    same(BaseStatistics.load(scatter_path(path)), first)
    make_features(seed=2).write(path)
    other = base_statistics(FeatureFile.open(path), QUIET)
    assert not torch.equal(other.mean, first.mean)


def test_a_class_of_one_image_and_identical_images(features: Features) -> None:
    rows = np.concatenate([features.base.features, np.ones((1, 48)), np.ones((4, 48)) * 2])
    labels = np.concatenate([features.base.labels, [90], [91] * 4])
    fitted = BaseStatistics.fit(rows, labels)
    assert torch.isfinite(fitted.class_weighted).all()
    assert torch.isfinite(fitted.scatter).all()


def test_effective_rank_and_share_clamped() -> None:
    base = make_features().statistics
    flat = replace(base, eigenvalues=torch.full((48,), 0.01).double())
    assert flat.effective_rank == pytest.approx(48)
    assert flat.share_clamped(9.9) == 1
    assert flat.share_clamped(10.1) == 0
