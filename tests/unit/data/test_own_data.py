from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fsbench.data.catalog import split_digest
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.data.scan import load_own
from fsbench.data.splitting import parse_fractions, read_split_file, split_by_fractions
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from fsbench.data.dataset import ImageDataset

ANIMALS = ["cat", "cow", "dog", "hen", "pig"]


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    return put(tmp_path / "animals", (f"{name}/{i}.png" for name in ANIMALS for i in range(2)))


def classes(dataset: ImageDataset) -> dict[str, tuple[str, ...]]:
    return {name: split.class_names for name, split in dataset.splits.items()}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_split_folders(tmp_path: Path) -> None:
    put(tmp_path / "zoo", ["train/cat/1.png", "val/dog/1.png", "test/hen/1.png"])
    dataset = load_own(tmp_path / "zoo")
    assert classes(dataset) == {"base": ("cat",), "val": ("dog",), "novel": ("hen",)}
    assert dataset.name == "zoo"
    assert dataset.info is None
    assert dataset.split_digest == split_digest({"base": ["cat"], "val": ["dog"], "novel": ["hen"]})


def test_a_single_split_is_enough(tmp_path: Path) -> None:
    put(tmp_path, ["novel/cat/1.png", "novel/dog/1.png"])
    assert classes(load_own(tmp_path, name="pets")) == {"novel": ("cat", "dog")}
    assert load_own(tmp_path, name="pets").name == "pets"


@pytest.mark.parametrize(
    ("count", "notes"),
    [
        (1, ["it has 1 novel class, and a task needs two."]),
        (3, ["3 novel classes are too few for 5-way tasks. Use --ways 3."]),
        (5, []),
    ],
)
def test_too_few_classes_for_usual_tasks_are_named(count: int, notes: list[str], tmp_path: Path) -> None:
    put(tmp_path, [f"novel/c{number}/1.png" for number in range(count)])
    assert list(load_own(tmp_path).notes) == notes


def test_json_with_other_split_names(animals: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "s.json", json.dumps({"train": ["cat", "dog"], "valid": ["cow"], "test": ["pig"]}))
    dataset = load_own(animals, split_file=file)
    assert classes(dataset) == {"base": ("cat", "dog"), "val": ("cow",), "novel": ("pig",)}
    assert any("1 class folder is in no split and is left out: hen" in note for note in dataset.notes)


@pytest.mark.parametrize("header", ["", "class,split\n"])
def test_csv_with_and_without_header(animals: Path, tmp_path: Path, header: str) -> None:
    file = write(tmp_path / "s.csv", header + "cat,train\ncow,novel\n")
    assert classes(load_own(animals, split_file=file)) == {"base": ("cat",), "novel": ("cow",)}


def test_text_lists_in_splits(animals: Path) -> None:
    (animals / "splits").mkdir()
    write(animals / "splits/train.txt", "cat\ncow\n\n")
    write(animals / "splits/test.txt", "dog\nhen\npig\n")
    assert classes(load_own(animals)) == {"base": ("cat", "cow"), "novel": ("dog", "hen", "pig")}


def test_fractions_are_reproducible_and_depend_on_the_seed(animals: Path) -> None:
    fractions = parse_fractions("0.4, 0.2, 0.4")
    found = [classes(load_own(animals, fractions=fractions, seed=seed)) for seed in (0, 0, 1, 2)]
    assert found[0] == found[1]
    assert len({json.dumps(division) for division in found}) > 1
    assert {split: len(names) for split, names in found[0].items()} == {"base": 2, "val": 1, "novel": 2}


def test_fractions_never_change() -> None:
    """Pinned by hand, with `printf 0:dog | sha256sum` and so on: dog 1e, pig 91, cow 98, hen a3, cat ec."""
    assert split_by_fractions(ANIMALS, (0.4, 0.2, 0.4), 0) == {
        "dog": "base",
        "pig": "base",
        "cow": "val",
        "hen": "novel",
        "cat": "novel",
    }


def test_mini_like_fractions_are_exact() -> None:
    division = split_by_fractions((f"c{i}" for i in range(100)), (0.64, 0.16, 0.20), 3)
    counts = [list(division.values()).count(split) for split in ("base", "val", "novel")]
    assert counts == [64, 16, 20]


@given(
    st.integers(3, 400),
    st.lists(st.integers(1, 10), min_size=3, max_size=3),
    st.integers(0, 5),
)
def test_fractions_round_to_the_nearest_class(total: int, weights: list[int], seed: int) -> None:
    fractions = [weight / sum(weights) for weight in weights]
    names = [f"class{i}" for i in range(total)]
    try:
        division = split_by_fractions(reversed(names), fractions, seed)
    except FsbenchError:
        assert min(fractions) * total < 1
        return
    assert sorted(division) == sorted(names)
    assert division == split_by_fractions(names, fractions, seed)
    for split, fraction in zip(("base", "val", "novel"), fractions, strict=True):
        assert abs(list(division.values()).count(split) - fraction * total) < 1


