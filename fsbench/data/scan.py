"""Find data sets under a folder, find out how each is organised, and read it.

Layouts, in the order in which they are tried:

1. the raw archive ``cifar-100-python/{train,test,meta}``;
2. class folders under split folders that divide the classes, ``train/<class>/*.jpg``;
3. images in one place and a csv per split, ``images/*.jpg`` and ``train.csv``;
4. class folders without split folders, or under ``train`` and ``test`` that hold the same classes, divided by the
   catalog's class lists, or for a user's own data by a split file, by text lists in ``splits/``, or by fractions.

If none fits, the data set is looked for one and two folders further down.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsbench.data.catalog import dataset_info, names_for_folder, split_digest, variants
from fsbench.data.check import compare_with_catalog, nearest_variant
from fsbench.data.cifar import is_cifar, list_cifar
from fsbench.data.csv_layout import find_split_files, list_csv
from fsbench.data.dataset import build_dataset, counted, drop_small, first_names
from fsbench.data.folders import (
    count_images,
    find_class_folders,
    find_split_folders,
    list_class_folders,
    list_split_folders,
    same_classes_note,
    visible_folders,
)
from fsbench.data.splitting import as_folders, read_split_file, read_split_lists, split_by_fractions
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.dataset import ImageDataset, Listing


_USUAL_WAYS = 5


def load_dataset(root: Path, name: str) -> ImageDataset:
    """Read a data set of the catalog from its folder.

    Missing classes or images do not stop it; they are in the notes, and without a class the split digest
    differs from the catalog's. Classes in the wrong split do: accuracies could not be compared with published ones.

    Raises:
        FsbenchError: The folder holds nothing of the data set, or is unfit for use.
    """
    info = dataset_info(name)
    return accept(scan_folder(root, info), info)


def accept(listing: Listing, info: DatasetInfo) -> ImageDataset:
    """Turn what was found of a known data set into one that may be used, or refuse it."""
    differences = compare_with_catalog(listing, info)
    present = {name for classes in listing.splits.values() for name in classes}
    if present and not listing.anonymous and present.isdisjoint(info.split_of):
        raise FsbenchError(
            f"None of the {len(present)} classes in {listing.root} is one of {info.title}: "
            f"{first_names(sorted(present))}.",
            f"{info.title} has classes such as {info.classes('base')[0]}. Load other data as your own.",
        )
    for difference in differences:
        if difference.kind == "wrong split":
            raise FsbenchError(
                f"The folder {listing.root} does not follow the split of {info.name}: {difference.sentence}",
                "Use the name of the split that is there, or sort the classes by the catalog's lists.",
            )
    return build_dataset(listing, info.name, info, [difference.sentence for difference in differences])


def load_own(
    root: Path,
    *,
    split_file: Path | None = None,
    fractions: Sequence[float] | None = None,
    seed: int = 0,
    min_images: int = 1,
    name: str | None = None,
) -> ImageDataset:
    """Read a user's own data set. Classes without a readable image are left out.

    Args:
        root: A folder with class folders under split folders, or with csv files, or with class folders alone.
        split_file: A json or csv that divides class folders into splits.
        fractions: Shares of base, val and novel classes.
        seed: Random seed of the draw of those classes.
        min_images: Images that a class must have; smaller classes are left out before fractions are taken.
        name: The data set's name; by default the folder's, after `own-` if that is the name of a benchmark.

    Raises:
        FsbenchError: The folder is unfit, or it is not said how to divide the classes.
    """
    if split_file is None and fractions is None:
        listing = scan_folder(root, None)
    else:
        with _readable(root):
            listing = _list_own_classes(root, split_file, fractions, seed, min_images)
    listing = drop_small(listing, min_images)
    notes = []
    if listing.unassigned:
        left = first_names(listing.unassigned)
        many = "class folder is in no split and is", "class folders are in no split and are"
        notes.append(f"{counted(len(listing.unassigned), *many)} left out: {left}.")
    novel = len(listing.counts("novel"))
    if novel == 1:
        notes.append("it has 1 novel class, and a task needs two.")
    elif 1 < novel < _USUAL_WAYS:
        notes.append(f"{novel} novel classes are too few for {_USUAL_WAYS}-way tasks. Use --ways {novel}.")
    folder = root.resolve().name
    if name is None and names_for_folder(folder):
        name = f"own-{folder}"
        known = names_for_folder(folder)[0]
        notes.append(f"it is named {name}: give the name {known} to read the folder as that benchmark.")
    return build_dataset(listing, name or folder, None, notes)


def scan_folder(root: Path, info: DatasetInfo | None, *, undivided: bool = False) -> Listing:
    """List what a folder holds of a data set, or of a user's own data if there is no catalog entry.

    With `undivided`, own class folders that nothing divides into splits are listed as novel ones.

    Raises:
        FsbenchError: There is no such folder, or no layout fits.
    """
    with _readable(root):
        for folder in _places(root, info):
            if (listing := _scan_here(folder, info, undivided)) is not None:
                return listing
        raise _nothing_found(root, info)


def _scan_here(root: Path, info: DatasetInfo | None, undivided: bool) -> Listing | None:
    if info is not None and info.images_of == "cifar100" and is_cifar(root):
        return list_cifar(root, info)
    if (listing := list_split_folders(root, info)) is not None:
        return listing
    if files := find_split_files(root, info, ".csv"):
        return list_csv(root, files, info)
    folders = find_class_folders(root, info)
    if not folders:
        return None
    texts = find_split_files(root, info, ".txt")
    if info is not None:
        listing = list_class_folders(root, folders, info.split_of, f"{info.split_title} class list")
        return replace(listing, notes=(*listing.notes, *_compare_lists(texts, info))) if texts else listing
    if not texts and undivided:
        listing = list_class_folders(root, folders, dict.fromkeys(folders, "novel"), "")
        return replace(listing, layout="class folders, not divided into base, val and novel")
    if not texts:
        merged = same_classes_note(root, folders)
        raise FsbenchError(
            f"Found {len(folders)} class folders in {root}, but not which of them are base, val and novel"
            + (f"; {merged}" if merged else "."),
            "Draw them with --split-fractions 0.6,0.2,0.2 (0,0,1 makes all classes novel), list them in "
            "--split-file FILE, or move them under base/, val/ and novel/ (one is enough).",
        )
    split_of = as_folders(read_split_lists(texts), folders)
    return list_class_folders(root, folders, split_of, "the lists in " + texts[min(texts)].parent.name)


def _compare_lists(texts: dict[str, Path], info: DatasetInfo) -> tuple[str, ...]:
    """Hold text lists found beside class folders against the catalog.

    The catalog decides. Lists of another known split of the same images are worth a note, others an error.
    """
    split_of = read_split_lists(texts)
    found = {split: [name for name in split_of if split_of[name] == split] for split in texts}
    where = texts[min(texts)].parent
    for variant in variants(info):
        if split_digest(found) == split_digest({split: variant.classes(split) for split in texts}):
            same = variant is info
            return () if same else (f"The lists in {where} are those of {variant.name}; they were not used.",)
    wrong = [name for name in split_of if info.split_of.get(name) != split_of[name]]
    lost = [name for name, split in info.split_of.items() if split in texts and name not in split_of]
    raise FsbenchError(
        f"The class lists in {where} are not those of {info.name}; first differences: {first_names(wrong + lost)}.",
        "Remove the lists to use the catalog's, or load the folder as your own data.",
    )


def _list_own_classes(
    root: Path, split_file: Path | None, fractions: Sequence[float] | None, seed: int, min_images: int
) -> Listing:
    if split_file is not None and fractions is not None:
        raise FsbenchError("Found both a split file and fractions.", "Give one of the two.")
    folders = find_class_folders(root, None)
    if not folders:
        present = ", ".join(folder.name for folder in find_split_folders(root).values())
        found = f"split folders ({present})" if present else "none"
        raise FsbenchError(
            f"Expected class folders with images in {root}, found {found}.",
            "Leave out the split file and the fractions." if present else "Is this the right folder?",
        )
    if split_file is None:
        usable = [name for name, found in folders.items() if count_images(root, found) >= max(1, min_images)]
        split_of = split_by_fractions(usable, fractions or (), seed)
        return list_class_folders(root, folders, split_of, f"fractions, seed {seed}")
    split_of = as_folders(read_split_file(split_file), folders)
    absent = [name for name in split_of if name not in folders]
    if absent:
        raise FsbenchError(
            f"{split_file} names {counted(len(absent), 'class that has', 'classes that have')} no folder in {root}: "
            f"{first_names(absent)}.",
            "Write the classes exactly as their folders are called.",
        )
    return list_class_folders(root, folders, split_of, split_file.name)


def _places(root: Path, info: DatasetInfo | None, depth: int = 2) -> Iterator[Path]:
    """The folder itself and those below it in which the data set may hide."""
    yield root
    if depth == 0:
        return
    below = visible_folders(root)
    named = [folder for folder in below if info is not None and info.name in names_for_folder(folder.name)]
    for folder in below if len(below) == 1 else named:
        yield from _places(folder, info, depth - 1)


@contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Demand a folder, and turn an error of the operating system inside it into one that names the file."""
    if not root.is_dir():
        raise FsbenchError(f"Expected a folder, found none at {root}.", "Check the path.")
    try:
        yield
    except OSError as error:
        raise FsbenchError(f"Could not read {error.filename}: {error.strerror}.", "Check its rights.") from error


