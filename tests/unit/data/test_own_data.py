import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fsbench.data.dataset import ImageDataset
from fsbench.data.scan import OwnData, choose_datasets, parse_fractions, split_by_fractions
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.unit.data.trees import put

ANIMALS = ["cat", "cow", "dog", "hen", "pig"]


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    return put(tmp_path / "animals", (f"{name}/{i}.png" for name in ANIMALS for i in range(2)))


def classes(dataset: ImageDataset) -> dict[str, tuple[str, ...]]:
    return {name: split.class_names for name, split in dataset.splits.items()}


def test_fractions_never_change() -> None:
    """Pinned by hand, with `printf 0:dog | sha256sum` and so on: dog 1e, pig 91, cow 98, hen a3, cat ec."""
    expected = {"dog": "base", "pig": "base", "cow": "val", "hen": "novel", "cat": "novel"}
    assert split_by_fractions(ANIMALS, (0.4, 0.2, 0.4), 0) == expected


@given(st.integers(3, 400), st.lists(st.integers(1, 10), min_size=3, max_size=3), st.integers(0, 5))
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


@pytest.mark.parametrize("text", ["0.5,0.5", "0.5,0.2,0.2", "a,b,c", "1.5,-0.5,0", "nan,0.5,0.5"])
def test_wrong_fractions_are_refused(text: str) -> None:
    with pytest.raises(FsbenchError, match="Expected three shares"):
        parse_fractions(text)


def choose(own: OwnData, name: str | None = None) -> tuple[ImageDataset, str]:
    """The data set, and what was printed about it."""
    reporter = Reporter()
    reporter.console = Console(file=io.StringIO(), width=1000)
    (dataset,) = choose_datasets(name, own, own.folder, reporter)
    return dataset, reporter.console.file.getvalue()  # type: ignore[attr-defined]


def test_unfit_divisions_are_refused(animals: Path, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"5 class folders .* but not which"):
        OwnData(animals).load()
    put(tmp_path / "zoo", ["train/cat/1.png", "test/dog/1.png"])
    with pytest.raises(FsbenchError, match="Leave out --split-fractions"):
        OwnData(tmp_path / "zoo", fractions="0.5,0.25,0.25").load()
    with pytest.raises(FsbenchError, match=r"share 0\.02 of 5 classes leaves none for the split val"):
        OwnData(animals, fractions="0.5,0.02,0.48").load()
    assert list(classes(OwnData(animals, fractions="0.6,0,0.4").load())) == ["base", "novel"]


@pytest.mark.parametrize("how", ["split folders", "fractions"])
def test_small_classes_are_left_out_and_named(tmp_path: Path, how: str) -> None:
    prefix = "novel/" if how == "split folders" else ""
    root = put(tmp_path / "pets", [f"{prefix}{name}/{i}.png" for name in ("cat", "cow", "dog") for i in range(6)])
    put(root, [f"{prefix}hen/1.png", f"{prefix}pig/notes.txt"])
    dataset, told = choose(OwnData(root, "0,0,1" if how == "fractions" else None, min_images=5))
    assert classes(dataset) == {"novel": ("cat", "cow", "dog")}
    assert told.count("pets: 2 classes with fewer than 5 readable images are left out: hen (1), pig (0).") == 1, told


def test_own_folders_with_the_same_classes_are_not_splits(tmp_path: Path) -> None:
    put(tmp_path, [f"train/{name}/1.png" for name in ANIMALS] + [f"test/{name}/2.png" for name in ANIMALS[1:]])
    with pytest.raises(FsbenchError, match=r"hold the same classes.*not the classes"):
        OwnData(tmp_path).load()
    dataset = OwnData(tmp_path, fractions="0,0,1").load()
    assert classes(dataset) == {"novel": tuple(ANIMALS)}
    assert len(dataset.splits["novel"]) == 9


def test_own_data_do_not_become_a_benchmark_by_their_name(tmp_path: Path) -> None:
    root = put(tmp_path / "cub", ["novel/cat/1.png", "novel/dog/1.png"])
    with pytest.raises(FsbenchError, match="has the name of a benchmark") as caught:
        choose(OwnData(root))
    assert "--dataset cub to read it as that" in caught.value.hint
    assert choose(OwnData(root), "pets")[0].name == "pets"
    with pytest.raises(FsbenchError, match="cub is a benchmark"):
        choose(OwnData(root, fractions="0,0,1"), "cub")


def test_labelled_and_unlabelled_images_are_not_two_classes(tmp_path: Path) -> None:
    put(tmp_path, ("labelled/hawk/a.png", "Unlabeled/b.png"))
    with pytest.raises(FsbenchError, match="labelled and unlabelled images, not classes") as caught:
        OwnData(tmp_path, fractions="0,0,1").load()
    assert caught.value.hint == f"Use fsbench label {tmp_path / 'Unlabeled'} --support {tmp_path / 'labelled'}"
