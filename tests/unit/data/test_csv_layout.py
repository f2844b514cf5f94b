from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.data.csv_layout import ImageRow, read_image_rows
from fsbench.data.scan import load_dataset, load_own, scan_folder
from fsbench.errors import FsbenchError
from tests.unit.data.trees import PNG, put

if TYPE_CHECKING:
    from pathlib import Path

BIRD, OTHER = dataset_info("cub").classes("novel")[:2]  # 004.Groove_billed_Ani, 008.Rhinoceros_Auklet
WNID, WNID2 = dataset_info("mini").classes("novel")[:2]


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["filename,label", "a.jpg,x"], [(2, "a.jpg", "x")]),
        (["a.jpg,x", "b.jpg,y"], [(1, "a.jpg", "x"), (2, "b.jpg", "y")]),
        (["class_name,image_name", "x,a.JPEG"], [(2, "a.JPEG", "x")]),
        ([",class_name,image_name", "0,x,a.JPEG"], [(2, "a.JPEG", "x")]),
        (["val_4_28_36847.png,28"], [(1, "val_4_28_36847.png", "28")]),
        (["filename, label, concept_label", "a.jpg, 3, 1"], [(2, "a.jpg", "3")]),
        (["x,a.jpg"], [(1, "a.jpg", "x")]),
        (["./a.jpg,x"], [(1, "./a.jpg", "x")]),
        (["file", "a.jpg"], [(2, "a.jpg", "")]),
        (["\ufefffilename,label", "", "a.jpg,x", ""], [(3, "a.jpg", "x")]),
        (["one,two", "x,a.jpg"], [(2, "a.jpg", "x")]),
        (['"a, b.jpg",x'], [(1, "a, b.jpg", "x")]),
    ],
)
def test_dialects(tmp_path: Path, lines: list[str], expected: list[tuple[int, str, str]]) -> None:
    path = write(tmp_path / "train.csv", *lines)
    assert read_image_rows(path) == [ImageRow(*row) for row in expected]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"\n\n", "empty file"),
        (b"filename,label\n", "found none"),
        (b"one,two\nthree,four\n", "found none"),
        (b"a.jpg,x\nb.jpg\n", "Expected 2 columns, found 1 in line 2"),
        (b"\xff\xfea.jpg", "Could not read .* as csv"),
        (b'"' + b"x" * 200_000, "Could not read .* as csv"),
    ],
)
def test_damaged_csv_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "train.csv").write_bytes(content)
    with pytest.raises(FsbenchError, match=message):
        read_image_rows(tmp_path / "train.csv")


