from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.data.scan import load_dataset, scan_folder
from fsbench.errors import FsbenchError
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

MINI = dataset_info("mini")
CUB = dataset_info("cub")
NAMES = {"base": "train", "val": "val", "novel": "test"}


def mini_in_split_folders(root: Path, names: dict[str, str] = NAMES) -> Path:
    files = (f"{names[split]}/{name}/{name}00000001.jpg" for split in SPLITS for name in MINI.classes(split))
    return put(root, files)


@pytest.mark.parametrize(
    "names",
    [
        {"base": "train", "val": "val", "novel": "test"},
        {"base": "base", "val": "validation", "novel": "novel"},
        {"base": "meta-train", "val": "meta-val", "novel": "meta-test"},
        {"base": "Train", "val": "valid", "novel": "Test"},
    ],
)
def test_split_folders_in_all_spellings(tmp_path: Path, names: dict[str, str]) -> None:
    dataset = load_dataset(mini_in_split_folders(tmp_path, names), "miniimagenet")
    assert list(dataset.splits) == ["base", "val", "novel"]
    for split in SPLITS:
        assert dataset.splits[split].class_names == MINI.classes(split)
        assert len(dataset.splits[split]) == len(MINI.classes(split))
    assert dataset.split_digest == MINI.split_digest
    assert any("too few images" in note for note in dataset.notes)


def test_rows_are_sorted_by_class_then_file_name_and_open_in_rgb(tmp_path: Path) -> None:
    first, second = MINI.classes("novel")[:2]
    files = [f"test/{second}/b.jpg", f"test/{second}/a.jpg", f"test/{first}/z.jpg", f"test/{first}/y/c.jpg"]
    split = load_dataset(put(tmp_path, files), "mini").splits["novel"]
    assert split.sources == (
        f"test/{first}/y/c.jpg",
        f"test/{first}/z.jpg",
        f"test/{second}/a.jpg",
        f"test/{second}/b.jpg",
    )
    assert split.labels.tolist() == [0, 0, 1, 1]
    assert split.labels.dtype == np.int64
    assert split.open(3).mode == "RGB"
    assert split.image_name(2) == f"test/{second}/a.jpg"


def test_left_overs_are_ignored(tmp_path: Path) -> None:
    name = MINI.classes("novel")[0]
    put(tmp_path, [f"test/{name}/a.jpg"])
    put(
        tmp_path,
        [
            f"test/{name}/.DS_Store",
            f"test/{name}/._a.jpg",
            f"test/{name}/Thumbs.db",
            f"test/{name}/list.txt",
            "__MACOSX/test/x/a.jpg",
            "test/.ipynb_checkpoints/a.jpg",
        ],
    )
    split = load_dataset(tmp_path, "mini").splits["novel"]
    assert split.sources == (f"test/{name}/a.jpg",)


def test_all_layouts_list_the_same_images_in_the_same_order(tmp_path: Path) -> None:
    classes = {split: MINI.classes(split)[:2] for split in SPLITS}
    rows = {s: [(f"{c}{i:08d}.jpg", c) for c in classes[s] for i in (7, 3)] for s in SPLITS}
    put(tmp_path / "split", (f"{NAMES[s]}/{c}/{f}" for s in SPLITS for f, c in rows[s]))
    put(tmp_path / "class", (f"data/{c}/{f}" for s in SPLITS for f, c in rows[s]))
    put(tmp_path / "flat", (f"images/{f}" for s in SPLITS for f, c in rows[s]))
    for split in SPLITS:
        lines = ["filename,label", *(",".join(row) for row in rows[split])]
        (tmp_path / f"flat/{NAMES[split]}.csv").write_text("\n".join(lines))
    datasets = [load_dataset(tmp_path / layout, "mini") for layout in ("split", "class", "flat")]
    for one, other in itertools.pairwise(datasets):
        for split in SPLITS:
            mine, theirs = one.splits[split], other.splits[split]
            assert mine.class_names == theirs.class_names
            assert mine.labels.tolist() == theirs.labels.tolist()
            files = [[s.image_name(i).split("/")[-1] for i in range(len(s))] for s in (mine, theirs)]
            assert files[0] == files[1]


@pytest.mark.parametrize("where", ["images", "data", ".", "CUB_200_2011/images", "x/y/images"])
def test_class_folders_are_divided_by_the_catalog(tmp_path: Path, where: str) -> None:
    files = (f"{where}/{name}/{name[4:]}_0001_1.jpg" for name in sorted(CUB.split_of))
    put(tmp_path, [*files, "attributes.txt", "README"])
    for name in ("cub", "cub-feat", "cub-metadataset"):
        dataset = load_dataset(tmp_path, name)
        assert dataset.split_digest == dataset_info(name).split_digest
        assert dataset.name == name


