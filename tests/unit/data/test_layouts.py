"""Every layout in which data sets circulate is read, and lists the same images in the same order."""

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsbench.data.catalog import SPLITS, dataset_info, split_digest
from fsbench.data.layouts import read_image_rows
from fsbench.data.scan import OwnData, load_dataset
from fsbench.errors import FsbenchError
from tests.unit.data.trees import put, write_cifar

MINI, CUB, CIFARFS = (dataset_info(name) for name in ("mini", "cub", "cifarfs"))
NAMES = {"base": "train", "val": "val", "novel": "test"}
WNID, WNID2 = MINI.classes("novel")[:2]
BIRD = CUB.classes("novel")[0]  # 004.Groove_billed_Ani


def write(path: Path, *lines: str) -> Path:
    return put(path.parent, [path.name], "\n".join([*lines, ""]).encode()) / path.name


class TestFolders:
    def test_rows_are_sorted_by_class_then_file_name_without_left_overs(self, tmp_path: Path) -> None:
        images = (f"test/{WNID}/y/c.jpg", f"test/{WNID}/z.jpg", f"test/{WNID2}/a.jpg", f"test/{WNID2}/b.jpg")
        rest = [f"test/{WNID}/{name}" for name in (".DS_Store", "._a.jpg", "Thumbs.db", "list.txt")]
        put(tmp_path, [*images[::-1], *rest, "__MACOSX/test/x/a.jpg", "test/.ipynb_checkpoints/a.jpg"])
        dataset = load_dataset(tmp_path, "mini")
        split = dataset.splits["novel"]
        assert split.images == images
        assert split.labels.tolist() == [0, 0, 1, 1]
        assert (split.open(3).mode, dataset.common_side()) == ("RGB", 8)
        Image.new("RGB", (9, 8)).save(tmp_path / images[1])  # not the first of its class
        assert dataset.common_side() is None

    @pytest.mark.parametrize("where", ["images", "data", ".", "CUB_200_2011/images"])
    def test_class_folders_are_divided_by_the_catalog(self, tmp_path: Path, where: str) -> None:
        files = (f"{where}/{name}/{name[4:]}_0001_1.jpg" for name in sorted(CUB.split_of))
        put(tmp_path, [*files, "attributes.txt", "README"])
        for name in ("cub", "cub-feat", "cub-metadataset"):
            assert load_dataset(tmp_path, name).split_digest == split_digest(dataset_info(name).splits)

    def test_folders_with_the_same_classes_divide_images_only(self, tmp_path: Path) -> None:
        """As in public copies of benchmarks; equal file names must not collide, and CIFAR has a class `train`."""
        flat = load_dataset(put(tmp_path / "flat", (f"{label}/a.jpg" for label in CIFARFS.split_of)), "cifarfs")
        put(tmp_path / "tops", (f"{top}/{label}/a.jpg" for top in ("train", "test") for label in CIFARFS.split_of))
        dataset = load_dataset(tmp_path / "tops", "cifarfs")
        assert dataset.split_digest == flat.split_digest == split_digest(CIFARFS.splits)
        first = dataset.splits["novel"]
        assert set(first.images[:2]) == {f"{top}/{first.class_names[0]}/a.jpg" for top in ("train", "test")}
        assert len([note for note in dataset.notes if "divide the images, not the classes" in note]) == 1

    def test_linked_class_folders_are_followed_and_loops_end(self, tmp_path: Path) -> None:
        put(tmp_path / "store", [f"{WNID}/a.jpg"])
        (tmp_path / "mini/test").mkdir(parents=True)
        (tmp_path / "mini/test" / WNID).symlink_to(tmp_path / "store" / WNID)
        (tmp_path / "store" / WNID / "loop").symlink_to(tmp_path / "store" / WNID)
        assert load_dataset(tmp_path / "mini", "mini").splits["novel"].images == (f"test/{WNID}/a.jpg",)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([f"val/{WNID}/a.jpg", f"test/{WNID}/b.jpg", f"test/{WNID2}/c.jpg"], f"{WNID} belongs to novel, found in val"),
        (["val/x/a.jpg", "test/x/b.jpg", f"test/{WNID}/c.jpg"], r"in more than one split: x \(val and novel\)"),
        ([f"train/{WNID}/a.jpg", f"base/{WNID}/a.jpg"], "split base is there twice .*: base and train"),
        (["train/cat/1.png", "test/dog/1.png"], "None of the 2 classes .* is one of mini-ImageNet: cat, dog"),
        ([f"test/{WNID}/\udcff.jpg"], rf"test/{WNID}/\?\.jpg in .* is not valid UTF-8"),
        (["mini-imagenet-cache-train.pkl"], r"found mini-imagenet-cache-train\.pkl"),
    ],
)
def test_unfit_folders_are_refused(tmp_path: Path, files: list[str], words: str) -> None:
    with pytest.raises(FsbenchError, match=words):
        load_dataset(put(tmp_path, files), "mini")


