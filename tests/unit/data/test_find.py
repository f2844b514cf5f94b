"""Benchmarks under a data root: found by the names of their folders, and compared with the catalog."""

from pathlib import Path

import pytest

from fsbench.data.catalog import SPLITS, DatasetInfo, dataset_info
from fsbench.data.dataset import FolderImages, Listing
from fsbench.data.scan import choose_datasets, differences, find_datasets, wrong_split
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.comparing import QUIET
from tests.unit.data.trees import put

NAMES = {"base": "train", "val": "val", "novel": "test"}


def whole(root: Path, name: str) -> tuple[dict[str, dict[str, list[str]]], Listing, DatasetInfo]:
    """A data set of which nothing is missing: its splits, and the listing that holds them."""
    info = dataset_info(name)
    splits = {
        split: {label: [f"{label}/{i}.jpg" for i in range(count)] for label, count in classes.items()}
        for split, classes in info.splits.items()
    }
    return splits, Listing(root, "test", FolderImages(root), splits), info


def test_missing_extra_short_and_long_classes_are_named(tmp_path: Path) -> None:
    splits, listing, info = whole(tmp_path, "cub")
    assert (differences(listing, info), wrong_split(listing, info)) == ([], "")
    first, second, third = info.classes("novel")[:3]
    short, long = info.splits["novel"][second], info.splits["novel"][third]
    del splits["novel"][first]
    splits["novel"][second] = splits["novel"][second][:5]
    splits["novel"][third].append("x.jpg")
    splits["novel"]["201.Dodo"] = ["dodo.jpg"]
    assert differences(listing, info) == [
        f"Missing novel classes: {first}.",
        "Folders that are not classes of CUB-200-2011: 201.Dodo.",
        f"Classes with another number of images: {second} (5 of {short}), {third} ({long + 1} of {long}).",
    ]


def test_folders_are_found_by_name(tmp_path: Path) -> None:
    put(tmp_path, ["holiday/1.jpg", "CUB_200_2011/x", "cifar-100-python/x", "tiered_imagenet/x"])
    names = ("cub CUB_200_2011", "tiered tiered_imagenet", "fc100 cifar-100-python", "cifarfs cifar-100-python")
    assert {f"{name} {path.relative_to(tmp_path)}" for name, path in find_datasets(tmp_path)} == set(names)
    assert find_datasets(tmp_path / "gone") == []


def test_without_names_all_that_can_be_used_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mini", "cub"):
        put(tmp_path / name, [f"test/{dataset_info(name).classes('novel')[0]}/a.jpg"])
    put(tmp_path, ["tiered/train.pkl"])
    assert [dataset.name for dataset in choose_datasets(None, None, tmp_path, Reporter())] == ["cub", "mini"]
    assert f"{tmp_path / 'tiered'} is left out" in " ".join(capsys.readouterr().err.split())


def test_a_folder_counts_for_the_split_that_it_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path, (f"cub/{NAMES[split]}/{name}/a.jpg" for split in SPLITS for name in feat.classes(split)))
    (dataset,) = choose_datasets("cub-feat", None, tmp_path, Reporter())
    assert dataset.split_digest == feat.split_digest
    assert f"cub-feat: images of {tmp_path / 'cub'}" in capsys.readouterr().err
    for name in ("cub", "cub-metadataset"):
        with pytest.raises(FsbenchError, match="use the name cub-feat"):
            choose_datasets(name, None, tmp_path, QUIET)