def _nothing_found(root: Path, info: DatasetInfo | None) -> FsbenchError:
    entries = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    what = info.title if info else "a data set"
    if not entries:
        return FsbenchError(f"Expected {what}, found an empty folder: {root}.", "Copy the data set into it.")
    return FsbenchError(
        f"Expected {what}, found no layout that is known in {root}; it holds {first_names(entries, 5)}.",
        "Known: class folders under train/, val/ and test/; images with train.csv, val.csv and test.csv; "
        "class folders alone; cifar-100-python. Archives must be unpacked.",
    )


@dataclass(frozen=True, eq=False)
class FoundDataset:
    """A folder that bears the name of a known data set."""

    info: DatasetInfo  # if the folder follows another split of the same images than `named`, it is that one
    path: Path
    listing: Listing | None  # None if the folder could not be read
    problem: FsbenchError | None  # why it could not be read
    named: DatasetInfo  # the data set that the folder's name stands for


def find_datasets(root: Path) -> list[FoundDataset]:
    """The known data sets under a data root, complete or not, in the order of their folders' names.

    A folder with raw CIFAR-100 images counts for FC100 and for CIFAR-FS. If the root itself bears the name
    of a data set and none is below it, the root is taken. The root need not exist.
    """
    if not root.is_dir():
        return []
    found = [_examine(folder, name) for folder in visible_folders(root) for name in names_for_folder(folder.name)]
    if found:
        return found
    itself = [_examine(root, name) for name in names_for_folder(root.name)]
    return [item for item in itself if item.listing is not None]


def find_dataset(root: Path, name: str) -> FoundDataset | None:
    """One known data set under a data root, None if it is not there; no other folder is listed.

    A folder that is named after another data set of the same images counts if it follows the split asked for: one
    with split folders must have its classes; class folders alone are divided by its class lists.
    """
    folders = visible_folders(root) if root.is_dir() else []
    for folder in [*folders, root]:
        if name in names_for_folder(folder.name) and folder.is_dir():
            return _examine(folder, name)
    info = dataset_info(name)
    others = {other.name for other in variants(info) if other.split_of.keys() == info.split_of.keys()}
    for folder in folders:
        if others.intersection(names_for_folder(folder.name)):
            found = _examine(folder, name)
            if found.listing is not None and found.info is info:
                return found
    return None


def other_folders(root: Path) -> list[str]:
    """The folders under a data root whose names stand for no known data set."""
    return [folder.name for folder in visible_folders(root) if not names_for_folder(folder.name)]


def _examine(folder: Path, name: str) -> FoundDataset:
    named = dataset_info(name)
    try:
        listing = scan_folder(folder, named)
    except FsbenchError as error:
        return FoundDataset(named, folder, None, error, named)
    return FoundDataset(nearest_variant(listing, named), folder, listing, None, named)