def test_all_layouts_list_the_same_images_in_the_same_order(tmp_path: Path) -> None:
    rows = {s: [(f"{c}{i:08d}.jpg", c) for c in MINI.classes(s)[:2] for i in (7, 3)] for s in SPLITS}
    put(tmp_path / "split", (f"{NAMES[s]}/{c}/{f}" for s in SPLITS for f, c in rows[s]))
    put(tmp_path / "class", (f"data/{c}/{f}" for s in SPLITS for f, c in rows[s]))
    put(tmp_path / "flat", (f"images/{f}" for s in SPLITS for f, c in rows[s]))
    for split in SPLITS:
        write(tmp_path / f"flat/{NAMES[split]}.csv", "filename,label", *(",".join(row) for row in rows[split]))
    datasets = [load_dataset(tmp_path / layout, "mini") for layout in ("split", "class", "flat")]
    for (one, other), split in itertools.product(itertools.pairwise(datasets), SPLITS):
        mine, theirs = one.splits[split], other.splits[split]
        assert mine.class_names == theirs.class_names
        assert mine.labels.tolist() == theirs.labels.tolist()
        assert [name.split("/")[-1] for name in mine.images] == [name.split("/")[-1] for name in theirs.images]


class TestCsv:
    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            (["a.jpg,x", "b.jpg,y"], [(1, "a.jpg", "x"), (2, "b.jpg", "y")]),
            ([",class_name,image_name", "0,x,a.JPEG"], [(2, "a.JPEG", "x")]),
            (["filename, label, concept_label", "a.jpg, 3, 1"], [(2, "a.jpg", "3")]),
            (["\ufefffilename,label", "", '"a, b.jpg",x', ""], [(3, "a, b.jpg", "x")]),
            (["filename,labelled_by,Species", "a.jpg,x,y"], [(2, "a.jpg", "y")]),
            ([",filename,breed", "0,a.jpg,x"], [(2, "a.jpg", "x")]),
        ],
    )
    def test_dialects(self, tmp_path: Path, lines: list[str], expected: list[tuple[int, str, str]]) -> None:
        assert read_image_rows(write(tmp_path / "train.csv", *lines)) == expected

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"\n\n", "empty file"),
            (b"one,two\nthree,four\n", "Expected columns"),
            (b"a.jpg,x\nb.jpg\n", "Line 2 .* has 1 columns"),
            (b"filename,box,breed\na.jpg,1,x\n", "several columns that may hold the class: box, breed"),
            (b"filename,label,species\na.jpg,1,x\n", "several columns that may hold the class: label, species"),
            (b"a.jpg,1,x\n", "several columns that may hold the class: column 2, column 3"),
            (b"\xff\xfea.jpg", "Could not read .* as csv"),
        ],
    )
    def test_damaged_csv_is_named(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "train.csv").write_bytes(content)
        with pytest.raises(FsbenchError, match=message):
            read_image_rows(tmp_path / "train.csv")

    def test_numbered_classes_are_named_by_their_folders(self, tmp_path: Path) -> None:
        """As in the csv files of TIM and EASY."""
        put(tmp_path / "images", [f"{BIRD}/Groove_Billed_Ani_0065_1502.jpg"])
        for file in (f"{BIRD}/Groove_Billed_Ani_0065_1502.jpg", "Groove_Billed_Ani_0065_1502.jpg"):
            write(tmp_path / "split/test.csv", "filename,label", f"{file},3")
            assert load_dataset(tmp_path, "cub").splits["novel"].class_names == (BIRD,)

    def test_missing_files_are_counted_and_the_first_named(self, tmp_path: Path) -> None:
        put(tmp_path, [f"images/{WNID}00000001.jpg"])
        names = [f"{WNID}{i:08d}.jpg" for i in range(1, 8)]
        write(tmp_path / "test.csv", "filename,label", *(f"{name},{WNID}" for name in names))
        with pytest.raises(FsbenchError, match=f"6 images that .*: {names[1]}, {names[2]}, {names[3]} and 3 more"):
            load_dataset(tmp_path, "mini")

    def test_ambiguous_name_is_refused_unless_the_class_decides(self, tmp_path: Path) -> None:
        put(tmp_path, [f"images/{WNID}/1.png", f"images/{WNID2}/1.png"])
        write(tmp_path / "test.csv", f"1.png,{WNID2}")
        assert load_dataset(tmp_path, "mini").splits["novel"].images == (f"images/{WNID2}/1.png",)
        (tmp_path / "images" / WNID / "1.png").unlink()
        write(tmp_path / "test.csv", f"1.png,{WNID2}", f"1.png,{WNID}")  # not that of another class
        with pytest.raises(FsbenchError, match="1 images that"):
            load_dataset(tmp_path, "mini")
        put(tmp_path, [f"images/{WNID}/1.png"])
        write(tmp_path / "test.csv", "1.png,5")
        with pytest.raises(FsbenchError, match=r"'1\.png' in line 1 .* fits 2 files"):
            load_dataset(tmp_path, "mini")

    def test_contradictions_are_refused_and_repetitions_are_not(self, tmp_path: Path) -> None:
        put(tmp_path / "zoo", ["a.png", "b.png"])
        write(tmp_path / "zoo/train.csv", "a.png,cat", "b.png,cat", "a.png,cat")
        assert len(OwnData(tmp_path / "zoo").load().splits["base"]) == 2
        write(tmp_path / "zoo/test.csv", "a.png,dog")
        with pytest.raises(FsbenchError, match=r"a\.png is base cat, and novel dog in line 1"):
            OwnData(tmp_path / "zoo").load()