def test_folders_of_no_class_are_left_out_and_named(tmp_path: Path) -> None:
    put(tmp_path, [f"images/{CUB.classes('novel')[0]}/a.jpg", "images/201.Dodo/a.jpg"])
    dataset = load_dataset(tmp_path, "cub")
    assert list(dataset.splits) == ["novel"]
    assert len(dataset.splits["novel"]) == 1
    assert any("201.Dodo" in note for note in dataset.notes)


def test_empty_class_folder_is_named(tmp_path: Path) -> None:
    first, second = MINI.classes("val")[:2]
    put(tmp_path, [f"val/{first}/a.jpg", f"val/{second}/.DS_Store"])
    with pytest.raises(FsbenchError, match=f"1 class folders .* hold no image: val: {second}"):
        load_dataset(tmp_path, "mini")


def test_class_in_two_splits_is_refused(tmp_path: Path) -> None:
    name = MINI.classes("val")[0]
    put(tmp_path, [f"val/{name}/a.jpg", f"test/{name}/b.jpg", f"test/{MINI.classes('novel')[0]}/c.jpg"])
    with pytest.raises(FsbenchError, match=rf"more than one split .*{name} \(val and novel\)"):
        load_dataset(tmp_path, "mini")


def test_wrong_split_is_refused_and_the_likely_one_named(tmp_path: Path) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path, (f"{NAMES[s]}/{name}/a.jpg" for s in SPLITS for name in feat.classes(s)))
    with pytest.raises(FsbenchError, match="looks like FEAT's split: use the name cub-feat"):
        load_dataset(tmp_path, "cub")
    assert load_dataset(tmp_path, "cub-feat").split_digest == feat.split_digest


def test_two_folders_for_one_split_are_refused(tmp_path: Path) -> None:
    name = MINI.classes("base")[0]
    put(tmp_path, [f"train/{name}/a.jpg", f"base/{name}/a.jpg"])
    with pytest.raises(FsbenchError, match="one folder for the split base, found base and train"):
        load_dataset(tmp_path, "mini")


def test_images_outside_class_folders_are_mentioned(tmp_path: Path) -> None:
    name = MINI.classes("novel")[0]
    put(tmp_path, [f"test/{name}/a.jpg", "test/stray.jpg", "test/stray2.jpg"])
    assert any("2 images directly in test/" in note for note in load_dataset(tmp_path, "mini").notes)


@pytest.mark.parametrize(("name", "tops"), [("mini", ("train", "val")), ("cub", ("train", "test"))])
def test_split_folders_with_the_same_classes_divide_images_only(
    tmp_path: Path, name: str, tops: tuple[str, str]
) -> None:
    """As in public copies of mini-ImageNet, CUB and CIFAR-100; equal file names must not collide."""
    info = dataset_info(name)
    dataset = load_dataset(put(tmp_path, (f"{top}/{label}/a.jpg" for top in tops for label in info.split_of)), name)
    assert dataset.split_digest == info.split_digest
    assert [len(dataset.splits[split]) for split in SPLITS] == [2 * len(info.classes(split)) for split in SPLITS]
    first = dataset.splits["novel"]
    assert {first.image_name(row) for row in (0, 1)} == {f"{top}/{first.class_names[0]}/a.jpg" for top in tops}
    told = [note for note in dataset.notes if "divide the images, not the classes" in note]
    assert len(told) == 1
    assert f"hold the same {len(info.split_of)} classes" in told[0]


def test_class_called_train_below_a_folder_called_train(tmp_path: Path) -> None:
    info = dataset_info("cifarfs")
    put(tmp_path, (f"{top}/{label}/{top}.png" for top in ("train", "test") for label in info.split_of))
    dataset = load_dataset(tmp_path, "cifarfs")
    assert dataset.split_digest == info.split_digest
    assert sum(map(len, dataset.splits.values())) == 200


def test_one_folder_with_all_classes_of_a_benchmark_is_no_split(tmp_path: Path) -> None:
    dataset = load_dataset(put(tmp_path, (f"train/{name}/a.jpg" for name in MINI.split_of)), "mini")
    assert dataset.split_digest == MINI.split_digest
    assert any("train/ holds all 100 classes" in note for note in dataset.notes)


def write_lists(root: Path, name: str, drop: int = 0) -> None:
    info = dataset_info(name)
    folder = root / "splits/bertinetto"
    folder.mkdir(parents=True)
    for split in SPLITS:
        lines = info.classes(split)[drop:] if split == "novel" else info.classes(split)
        (folder / f"{NAMES[split]}.txt").write_text("\n".join(reversed(lines)) + "\n")


def cifar_class_folders(root: Path) -> Path:
    return put(root, (f"data/{name}/{name}_s_1.png" for name in sorted(dataset_info("cifarfs").split_of)))