def test_share_of_zero_leaves_the_split_out(animals: Path) -> None:
    assert list(classes(load_own(animals, fractions=(0.6, 0, 0.4)))) == ["base", "novel"]


def test_share_too_small_for_one_class_is_refused(animals: Path) -> None:
    with pytest.raises(FsbenchError, match=r"share 0\.02 of 5 classes leaves none for the split val"):
        load_own(animals, fractions=(0.5, 0.02, 0.48))


@pytest.mark.parametrize("text", ["", "0.5,0.5", "0.5,0.2,0.2", "a,b,c", "1.5,-0.5,0", "nan,0.5,0.5", "1,0,0,0"])
def test_wrong_fractions_are_refused(text: str) -> None:
    with pytest.raises(FsbenchError, match="Expected three shares"):
        parse_fractions(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.json", "{", "as json"),
        ("s.json", "[]", "lists of class names"),
        ("s.json", "{}", "lists of class names"),
        ("s.json", '{"base": "cat"}', "lists of class names"),
        ("s.json", '{"base": [1]}', "lists of class names"),
        ("s.json", '{"base": []}', "found none"),
        ("s.json", '{"holdout": ["cat"]}', "Unknown split 'holdout'"),
        ("s.json", '{"base": ["cat"], "test": ["cat"]}', "'cat' is both base and novel"),
        ("s.csv", "", "empty file"),
        ("s.csv", "class,split\n", "found none"),
        ("s.csv", "cat,base\ndog\n", "found 1 in line 2"),
        ("s.csv", "cat,base\ndog,nowhere\n", "Unknown split 'nowhere'"),
        ("s.csv", "cat,base\ncat,val\n", "'cat' is both base and val"),
    ],
)
def test_wrong_split_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(FsbenchError, match=message):
        read_split_file(write(tmp_path / name, text))


def test_missing_split_file(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="Could not read"):
        read_split_file(tmp_path / "gone.json")


def test_split_file_with_unknown_class(animals: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "s.json", '{"base": ["cat", "unicorn"]}')
    with pytest.raises(FsbenchError, match=r"names 1 class that has no folder .*: unicorn"):
        load_own(animals, split_file=file)


def test_class_folders_without_division_are_refused(animals: Path) -> None:
    with pytest.raises(FsbenchError, match=r"5 class folders .* but not which"):
        load_own(animals)


def test_fractions_for_split_folders_are_refused(tmp_path: Path) -> None:
    put(tmp_path, ["train/cat/1.png", "test/dog/1.png"])
    with pytest.raises(FsbenchError, match=r"found split folders \(train, test\)"):
        load_own(tmp_path, fractions=(0.5, 0.25, 0.25))


def test_file_and_fractions_together_are_refused(animals: Path, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="both a split file and fractions"):
        load_own(animals, split_file=tmp_path / "s.json", fractions=(0.5, 0.25, 0.25))


def test_class_called_train_among_classes(tmp_path: Path) -> None:
    put(tmp_path, ["train/1.png", "bus/1.png", "car/1.png"])
    dataset = load_own(tmp_path, fractions=(0.34, 0.33, 0.33))
    assert sorted(name for names in classes(dataset).values() for name in names) == ["bus", "car", "train"]


def test_empty_class_folders_are_left_out_and_named(animals: Path) -> None:
    (animals / "yak").mkdir()
    dataset = load_own(animals, fractions=(0.4, 0.2, 0.4))
    assert {split: len(names) for split, names in classes(dataset).items()} == {"base": 2, "val": 1, "novel": 2}
    assert "1 class folder without a readable image is left out: yak." in dataset.notes


def choose(own: OwnData, name: str | None = None) -> tuple[ImageDataset, str]:
    """The data set, and what was printed about it."""
    reporter = Reporter()
    reporter.console = Console(file=io.StringIO(), width=1000)
    (dataset,) = choose_datasets(name, own, own.folder, reporter)
    return dataset, reporter.console.file.getvalue()  # type: ignore[attr-defined]


def test_preflight_says_what_is_used_and_what_is_ignored(tmp_path: Path) -> None:
    root = put(tmp_path / "photos", [f"novel/{name}/{i}.png" for name in ("cat", "dog") for i in range(30)])
    put(root, ["novel/cow/1.png", "novel/dog/trip/2.png", "novel/.thumbs/3.png", "novel/dog/.cache/4.png"])
    put(root, ["novel/cat/a.HEIC", "novel/cat/b.heic", "novel/cat/notes.txt", "novel/loose.png", "novel/hen/c.heic"])
    dataset, told = choose(OwnData(root))
    assert dataset.splits["novel"].class_names == ("cat", "cow", "dog")
    for sentence in (
        "photos: 62 images of 3 classes (3 novel), 1 to 31 per class; class folders under novel.",
        "photos: 1 class has fewer than 20 images: novel cow (1).",
        "photos: hidden folders are ignored: novel/.thumbs, novel/dog/.cache.",
        "photos: files that are not images are ignored: 1 .txt.",
        "photos: folders inside class folders are merged into their class: dog (1).",
        "warning: photos: 1 image directly in novel/, outside class folders, is ignored.",
        "warning: photos: unreadable images are left out: 3 .heic. Convert them to JPEG.",
        "warning: photos: 1 class folder without a readable image is left out: hen.",
    ):
        assert told.count(sentence) == 1, told