FINE = sorted(dataset_info("fc100").split_of)


class TestCifar:
    @pytest.mark.parametrize("name", ["fc100", "cifarfs"])
    def test_both_parts_are_merged_and_split_by_class(self, tmp_path: Path, name: str) -> None:
        labels = {"train": list(range(100)) * 2, "test": list(range(100))}
        data = write_cifar(tmp_path / "cifar-100-python", FINE, labels)
        dataset, info = load_dataset(tmp_path, name), dataset_info(name)
        assert dataset.split_digest == split_digest(info.splits)
        for split in dataset.splits.values():
            assert np.bincount(split.labels).tolist() == [3] * len(info.classes(split.name))
            assert list(split.images[:3]) == sorted(split.images[:3], key=lambda image: image.split("/")[1])
            for row in range(0, len(split), 7):
                part, file = split.images[row].split("/")
                original = len(labels[part]) - int(file[4:10])
                assert FINE[labels[part][original]] == split.class_names[split.labels[row]]
                planes = data[part][original].reshape(3, 32, 32)
                assert (np.asarray(split.open(row)) == planes.transpose(1, 2, 0)).all()
                assert split.reader.content(split.images[row]) == data[part][original].tobytes()

    @pytest.mark.parametrize(
        ("key", "value"), [(b"data", np.zeros((2, 3071), np.uint8)), (b"fine_labels", [0, 100]), (b"filenames", 3)]
    )
    def test_wrong_content_is_refused(self, tmp_path: Path, key: bytes, value: object) -> None:
        write_cifar(tmp_path, FINE, {"test": [0, 1]})
        content = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1], b"filenames": [b"a", b"b"]}
        (tmp_path / "train").write_bytes(pickle.dumps({**content, key: value}, protocol=2))
        with pytest.raises(FsbenchError, match="is not the archive of CIFAR-100, or damaged"):
            load_dataset(tmp_path, "fc100")
