"""Benchmarks: their published classes, found by the names of their folders, and compared with the catalog."""

from pathlib import Path

import pytest

from fsbench.data.catalog import SPLIT_WORDS, SPLITS, DatasetInfo, dataset_info, find_info, split_digest
from fsbench.data.dataset import FolderImages, Listing
from fsbench.data.scan import choose_datasets, differences, find_datasets, wrong_split
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.comparing import QUIET
from tests.unit.data.trees import put

# Computed with other code from the published lists: sha256 of {"base":[...],"val":[...],"novel":[...]}.
DIGESTS = {
    "mini": "1726d2e96fa8055086fb4812dd5a0e864c06295fee3502c4e53a29368c46e718",
    "mini-vinyals": "9a9f8a77e6f5c28d1fae01f42572371d82322ba9387130d1aaf28e51b201ffc1",
    "tiered": "519ec3e7a3544d33c0462ff74f009e0f3e1d0b907d29a003fc8055b4b283b9da",
    "cub": "d1805523555d354858fcd72f8d2b5192a020cbe87489cd9d4a93c5f27d17f59a",
    "cub-feat": "301e43012cb770b3511c731744915010db07f1064424e0476fd35f4252a200d0",
    "cub-metadataset": "f6da51b11c46655c0cc4e92d67f5e2660303478f61e5f5643a174fa82cc812cb",
    "fc100": "00b9b2f8e95db4444a2d9f9b79947c88ccc35cc793ab89ea060d9118c2bf370b",
    "cifarfs": "b8e4422a1c408b555610b3ec719d29c3f4fef9a87f2ab686a7a7284afbabf959",
}

# Classes and images of base, val and novel, as the articles state them.
COUNTS = {
    "mini": [(64, 38400), (16, 9600), (20, 12000)],
    "tiered": [(351, 448695), (97, 124261), (160, 206209)],
    "cub": [(100, 5885), (50, 2950), (50, 2953)],
    "cub-feat": [(100, 5891), (50, 2932), (50, 2965)],
    "cub-metadataset": [(140, 8239), (30, 1779), (30, 1770)],
    "fc100": [(60, 36000), (20, 12000), (20, 12000)],
    "cifarfs": [(64, 38400), (16, 9600), (20, 12000)],
}


@pytest.mark.parametrize("name", DIGESTS)
def test_class_lists_and_counts_are_the_published_ones(name: str) -> None:
    info = dataset_info(name)
    assert split_digest(info.splits) == DIGESTS[name]
    counts = [(len(info.classes(split)), sum(info.splits[split].values())) for split in SPLITS]
    assert counts == COUNTS.get(name, counts)


def test_what_people_type_is_understood() -> None:
    typed = {"mini": "miniImageNet", "tiered": "tieredImageNet", "cub": "CUB_200_2011", "cub-feat": "cub_feat"}
    for name, text in {**typed, "cifarfs": "CIFAR_FS"}.items():
        assert dataset_info(text) is dataset_info(name)
    assert find_info("my-photos") is None
    with pytest.raises(FsbenchError, match="Did you mean 'tiered'"):
        dataset_info("tierd")
    splits = [SPLIT_WORDS[text] for text in ("train", "validation", "test", "meta-val", "meta-test")]
    assert splits == ["base", "val", "novel", "val", "novel"]


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
    assert dataset.split_digest == split_digest(feat.splits)
    assert f"cub-feat: images of {tmp_path / 'cub'}" in capsys.readouterr().err
    for name in ("cub", "cub-metadataset"):
        with pytest.raises(FsbenchError, match="use the name cub-feat"):
            choose_datasets(name, None, tmp_path, QUIET)