@pytest.mark.parametrize("header", [[], ["filename,label"]])
@pytest.mark.parametrize(
    ("images", "csv"),
    [
        ("mini_imagenet", "mini_imagenet"),
        ("mini_imagenet/images", "mini_imagenet"),
        ("mini_imagenet/images", "mini_imagenet/split"),
        ("mini_imagenet/images", "mini_imagenet/splits/mini"),
        ("mini_imagenet/archive/images", "mini_imagenet/split"),
        ("mini_imagenet", "split/mini"),
        ("mini_imagenet", "../split/mini"),
    ],
)
def test_places_of_csv_files(tmp_path: Path, header: list[str], images: str, csv: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    put(data, [f"{images}/{WNID}00000001.jpg", f"{images}/{WNID}00000002.jpg"])
    write(data / csv / "test.csv", *header, f"{WNID}00000001.jpg,{WNID}", f"{WNID}00000002.jpg,{WNID}")
    split = load_dataset(data / "mini_imagenet", "mini").splits["novel"]
    assert len(split) == 2
    assert split.class_names == (WNID,)
    assert split.open(0).size == (8, 8)


def test_easy_calls_its_file_validation(tmp_path: Path) -> None:
    wnid = dataset_info("mini").classes("val")[0]
    put(tmp_path, [f"images/{wnid}00000001.jpg"])
    write(tmp_path / "validation.csv", "filename,label", f"{wnid}00000001.jpg,{wnid}")
    assert list(load_dataset(tmp_path, "mini").splits) == ["val"]


def test_class_folders_with_plain_imagenet_names(tmp_path: Path) -> None:
    put(tmp_path, [f"images/{WNID}/{WNID}_10026.JPEG", f"images/{WNID2}/{WNID2}_7.JPEG"])
    write(tmp_path / "test.csv", "class_name,image_name", f"{WNID},{WNID}_10026.JPEG", f"{WNID2},{WNID2}_7.JPEG")
    split = load_dataset(tmp_path, "mini").splits["novel"]
    assert split.sources == (f"images/{WNID}/{WNID}_10026.JPEG", f"images/{WNID2}/{WNID2}_7.JPEG")


def test_cub_csv_with_folder_part_keeps_its_first_row(tmp_path: Path) -> None:
    files = [f"{BIRD}/Groove_Billed_Ani_0065_1502.jpg", f"{BIRD}/Groove_Billed_Ani_0002_1.jpg"]
    put(tmp_path / "images", files)
    write(tmp_path / "test.csv", *(f"{file},3" for file in files))
    split = load_dataset(tmp_path, "cub").splits["novel"]
    assert split.class_names == (BIRD,)
    assert len(split) == 2


def test_cub_csv_with_bare_names_in_nested_folders(tmp_path: Path) -> None:
    put(tmp_path / "CUB_200_2011/images", [f"{BIRD}/Groove_Billed_Ani_0065_1502.jpg"])
    write(tmp_path / "split/test.csv", "filename,label", "Groove_Billed_Ani_0065_1502.jpg,0")
    assert load_dataset(tmp_path, "cub").splits["novel"].class_names == (BIRD,)


def test_cub_csv_with_bare_names_and_flat_images(tmp_path: Path) -> None:
    put(tmp_path / "images", ["Groove_Billed_Ani_0065_1502.jpg", "Rhinoceros_Auklet_0001_9.jpg"])
    write(tmp_path / "test.csv", "filename", "Groove_Billed_Ani_0065_1502.jpg", "Rhinoceros_Auklet_0001_9.jpg")
    assert load_dataset(tmp_path, "cub").splits["novel"].class_names == (BIRD, OTHER)


def test_letters_tell_all_birds_apart() -> None:
    names = sorted(dataset_info("cub").split_of)
    assert len({"".join(filter(str.isalpha, name.lower())) for name in names}) == 200


def tiered_csv(root: Path) -> Path:
    put(root, ["train_1_28_5.png", "val_4_28_36847.png", "val_4_3_1.png", "test_0_1_2.png"])
    write(root / "split/tiered/train.csv", "train_1_28_5.png,28")
    write(root / "split/tiered/val.csv", "val_4_28_36847.png,28", "val_4_3_1.png,3")
    write(root / "split/tiered/test.csv", "test_0_1_2.png,1")
    return root


def test_numbered_classes_of_tiered_are_kept_apart_by_split(tmp_path: Path) -> None:
    dataset = load_dataset(tiered_csv(tmp_path), "tiered")
    assert dataset.splits["base"].class_names == ("base-0028",)
    assert dataset.splits["val"].class_names == ("val-0003", "val-0028")
    assert len(dataset.splits["val"]) == 2
    assert any("wnids" in note for note in dataset.notes)
    assert any("expected 97 classes with 124,261 images, found 2 with 2" in note for note in dataset.notes)


def test_missing_files_are_counted_and_the_first_named(tmp_path: Path) -> None:
    put(tmp_path, [f"images/{WNID}00000001.jpg"])
    names = [f"{WNID}{i:08d}.jpg" for i in range(1, 8)]
    write(tmp_path / "test.csv", "filename,label", *(f"{name},{WNID}" for name in names))
    with pytest.raises(FsbenchError, match=f"6 files .* missing: {names[1]}, {names[2]}, {names[3]} and 3 more"):
        load_dataset(tmp_path, "mini")
    assert scan_folder(tmp_path, dataset_info("mini")).counts("novel") == {WNID: 1}


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "images/../../secret.png", "..\\secret.png"])
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.png").write_bytes(PNG)
    put(tmp_path / "mini", ["images/a.png"])
    write(tmp_path / "mini/test.csv", f"{name},{WNID}")
    with pytest.raises(FsbenchError, match="Expected file names inside"):
        load_dataset(tmp_path / "mini", "mini")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_that_lead_outside_are_refused(tmp_path: Path, kind: str) -> None:
    put(tmp_path, ["store/a.png", "mini/images/b.png"])
    if kind == "file":
        (tmp_path / "mini/images/a.png").symlink_to(tmp_path / "store/a.png")
        write(tmp_path / "mini/test.csv", f"a.png,{WNID}")
    else:
        (tmp_path / "mini/images/more").symlink_to(tmp_path / "store")
        write(tmp_path / "mini/test.csv", f"more/a.png,{WNID}")
    with pytest.raises(FsbenchError, match="leads out of"):
        load_dataset(tmp_path / "mini", "mini")


