from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.data.check import compare_with_catalog, nearest_variant
from fsbench.data.choose import choose_datasets
from fsbench.data.dataset import FolderImages, Listing
from fsbench.data.scan import accept, find_datasets, other_folders, scan_folder
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.unit.data.trees import put, write_cifar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.check import Difference

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


@pytest.mark.parametrize("name", ["mini", "cub", "cub-feat", "cifarfs", "fc100"])
def test_whole_data_set_has_no_differences(tmp_path: Path, name: str) -> None:
    assert compare(tmp_path, whole(name), name) == ()


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


def test_missing_split_is_one_sentence(tmp_path: Path) -> None:
    splits = whole("mini")
    del splits["val"]
    (difference,) = compare(tmp_path, splits, "mini")
    assert (difference.kind, difference.sentence) == ("missing split", "The split val is missing.")


def test_feat_split_under_the_name_cub(tmp_path: Path) -> None:
    differences = compare(tmp_path, whole("cub-feat"), "cub")
    assert differences[0].kind == "wrong split"
    assert "looks like FEAT's split: use the name cub-feat" in differences[0].sentence
    cub, feat = dataset_info("cub"), dataset_info("cub-feat")
    moved = [name for name in cub.split_of if cub.split_of[name] != feat.split_of[name]]
    assert sorted(differences[0].names) == sorted(moved)


def test_split_of_nobody(tmp_path: Path) -> None:
    splits = whole("mini")
    name = dataset_info("mini").classes("novel")[0]
    splits["base"][name] = splits["novel"].pop(name)
    (difference,) = compare(tmp_path, splits, "mini")
    assert f"1 class is in another split than Ravi & Larochelle's: {name} belongs to novel" in difference.sentence
    assert "cannot be compared with published ones" in difference.sentence


def test_class_in_two_splits_is_not_also_a_wrong_split(tmp_path: Path) -> None:
    splits = whole("mini")
    name = dataset_info("mini").classes("novel")[0]
    splits["base"][name] = ["again.jpg"]
    kinds = [difference.kind for difference in compare(tmp_path, splits, "mini")]
    assert kinds[0] == "two splits"
    assert "wrong split" not in kinds


def test_numbered_classes_are_compared_by_their_sizes(tmp_path: Path) -> None:
    info = dataset_info("tiered")
    splits = {
        split: {f"{split}-{i:04d}": range(count) for i, count in enumerate(sorted(info.splits[split].values()))}
        for split in SPLITS
    }
    listing = Listing(tmp_path, "test", FolderImages(tmp_path), splits, anonymous=True)
    assert compare_with_catalog(listing, info) == ()
    shorter = {**splits, "val": {**splits["val"], "val-0000": range(9)}}
    listing = Listing(tmp_path, "test", FolderImages(tmp_path), shorter, anonymous=True)
    assert [difference.kind for difference in compare_with_catalog(listing, info)] == ["sizes"]


def test_half_a_feat_split_is_still_recognised(tmp_path: Path) -> None:
    splits = {"novel": dict(list(whole("cub-feat")["novel"].items())[:10])}
    listing = Listing(tmp_path, "test", FolderImages(tmp_path), splits)
    assert nearest_variant(listing, dataset_info("cub")).name == "cub-feat"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("mini", "mini"),
        ("miniimagenet", "mini"),
        ("mini_imagenet", "mini"),
        ("miniimagenetimages", "mini"),
        ("CUB_200_2011", "cub"),
        ("cub", "cub"),
        ("tiered_imagenet", "tiered"),
        ("FC100", "fc100"),
        ("cifar_fs", "cifarfs"),
        ("cifar-FS", "cifarfs"),
    ],
)
def test_folders_are_found_by_name(tmp_path: Path, folder: str, name: str) -> None:
    info = dataset_info(name)
    put(tmp_path, (f"{folder}/{NAMES[split]}/{info.classes(split)[0]}/a.jpg" for split in SPLITS))
    (tmp_path / "holiday").mkdir()
    (found,) = find_datasets(tmp_path)
    assert (found.info.name, found.path, found.problem) == (name, tmp_path / folder, None)
    assert other_folders(tmp_path) == ["holiday"]


def test_raw_cifar_counts_for_both_data_sets(tmp_path: Path) -> None:
    names = sorted(dataset_info("fc100").split_of)
    write_cifar(tmp_path / "cifar-100-python", names, {"train": list(range(100)), "test": []})
    assert [found.info.name for found in find_datasets(tmp_path)] == ["fc100", "cifarfs"]


def test_feat_split_in_a_folder_called_cub_is_found_as_such(tmp_path: Path) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path, (f"cub/{NAMES[split]}/{name}/a.jpg" for split in SPLITS for name in feat.classes(split)))
    (found,) = find_datasets(tmp_path)
    assert (found.info.name, found.named.name) == ("cub-feat", "cub")
    assert found.listing is not None
    assert accept(found.listing, found.info).split_digest == feat.split_digest


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


def test_the_root_itself_may_be_the_data_set(tmp_path: Path) -> None:
    root = put(tmp_path / "CUB_200_2011", [f"images/{dataset_info('cub').classes('val')[0]}/a.jpg"])
    assert [found.info.name for found in find_datasets(root)] == ["cub"]


def test_a_folder_that_cannot_be_read_is_reported_not_raised(tmp_path: Path) -> None:
    put(tmp_path, ["mini/train.pkl"])
    (found,) = find_datasets(tmp_path)
    assert found.listing is None
    assert "no layout that is known" in str(found.problem)


def test_nothing_is_found_in_no_folder(tmp_path: Path) -> None:
    assert find_datasets(tmp_path / "gone") == []
    assert find_datasets(tmp_path) == []


def test_scan_of_half_a_csv_data_set_counts_what_is_there(tmp_path: Path) -> None:
    info = dataset_info("mini")
    wnid = info.classes("novel")[0]
    put(tmp_path, [f"images/{wnid}00000001.jpg"])
    (tmp_path / "test.csv").write_text(f"filename,label\n{wnid}00000001.jpg,{wnid}\n{wnid}00000002.jpg,{wnid}\n")
    differences = compare_with_catalog(scan_folder(tmp_path, info), info)
    assert differences[0].sentence == f"1 file is missing: {wnid}00000002.jpg."
