import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from fsbench.data.catalog import dataset_info
from fsbench.errors import FsbenchError
from fsbench.exchange.importing import Naming, import_files
from fsbench.features.store import FeatureFile
from tests.comparing import QUIET
from tests.unit.exchange.samples import WRITERS, Rows, by_class, easy, make_rows

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
    assert (made.dataset, made.backbone, made.precision) == ("mini", "rn12", "")


def test_every_split_is_named_once_and_the_users_word_does_not_win_over_the_content(tmp_path: Path) -> None:
    WRITERS["npz"](tmp_path / "plain.npz", ROWS)
    assert list(imported(f"test={tmp_path / 'plain.npz'}", out=tmp_path / "a.h5").splits) == ["novel"]
    with pytest.raises(FsbenchError, match="Two files hold the split novel"):
        imported(*2 * [f"novel={tmp_path / 'plain.npz'}"], out=tmp_path / "out.h5")
    WRITERS["npz_splits"](tmp_path / "s.npz", ROWS)
    with pytest.raises(FsbenchError, match="says itself that it holds novel, not base"):
        imported(f"base={tmp_path / 's.npz'}", out=tmp_path / "b.h5")


def test_easy_tensors_divide_by_classes_padding_is_left_out_and_augmented_samples_are_remarked(tmp_path: Path) -> None:
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
    assert file.splits["val"].class_names[0] == "100"
    assert np.array_equal(file.read("novel").features[0], tensor[150, 0])
    assert not any("augmented" in note for note in file.provenance.notes)


def test_easy_tensors_that_do_not_divide_say_what_to_do(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).normal(size=(7, 6, 3)).astype(np.float32)
    tensor[2, 4:] = 0  # padded with zeros
    easy(tmp_path / "f.pt", tensor)
    for dataset, words in (("own", "own has an unknown number"), ("mini", "mini has 64 \\+ 16 \\+ 20")):
        with pytest.raises(FsbenchError, match=words):
            imported(str(tmp_path / "f.pt"), out=tmp_path / "out.h5", dataset=dataset)
    file = imported(f"novel={tmp_path / 'f.pt'}", out=tmp_path / "out.h5")
    assert np.diff(file.splits["novel"].offsets).tolist() == [6, 6, 4, 6, 6, 6, 6]


def test_names_of_classes_stay_names(tmp_path: Path) -> None:
    tensors = {f"bird {c:02d}": torch.from_numpy(np.stack(vectors)) for c, vectors in by_class(ROWS).items()}
    torch.save(tensors, tmp_path / "novel.pt")
    file = imported(f"novel={tmp_path / 'novel.pt'}", out=tmp_path / "out.h5")
    assert file.splits["novel"].class_names == ("bird 03", "bird 07", "bird 11")


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
    for dataset, backbone in (("a\nb", "rn12"), ("", "rn12"), ("../x", "rn12"), (256 * "d", "rn12"), ("mini", "a/b/c")):
        with pytest.raises(FsbenchError, match="cannot name a"):
            Naming(dataset, backbone)
    assert Naming("mini", "timm/vit_tiny").file_name() == "mini-timm_vit_tiny.h5"
    assert Naming("鳥の写真", "rn12").file_name() == "鳥の写真-rn12.h5"


def test_names_of_rows_are_not_names_of_classes(tmp_path: Path) -> None:
    names = [f"bird{row:02d}.png" for row in range(12)]
    np.savez(tmp_path / "a.npz", features=np.ones((12, 4)), labels=np.arange(12) % 3, names=names)
    with pytest.raises(FsbenchError, match="a name for every row"):
        imported(f"novel={tmp_path / 'a.npz'}", out=tmp_path / "out.h5")
