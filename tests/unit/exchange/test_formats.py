from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fsbench.data.catalog import dataset_info
from fsbench.errors import FsbenchError
from fsbench.exchange.importing import Naming, import_files
from fsbench.reporter import Reporter
from tests.unit.exchange.samples import WRITERS, Rows, by_class, easy, make_rows

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.features.store import FeatureFile

QUIET = Reporter(quiet=True)
ROWS = make_rows()


def imported(*sources: str, out: Path, dataset: str = "own", force: bool = False) -> FeatureFile:
    return import_files(sources, out, Naming(dataset, "rn12"), QUIET, force=force)


def assert_rows(file: FeatureFile, split: str, rows: Rows) -> None:
    stored = file.read(split)
    assert stored.features.dtype == np.float32
    assert np.array_equal(stored.features, rows.features)
    assert np.array_equal(np.unique(rows.labels, return_inverse=True)[1], stored.labels)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_very_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"  # no name to go by
    WRITERS[name](path, ROWS)
    file = imported(f"novel={path}", out=tmp_path / "out.h5")
    assert_rows(file, "novel", ROWS)
    assert list(file.splits) == ["novel"]
    assert file.splits["novel"].class_names == ("3", "7", "11")


def test_provenance_names_the_sources(tmp_path: Path) -> None:
    path = tmp_path / "novel.plk"
    WRITERS["ptmap"](path, ROWS)
    made = imported(f"novel={path}", out=tmp_path / "out.h5", dataset="mini").provenance
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(made.imported) == [
        {"file": "novel.plk", "sha256": digest, "format": "pickle: vectors by class", "splits": "novel"}
    ]
    assert "mini has 20 novel classes, the file has 3: is it another data set?" in made.notes
    assert (made.dataset, made.backbone, made.precision) == ("mini", "rn12", "")


def test_one_npz_of_three_splits_with_names(tmp_path: Path) -> None:
    splits = {"base": make_rows(seed=1), "val": make_rows(seed=2), "novel": make_rows(seed=3)}
    arrays: dict[str, Any] = {}
    for split, rows in splits.items():
        arrays[f"{split}_features"] = rows.features.astype(np.float16)
        arrays[f"{split}_labels"] = np.searchsorted([3, 7, 11], rows.labels).astype(np.uint8)
        arrays[f"{split}_class_names"] = np.array([f"{split} z", f"{split} b", f"{split} é"])
    np.savez(tmp_path / "any.npz", **arrays)
    file = imported(str(tmp_path / "any.npz"), out=tmp_path / "out.h5")
    for split, rows in splits.items():
        assert_rows(file, split, Rows(rows.features.astype(np.float16).astype(np.float32), rows.labels))
        assert file.splits[split].class_names == (f"{split} z", f"{split} b", f"{split} é")  # in their own order


def test_every_split_is_named_once(tmp_path: Path) -> None:
    WRITERS["ptmap"](tmp_path / "base.plk", ROWS)
    with pytest.raises(FsbenchError, match=r"novel=.*base\.plk"):
        imported(str(tmp_path / "base.plk"), out=tmp_path / "out.h5")
    with pytest.raises(FsbenchError, match="Two files hold the split novel"):
        imported(*2 * [f"novel={tmp_path / 'base.plk'}"], out=tmp_path / "out.h5")


def test_the_users_word_does_not_win_over_the_content(tmp_path: Path) -> None:
    WRITERS["npz"](tmp_path / "plain.npz", ROWS)
    assert list(imported(f"test={tmp_path / 'plain.npz'}", out=tmp_path / "a.h5").splits) == ["novel"]
    WRITERS["npz_splits"](tmp_path / "s.npz", ROWS)
    with pytest.raises(FsbenchError, match="says itself that it holds novel, not base"):
        imported(f"base={tmp_path / 's.npz'}", out=tmp_path / "b.h5")


@pytest.mark.parametrize(
    ("dataset", "sizes"), [("mini", (64, 16, 20)), ("fc100", (60, 20, 20)), ("cub", (100, 50, 50))]
)
def test_easy_tensors_divide_by_the_data_sets_classes(tmp_path: Path, dataset: str, sizes: tuple[int, ...]) -> None:
    tensor = np.random.default_rng(0).normal(size=(sum(sizes), 6, 3)).astype(np.float32)
    easy(tmp_path / "minifeatures1.pt11", tensor)
    file = imported(str(tmp_path / "minifeatures1.pt11"), out=tmp_path / "out.h5", dataset=dataset)
    assert [len(file.splits[split].class_names) for split in ("base", "val", "novel")] == list(sizes)
    assert np.array_equal(file.read("novel").features, tensor[sum(sizes[:2]) :].reshape(-1, 3))
    assert file.splits["val"].class_names[0] == str(sizes[0])


