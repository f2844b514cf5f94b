"""Benchmarks under a data root: found by the names of their folders, and compared with the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.data.dataset import FolderImages, Listing
from fsbench.data.layouts import list_folder
from fsbench.data.scan import choose_datasets, differences, find_datasets, wrong_split
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo

QUIET = Reporter(quiet=True)
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
    del splits["val"]
    assert any(sentence.endswith("and 47 more.") for sentence in differences(listing, info))


def test_split_of_nobody(tmp_path: Path) -> None:
    splits, listing, info = whole(tmp_path, "mini")
    name = info.classes("novel")[0]
    splits["base"][name] = splits["novel"].pop(name)
    sentence = wrong_split(listing, info)
    assert f"another split than Ravi & Larochelle's: {name} belongs to novel, found in base." in sentence
    assert "cannot be compared with published ones" in sentence


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("miniimagenetimages", ["mini"]),
        ("CUB_200_2011", ["cub"]),
        ("tiered_imagenet", ["tiered"]),
        ("cifar-FS", ["cifarfs"]),
        ("cifar-100-python", ["fc100", "cifarfs"]),
    ],
)
def test_folders_are_found_by_name(tmp_path: Path, folder: str, names: list[str]) -> None:
    put(tmp_path, ["holiday/1.jpg", f"{folder}/x"])
    assert find_datasets(tmp_path) == [(name, tmp_path / folder) for name in names]
    assert find_datasets(tmp_path / "gone") == []


def test_only_the_data_set_asked_for_is_listed_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mini", "cub", "fc100", "cifarfs"):
        put(tmp_path / name, [f"test/{dataset_info(name).classes('novel')[0]}/a.jpg"])
    listed = []

    def counted(root: Path, info: DatasetInfo | None) -> Listing:
        listed.append(root.name)
        return list_folder(root, info)

    monkeypatch.setattr("fsbench.data.scan.list_folder", counted)
    (dataset,) = choose_datasets("mini", None, tmp_path, QUIET)
    assert (dataset.name, listed) == ("mini", ["mini"])


def test_without_names_all_that_can_be_used_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mini", "cub"):
        put(tmp_path / name, [f"test/{dataset_info(name).classes('novel')[0]}/a.jpg"])
    put(tmp_path, ["tiered/train.pkl"])
    assert [dataset.name for dataset in choose_datasets(None, None, tmp_path, Reporter())] == ["cub", "mini"]
    assert f"{tmp_path / 'tiered'} is left out" in " ".join(capsys.readouterr().err.split())


def test_a_folder_of_another_split_counts_for_the_split_that_it_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path, (f"cub/{NAMES[split]}/{name}/a.jpg" for split in SPLITS for name in feat.classes(split)))
    (dataset,) = choose_datasets("cub-feat", None, tmp_path, Reporter())
    assert dataset.split_digest == feat.split_digest
    assert f"cub-feat: images of {tmp_path / 'cub'}" in capsys.readouterr().err
    for name in ("cub", "cub-metadataset"):
        with pytest.raises(FsbenchError, match="use the name cub-feat"):
            choose_datasets(name, None, tmp_path, QUIET)
    with pytest.raises(FsbenchError, match="mini-ImageNet is not under"):
        choose_datasets("mini", None, tmp_path, QUIET)


@pytest.mark.parametrize(("folder", "name"), [("cub", "cub-feat"), ("cifarfs", "fc100")])
def test_class_folders_serve_every_split_of_their_images(tmp_path: Path, folder: str, name: str) -> None:
    info = dataset_info(name)
    put(tmp_path / folder, (f"{label}/a.jpg" for label in info.split_of))
    (dataset,) = choose_datasets(name, None, tmp_path, QUIET)
    assert (dataset.name, dataset.root, dataset.split_digest) == (name, tmp_path / folder, info.split_digest)