def test_text_lists_that_agree_with_the_catalog(tmp_path: Path) -> None:
    write_lists(cifar_class_folders(tmp_path), "cifarfs")
    dataset = load_dataset(tmp_path, "cifar-fs")
    assert dataset.split_digest == dataset_info("cifarfs").split_digest
    assert not any("lists" in note for note in dataset.notes)


def test_class_called_train_is_a_class(tmp_path: Path) -> None:
    files = (f"{name}/a.png" for name in sorted(dataset_info("cifarfs").split_of))
    dataset = load_dataset(put(tmp_path, files), "cifarfs")
    assert "train" in dataset.splits["base"].class_names
    assert dataset.split_digest == dataset_info("cifarfs").split_digest


def test_text_lists_of_the_other_cifar_set_are_noted(tmp_path: Path) -> None:
    write_lists(cifar_class_folders(tmp_path), "cifarfs")
    dataset = load_dataset(tmp_path, "fc100")
    assert dataset.split_digest == dataset_info("fc100").split_digest
    assert any("those of cifarfs" in note for note in dataset.notes)


def test_text_lists_that_disagree_with_the_catalog_are_refused(tmp_path: Path) -> None:
    write_lists(cifar_class_folders(tmp_path), "cifarfs", drop=1)
    lost = dataset_info("cifarfs").classes("novel")[0]
    with pytest.raises(FsbenchError, match=f"not those of cifarfs; first differences: {lost}"):
        load_dataset(tmp_path, "cifarfs")


def test_classes_of_something_else_are_refused(tmp_path: Path) -> None:
    put(tmp_path, ["train/cat/1.png", "test/dog/1.png"])
    with pytest.raises(FsbenchError, match=r"None of the 2 classes .* is one of mini-ImageNet: cat, dog"):
        load_dataset(tmp_path, "mini")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    name = MINI.classes("novel")[0]
    put(tmp_path, [f"test/{name}/\udcff.jpg"])
    with pytest.raises(FsbenchError, match=rf"test/{name}/\?\.jpg in .* is not valid UTF-8"):
        load_dataset(tmp_path, "mini")


def test_data_set_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    import pickle

    name = MINI.classes("novel")[0]
    dataset = load_dataset(put(tmp_path, [f"test/{name}/a.jpg"]), "mini")
    again = pickle.loads(pickle.dumps(dataset))
    assert again.split_digest == dataset.split_digest
    assert again.splits["novel"].open(0).size == (8, 8)


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="found an empty folder"):
        load_dataset(tmp_path, "mini")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="Expected a folder, found none"):
        load_dataset(tmp_path / "gone", "mini")


def test_unknown_layout_says_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, ["mini-imagenet-cache-train.pkl", "mini-imagenet-cache-test.pkl"])
    with pytest.raises(FsbenchError, match=r"holds mini-imagenet-cache-test\.pkl, mini-imagenet-cache-train\.pkl"):
        load_dataset(tmp_path, "mini")


def test_unreadable_folder_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, [f"test/{MINI.classes('novel')[0]}/a.jpg"])

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("fsbench.data.folders.os.scandir", refuse)
    with pytest.raises(FsbenchError, match=r"Could not read .*n\d+: Permission denied"):
        load_dataset(tmp_path, "mini")


def test_links_to_class_folders_are_followed_and_loops_end(tmp_path: Path) -> None:
    name = MINI.classes("novel")[0]
    put(tmp_path / "store", [f"{name}/a.jpg"])
    (tmp_path / "mini/test").mkdir(parents=True)
    (tmp_path / "mini/test" / name).symlink_to(tmp_path / "store" / name)
    (tmp_path / "store" / name / "loop").symlink_to(tmp_path / "store" / name)
    split = load_dataset(tmp_path / "mini", "mini").splits["novel"]
    assert split.sources == (f"test/{name}/a.jpg",)


def test_common_size(tmp_path: Path) -> None:
    from PIL import Image

    first, second = MINI.classes("novel")[:2]
    put(tmp_path, [f"test/{first}/a.png", f"test/{second}/a.png"])
    assert load_dataset(tmp_path, "mini").common_size() == (8, 8)
    Image.new("RGB", (9, 8)).save(tmp_path / f"test/{second}/a.png")
    assert load_dataset(tmp_path, "mini").common_size() is None


def test_scan_reports_what_load_refuses(tmp_path: Path) -> None:
    first, second = MINI.classes("val")[:2]
    put(tmp_path, [f"val/{first}/a.jpg", f"val/{second}/.DS_Store"])
    listing = scan_folder(tmp_path, MINI)
    assert listing.counts("val") == {first: 1}
    assert listing.empty_classes() == (f"val: {second}",)
