from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.data.dataset import FolderImages, Listing
from fsbench.data.scan import choose_datasets, compare_with_catalog, find_datasets, other_folders, scan_folder
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.scan import Difference

NAMES = {"base": "train", "val": "val", "novel": "test"}


def whole(name: str) -> dict[str, dict[str, list[str]]]:
    """The listing's splits of a data set of which nothing is missing."""
    info = dataset_info(name)
    return {
        split: {label: [f"{label}/{i}.jpg" for i in range(count)] for label, count in classes.items()}
        for split, classes in info.splits.items()
    }


def compare(root: Path, splits: Mapping[str, Mapping[str, Sequence[str]]], name: str) -> tuple[Difference, ...]:
    listing = Listing(root, "test", FolderImages(root), splits)
    return compare_with_catalog(listing, dataset_info(name))


@pytest.mark.parametrize("name", ["cub", "cifarfs"])
def test_whole_data_set_has_no_differences_numbered_or_not(tmp_path: Path, name: str) -> None:
    assert compare(tmp_path, whole(name), name) == ()
    numbered = {
        split: {f"{split}-{number:04d}": images for number, images in enumerate(classes.values())}
        for split, classes in whole(name).items()
    }
    listing = Listing(tmp_path, "test", FolderImages(tmp_path), numbered, anonymous=True)
    assert compare_with_catalog(listing, dataset_info(name)) == ()
    numbered["val"]["val-0000"] = ["a.jpg"]
    assert [difference.kind for difference in compare_with_catalog(listing, dataset_info(name))] == ["sizes"]


def test_missing_extra_short_and_long_classes_are_named(tmp_path: Path) -> None:
    splits = whole("cub")
    first, second, third = dataset_info("cub").classes("novel")[:3]
    del splits["novel"][first]
    splits["novel"][second] = splits["novel"][second][:5]
    splits["novel"][third].append("x.jpg")
    splits["novel"]["201.Dodo"] = ["dodo.jpg"]
    found = {difference.kind: difference for difference in compare(tmp_path, splits, "cub")}
    assert list(found) == ["missing", "extra", "short", "long"]
    assert found["missing"].sentence == f"novel: 1 class is missing: {first}."
    assert found["extra"].names == ("201.Dodo",)
    expected = dataset_info("cub").splits["novel"][second]
    assert f"{second} (5 of {expected})" in found["short"].sentence
    assert found["long"].names == (third,)
    del splits["val"]
    assert "The split val is missing." in [one.sentence for one in compare(tmp_path, splits, "cub")]


def test_split_of_nobody(tmp_path: Path) -> None:
    splits = whole("mini")
    name = dataset_info("mini").classes("novel")[0]
    splits["base"][name] = splits["novel"].pop(name)
    (difference,) = compare(tmp_path, splits, "mini")
    assert f"1 class is in another split than Ravi & Larochelle's: {name} belongs to novel" in difference.sentence
    assert "cannot be compared with published ones" in difference.sentence


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("mini", "mini"),
        ("miniimagenetimages", "mini"),
        ("CUB_200_2011", "cub"),
        ("tiered_imagenet", "tiered"),
        ("cifar-FS", "cifarfs"),
    ],
)
def test_folders_are_found_by_name(tmp_path: Path, folder: str, name: str) -> None:
    info = dataset_info(name)
    put(tmp_path, (f"{folder}/{NAMES[split]}/{info.classes(split)[0]}/a.jpg" for split in SPLITS))
    put(tmp_path, ["holiday/1.jpg", "glyphs/train.pkl"])
    by_name = {one.info.name: one for one in find_datasets(tmp_path)}
    assert (by_name[name].path, by_name[name].problem) == (tmp_path / folder, None)
    assert (by_name["glyphs"].listing, "found train.pkl" in str(by_name["glyphs"].problem)) == (None, True)
    assert other_folders(tmp_path) == ["holiday"]
    assert find_datasets(tmp_path / "gone") == []


def test_only_the_data_set_asked_for_is_scanned_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mini", "cub", "fc100", "cifarfs"):
        put(tmp_path / name, [f"test/{dataset_info(name).classes('novel')[0]}/a.jpg"])
    scanned = []

    def counted(root: Path, info: DatasetInfo | None) -> Listing:
        scanned.append(root.name)
        return scan_folder(root, info)

    monkeypatch.setattr("fsbench.data.scan.scan_folder", counted)
    (dataset,) = choose_datasets("mini", None, tmp_path, Reporter(quiet=True))
    assert (dataset.name, scanned) == ("mini", ["mini"])


def test_a_folder_of_another_split_counts_for_the_split_that_it_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path, (f"cub/{NAMES[split]}/{name}/a.jpg" for split in SPLITS for name in feat.classes(split)))
    (found,) = find_datasets(tmp_path)
    assert (found.info.name, found.named.name) == ("cub-feat", "cub")
    (dataset,) = choose_datasets("cub-feat", None, tmp_path, Reporter())
    assert dataset.split_digest == feat.split_digest
    assert f"cub-feat: images of {tmp_path / 'cub'}" in capsys.readouterr().err
    with pytest.raises(FsbenchError, match="use the name cub-feat"):
        choose_datasets("cub", None, tmp_path, Reporter(quiet=True))
    with pytest.raises(FsbenchError, match="is not under"):
        choose_datasets("cub-metadataset", None, tmp_path, Reporter(quiet=True))


@pytest.mark.parametrize(("folder", "name"), [("cub", "cub-feat"), ("cifarfs", "fc100")])
def test_class_folders_serve_every_split_of_their_images(tmp_path: Path, folder: str, name: str) -> None:
    info = dataset_info(name)
    put(tmp_path / folder, (f"{label}/a.jpg" for label in info.split_of))
    (dataset,) = choose_datasets(name, None, tmp_path, Reporter(quiet=True))
    assert (dataset.name, dataset.root, dataset.split_digest) == (name, tmp_path / folder, info.split_digest)