def test_easy_padding_is_left_out_and_augmented_samples_are_remarked(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).gamma(2.0, size=(200, 60, 3)).astype(np.float32)
    counts = np.array([n for split in ("base", "val", "novel") for n in dataset_info("cub").splits[split].values()])
    easy(tmp_path / "as.pt", tensor)
    notes = imported(str(tmp_path / "as.pt"), out=tmp_path / "as.h5", dataset="cub").provenance.notes
    assert any("augmented samples" in note for note in notes)
    for c, count in enumerate(counts):
        tensor[c, count:] = tensor[c, count - 1] * (1 + 1e-6)  # round-off of another batch
    easy(tmp_path / "plain.pt", tensor)
    file = imported(str(tmp_path / "plain.pt"), out=tmp_path / "plain.h5", dataset="cub")
    sizes = [np.diff(file.splits[split].offsets) for split in ("base", "val", "novel")]
    assert np.array_equal(np.concatenate(sizes), counts)
    assert not any("augmented" in note for note in file.provenance.notes)


def test_easy_tensors_that_do_not_divide_say_what_to_do(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).normal(size=(7, 6, 3)).astype(np.float32)
    tensor[2, 4:] = 0  # padded with zeros
    easy(tmp_path / "f.pt", tensor)
    for dataset, words in (("own", "own has an unknown number"), ("mini", "mini has 64 \\+ 16 \\+ 20")):
        with pytest.raises(FsbenchError, match=words):
            imported(str(tmp_path / "f.pt"), out=tmp_path / "out.h5", dataset=dataset)
    file = imported(f"novel={tmp_path / 'f.pt'}", out=tmp_path / "out.h5")
    tensor[5, 5, 0] = np.nan
    easy(tmp_path / "f.pt", tensor)
    with pytest.raises(FsbenchError, match=r"1 rows are not finite .* \(class 5\)"):
        imported(f"novel={tmp_path / 'f.pt'}", out=tmp_path / "other.h5")
    assert np.diff(file.splits["novel"].offsets).tolist() == [6, 6, 4, 6, 6, 6, 6]


def test_names_of_classes_stay_names(tmp_path: Path) -> None:
    torch.save(by_class(ROWS, lambda label: f"bird {label:02d}") | {}, tmp_path / "refused.pt")
    tensors = {f"bird {c:02d}": torch.from_numpy(np.stack(vectors)) for c, vectors in by_class(ROWS).items()}
    torch.save(tensors, tmp_path / "novel.pt")
    file = imported(f"novel={tmp_path / 'novel.pt'}", out=tmp_path / "out.h5")
    assert file.splits["novel"].class_names == ("bird 03", "bird 07", "bird 11")
    with pytest.raises(FsbenchError, match="Nothing in it was executed"):  # arrays inside a torch file
        imported(f"novel={tmp_path / 'refused.pt'}", out=tmp_path / "other.h5")


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    WRITERS["npz"](tmp_path / "novel.npz", ROWS)
    out = tmp_path / "out.h5"
    imported(f"novel={tmp_path / 'novel.npz'}", out=out)
    written = out.stat().st_mtime_ns
    imported(f"novel={tmp_path / 'novel.npz'}", out=out)
    assert out.stat().st_mtime_ns == written  # the same files again
    WRITERS["npz"](tmp_path / "novel.npz", make_rows(seed=5))
    with pytest.raises(FsbenchError, match="exists already"):
        imported(f"novel={tmp_path / 'novel.npz'}", out=out)
    imported(f"novel={tmp_path / 'novel.npz'}", out=out, force=True)
    assert out.stat().st_mtime_ns > written


def test_names_must_be_names() -> None:
    bad = "a\nb", "", " ", "../x", "a/..", 256 * "d"
    for dataset, backbone in [*((name, "rn12") for name in bad), ("mini", "a/b/c"), ("mini", 256 * "b")]:
        with pytest.raises(FsbenchError, match="cannot name a"):
            Naming(dataset, backbone)
    with pytest.raises(FsbenchError, match="too long for the name of a file"):
        Naming(100 * "é", "rn12").file_name()
    assert Naming("mini", "timm/vit_tiny").file_name() == "mini-timm_vit_tiny.h5"
    for name in ("Möwe grün", "鳥の写真", "हिन्दी", "👩‍🔬 lab", "نیم‌فاصله"):
        assert Naming(name, "rn12").file_name() == f"{name}-rn12.h5"