def test_links_inside_and_a_linked_root_are_fine(tmp_path: Path) -> None:
    put(tmp_path / "store", ["images/a.png"])
    (tmp_path / "store/images/b.png").symlink_to("a.png")
    write(tmp_path / "store/test.csv", f"a.png,{WNID}", f"b.png,{WNID}")
    (tmp_path / "mini").symlink_to(tmp_path / "store")
    assert len(load_dataset(tmp_path / "mini", "mini").splits["novel"]) == 2


def test_ambiguous_name_is_refused_unless_the_class_decides(tmp_path: Path) -> None:
    put(tmp_path, [f"images/{WNID}/1.png", f"images/{WNID2}/1.png"])
    write(tmp_path / "test.csv", f"1.png,{WNID2}")
    assert load_dataset(tmp_path, "mini").splits["novel"].sources == (f"images/{WNID2}/1.png",)
    write(tmp_path / "test.csv", "1.png,5")
    with pytest.raises(FsbenchError, match=r"'1\.png' fits 2 files"):
        load_dataset(tmp_path, "mini")


def test_label_against_folder_is_refused(tmp_path: Path) -> None:
    put(tmp_path, [f"images/{WNID}/a.png"])
    write(tmp_path / "test.csv", f"{WNID}/a.png,{WNID2}")
    with pytest.raises(FsbenchError, match=f"says {WNID2}, but .* folder of {WNID}"):
        load_dataset(tmp_path, "mini")


def test_repeated_rows_count_once_and_are_mentioned(tmp_path: Path) -> None:
    put(tmp_path, ["images/a.png", "images/b.png"])
    write(tmp_path / "test.csv", f"a.png,{WNID}", f"b.png,{WNID}", f"a.png,{WNID}")
    dataset = load_dataset(tmp_path, "mini")
    assert len(dataset.splits["novel"]) == 2
    assert any("1 rows" in note for note in dataset.notes)


def test_image_with_two_splits_is_refused(tmp_path: Path) -> None:
    put(tmp_path, ["a.png"])
    write(tmp_path / "train.csv", "a.png,cat")
    write(tmp_path / "test.csv", "a.png,dog")
    with pytest.raises(FsbenchError, match=r"a\.png is base cat, and novel dog in line 1"):
        load_own(tmp_path)


def test_row_without_any_class_is_refused(tmp_path: Path) -> None:
    put(tmp_path, ["a.png"])
    write(tmp_path / "test.csv", "a.png")
    with pytest.raises(FsbenchError, match=r"The class of 'a\.png' in line 1 .* is unknown"):
        load_own(tmp_path)


def test_two_files_for_one_split_are_refused(tmp_path: Path) -> None:
    put(tmp_path, ["a.png"])
    write(tmp_path / "val.csv", "a.png,x")
    write(tmp_path / "validation.csv", "a.png,x")
    with pytest.raises(FsbenchError, match=r"found val\.csv and validation\.csv"):
        load_own(tmp_path)


def test_own_data_by_csv(tmp_path: Path) -> None:
    put(tmp_path, ["images/a.png", "images/b.png", "images/c.png"])
    for split, file in zip(SPLITS, "abc", strict=True):
        write(tmp_path / f"{split}.csv", f"{file}.png,class {file}")
    dataset = load_own(tmp_path)
    assert {name: split.class_names for name, split in dataset.splits.items()} == {
        "base": ("class a",),
        "val": ("class b",),
        "novel": ("class c",),
    }