@pytest.mark.parametrize("how", ["split folders", "split file", "fractions"])
def test_small_classes_are_left_out_and_named(tmp_path: Path, how: str) -> None:
    prefix = "novel/" if how == "split folders" else ""
    root = put(tmp_path / "pets", [f"{prefix}{name}/{i}.png" for name in ("cat", "cow", "dog") for i in range(6)])
    put(root, [f"{prefix}hen/1.png", f"{prefix}pig/notes.txt"])
    file = write(tmp_path / "s.json", json.dumps({"novel": ["cat", "cow", "dog", "hen", "pig"]}))
    own = OwnData(
        root, file if how == "split file" else None, "0,0,1" if how == "fractions" else None, min_images=5
    )  # fmt: skip
    dataset, told = choose(own)
    assert classes(dataset) == {"novel": ("cat", "cow", "dog")}
    assert "1 class with fewer than 5 images is left out: hen (1)." in told
    assert "1 class folder without a readable image is left out: pig." in told
    assert "in no split" not in told


def test_fractions_are_taken_of_the_classes_that_are_used(tmp_path: Path) -> None:
    put(tmp_path, [f"c{i}/{j}.png" for i in range(4) for j in range(3)] + [f"small{i}/0.png" for i in range(6)])
    dataset = load_own(tmp_path, fractions=(0.5, 0, 0.5), min_images=2)
    assert {split: len(names) for split, names in classes(dataset).items()} == {"base": 2, "novel": 2}


def test_own_folders_with_the_same_classes_are_not_splits(tmp_path: Path) -> None:
    put(tmp_path, [f"{top}/{name}/1.png" for top in ("train", "val") for name in ANIMALS])
    with pytest.raises(FsbenchError, match=r"novel; train/ and val/ hold the same 5 classes.*not the classes"):
        load_own(tmp_path)
    dataset = load_own(tmp_path, fractions=(0, 0, 1))
    assert classes(dataset) == {"novel": tuple(ANIMALS)}
    assert len(dataset.splits["novel"]) == 10
    assert any("read as one set of class folders" in note for note in dataset.notes)


def test_a_top_folder_that_lacks_a_class_of_the_other_is_no_split_either(tmp_path: Path) -> None:
    put(tmp_path, [f"train/{name}/1.png" for name in ANIMALS] + [f"test/{name}/2.png" for name in ANIMALS[1:]])
    with pytest.raises(FsbenchError, match=r"test/ and train/ hold images of the same 5 classes"):
        load_own(tmp_path)
    assert len(load_own(tmp_path, fractions=(0, 0, 1)).splits["novel"]) == 9


@pytest.mark.parametrize(("folder", "listed"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_letters_of_one_or_two_characters_name_the_same_class(folder: str, listed: str, tmp_path: Path) -> None:
    names = ["Möwe grün", "École", "fox"]
    called = sorted(unicodedata.normalize(folder, name) for name in names)  # type: ignore[arg-type]
    put(tmp_path / "images", [f"{name}/1.png" for name in called])
    as_written = [unicodedata.normalize(listed, name) for name in names]  # type: ignore[arg-type]
    split = write(tmp_path / "split.json", json.dumps({"novel": as_written}))
    assert classes(load_own(tmp_path / "images", split_file=split)) == {"novel": tuple(called)}
    both = {"novel": as_written, "base": called[:1]}
    if called[0] not in as_written:
        with pytest.raises(FsbenchError, match="is both novel and base"):
            load_own(tmp_path / "images", split_file=write(tmp_path / "split.json", json.dumps(both)))


def test_own_data_do_not_become_a_benchmark_by_their_name(tmp_path: Path) -> None:
    root = put(tmp_path / "cub", ["novel/cat/1.png", "novel/dog/1.png"])
    dataset, told = choose(OwnData(root))
    assert (dataset.name, dataset.info) == ("own-cub", None)
    assert "give the name cub to read the folder as that benchmark" in told
    assert choose(OwnData(root), "pets")[0].name == "pets"
    with pytest.raises(FsbenchError, match="cub is a benchmark"):
        choose(OwnData(root, fractions="0,0,1"), "cub")


@pytest.mark.parametrize(
    "given", [(None, Path("s.json"), None, None), (None, None, "1,0,0", None), (None, None, None, 5)]
)
def test_options_for_own_images_need_a_folder(given: tuple[None, Path | None, str | None, int | None]) -> None:
    with pytest.raises(FsbenchError, match="no folder of images is given"):
        OwnData.given(*given)
