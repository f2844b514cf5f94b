"""Find data sets under a folder, find out how each is organised, compare it with the catalog, and choose among them.

Layouts, in the order in which they are tried: the raw archive `cifar-100-python`; class folders under split folders
that divide the classes; images in one place and a csv per split; class folders that the catalog's class lists divide,
or for a user's own data a split file or fractions. If none fits, the data set is looked for one folder further down.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fsbench.data import layouts
from fsbench.data.catalog import (
    EMBEDDED,
    SPLITS,
    canonical_split,
    dataset_info,
    names_for_folder,
    resolve_name,
    variants,
)
from fsbench.data.dataset import build_dataset, counted, drop_small, first_names
from fsbench.data.layouts import images_below, list_class_folders, read_csv, visible_folders
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.dataset import ImageDataset, Listing
    from fsbench.reporter import Reporter

_EXAMPLE = 'Write {"base": ["cat", "dog"], "val": ["cow"], "novel": ["hen"]}.'


@dataclass(frozen=True)
class OwnData:
    """A user's own images, in class folders."""

    folder: Path
    split_file: Path | None = None
    fractions: str | None = None  # shares of base, val and novel classes: `0.64,0.16,0.2`
    min_images: int | None = None  # smaller classes are left out
    split_seed: int | None = None  # of the draw by fractions

    @classmethod
    def given(
        cls, folder: Path | None, split_file: Path | None, fractions: str | None, min_images: int | None = None,
        split_seed: int | None = None,
    ) -> OwnData | None:  # fmt: skip
        """The options about own images, None if there are none; without a folder of images the rest is an error."""
        if split_seed is not None and fractions is None:
            message = f"--split-seed {split_seed} draws the classes of --split-fractions, which are not given."
            raise FsbenchError(message, "Give --split-fractions 0.64,0.16,0.2, or leave the seed out.")
        if folder is not None:
            return cls(folder, split_file, fractions, min_images, split_seed)
        if (split_file, fractions, min_images) != (None, None, None):
            message = "Only classes of your own images can be divided or left out, and no folder of images is given."
            raise FsbenchError(message, "Name the folder with --data FOLDER; benchmarks are used as published.")
        return None

    def load(self, name: str | None) -> ImageDataset:
        """Read the folder; a name of the catalog makes it that data set, any other name is just its name."""
        try:
            benchmark = resolve_name(name) if name else None
        except FsbenchError:
            benchmark = None
        if benchmark and (self.split_file or self.fractions or self.min_images):
            message = f"{benchmark} is a benchmark, whose classes are those that were published."
            raise FsbenchError(message, "Choose another name for a division of your own.")
        if benchmark:
            return load_dataset(self.folder, benchmark)
        fractions = parse_fractions(self.fractions) if self.fractions is not None else None
        return load_own(
            self.folder, split_file=self.split_file, fractions=fractions, seed=self.split_seed or 0,
            min_images=self.min_images or 1, name=name,
        )  # fmt: skip


def choose_datasets(names: str | None, own: OwnData | None, root: Path, reporter: Reporter) -> list[ImageDataset]:
    """The data sets of those names; without names, all that are under the data root, else the built-in one.

    Names are separated by commas; with own images there is one, what their data set is called.
    """
    if own is not None:
        chosen = [own.load(names)]
    elif names:
        chosen = [_named(resolve_name(name.strip()), root, reporter) for name in names.split(",")]
    else:
        chosen = _all_present(root, reporter) or [_named(EMBEDDED, root, reporter)]
    for dataset in chosen:
        if own is not None:
            reporter.say(f"{dataset.name}: {preflight(dataset)}")
        for note in dataset.notes:
            reporter.warn(f"{dataset.name}: {note}")
    return chosen


def _all_present(root: Path, reporter: Reporter) -> list[ImageDataset]:
    chosen = []
    for candidate in find_datasets(root):
        if candidate.listing is None:
            reporter.warn(f"{candidate.path} is left out: {candidate.problem}")
        elif candidate.named.name != EMBEDDED:
            chosen.append(accept(candidate.listing, candidate.info))
    return chosen


def _named(name: str, root: Path, reporter: Reporter) -> ImageDataset:
    if name == EMBEDDED:
        from fsbench.data.glyphs import ensure_glyphs  # noqa: PLC0415 - fontTools and SciPy are slow to import

        reporter.say(f"Using the built-in data set {EMBEDDED}, rendered into {root / EMBEDDED}.")
        return load_dataset(ensure_glyphs(root, reporter), EMBEDDED)
    info, candidate = dataset_info(name), find_dataset(root, name)
    if candidate is None:
        hint = f"Put its folder there, for example as {root / name}, or name it with --data. See `fsbench doctor`."
        raise FsbenchError(f"{info.title} is not under {root}/.", hint)
    if candidate.listing is None:
        raise candidate.problem or FsbenchError(f"{candidate.path} cannot be read.")
    if name not in names_for_folder(candidate.path.name):
        reporter.say(f"{name}: images of {candidate.path}, which are the same, with the classes of {name}.")
    return accept(candidate.listing, info)


def load_dataset(root: Path, name: str) -> ImageDataset:
    """Read a data set of the catalog from its folder; see `accept`."""
    info = dataset_info(name)
    return accept(scan_folder(root, info), info)


def accept(listing: Listing, info: DatasetInfo) -> ImageDataset:
    """Turn the listing of a benchmark into a data set that may be used.

    Missing classes or images do not stop it; they are in the notes, and without a class the split digest
    differs from the catalog's. Classes in the wrong split do: accuracies could not be compared with published ones.
    """
    differences = compare_with_catalog(listing, info)
    present = {name for classes in listing.splits.values() for name in classes}
    if present and not listing.anonymous and present.isdisjoint(info.split_of):
        message = f"None of the {len(present)} classes in {listing.root} is one of {info.title}"
        hint = f"{info.title} has classes such as {info.classes('base')[0]}. Load other data as your own."
        raise FsbenchError(f"{message}: {first_names(sorted(present))}.", hint)
    for difference in differences:
        if difference.kind == "wrong split":
            message = f"The folder {listing.root} does not follow the split of {info.name}: {difference.sentence}"
            raise FsbenchError(message, "Use the name of the split that is there, or sort the classes as listed.")
    return build_dataset(listing, info.name, info, [difference.sentence for difference in differences])


def load_own(
    root: Path,
    *,
    split_file: Path | None = None,  # a json or csv that divides class folders into splits
    fractions: Sequence[float] | None = None,  # shares of base, val and novel classes
    seed: int = 0,  # of the draw of those classes
    min_images: int = 1,  # smaller classes are left out before fractions are taken
    name: str | None = None,  # by default the folder's; that of a benchmark is refused
) -> ImageDataset:
    """Read a user's own data set, in any layout but the archive's. Classes without a readable image are left out."""
    name = name or root.resolve().name
    if names_for_folder(name):
        hint = f"Add --dataset {names_for_folder(name)[0]} to read it as that, or --dataset and a name of your own."
        raise FsbenchError(f"The folder {root} has the name of a benchmark.", hint)
    if split_file is None and fractions is None:
        listing = scan_folder(root, None)
    else:
        with _readable(root):
            listing = _list_own_classes(root, split_file, fractions, seed, min_images)
    listing = drop_small(listing, min_images)
    notes = []
    if listing.unassigned:
        many = "class folder is in no split and is", "class folders are in no split and are"
        notes.append(f"{counted(len(listing.unassigned), *many)} left out: {first_names(listing.unassigned)}.")
    return build_dataset(listing, name, None, notes)


def _list_own_classes(
    root: Path, split_file: Path | None, fractions: Sequence[float] | None, seed: int, min_images: int
) -> Listing:
    folders = layouts.find_class_folders(root, None)
    if not folders:
        hint = "Leave the split file and the fractions out if the classes are in split folders."
        raise FsbenchError(f"Expected class folders with images in {root}, found none.", hint)
    if split_file is None:
        sizes = {name: sum(len(images_below(folder, root)) for folder in same) for name, same in folders.items()}
        usable = [name for name, size in sizes.items() if size >= max(1, min_images)]
        split_of = split_by_fractions(usable, fractions or (), seed)
        return list_class_folders(root, folders, split_of, f"class folders, split by fractions, seed {seed}")
    if fractions is not None:
        raise FsbenchError("The classes are divided by both a split file and fractions.", "Give one of the two.")
    split_of = read_split_file(split_file)
    if absent := [name for name in split_of if name not in folders]:
        many = counted(len(absent), "class that has", "classes that have")
        message = f"{split_file} names {many} no folder in {root}: {first_names(absent)}."
        raise FsbenchError(message, "Write the classes exactly as their folders are called.")
    return list_class_folders(root, folders, split_of, f"class folders, split by {split_file.name}")


def scan_folder(root: Path, info: DatasetInfo | None, *, undivided: bool = False) -> Listing:
    """List what a folder holds of a data set, or of a user's own data if there is no catalog entry.

    With `undivided`, own class folders that nothing divides into splits are listed as novel ones.
    """
    with _readable(root):
        below = visible_folders(root)
        named = [folder for folder in below if info is not None and info.name in names_for_folder(folder.name)]
        for folder in (root, *(below if len(below) == 1 else named)):
            if (listing := _scan_here(folder, info, undivided)) is not None:
                return listing
        entries = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    raise FsbenchError(
        f"Expected {info.title if info else 'a data set'} in {root}, found {first_names(entries, 5) or 'nothing'}.",
        "Known layouts: class folders under train/, val/ and test/; images with train.csv, val.csv and test.csv; "
        "class folders alone; cifar-100-python. Archives must be unpacked.",
    )


def _scan_here(root: Path, info: DatasetInfo | None, undivided: bool) -> Listing | None:
    if info is not None and info.images_of == "cifar100" and layouts.is_cifar(root):
        return layouts.list_cifar(root, info)
    if (listing := layouts.list_split_folders(root, info)) is not None:
        return listing
    if files := layouts.find_split_files(root, info):
        return layouts.list_csv(root, files, info)
    folders = layouts.find_class_folders(root, info)
    if not folders:
        return None
    if info is not None:
        layout = f"class folders, split by {info.split_title} class list"
        return list_class_folders(root, folders, info.split_of, layout)
    if undivided:
        layout = "class folders, not divided into base, val and novel"
        return list_class_folders(root, folders, dict.fromkeys(folders, "novel"), layout)
    message = f"Found {len(folders)} class folders in {root}, but not which of them are base, val and novel."
    raise FsbenchError(
        f"{message} {layouts.same_classes_note(folders)}".rstrip(),
        "Draw them with --split-fractions 0.6,0.2,0.2 (0,0,1 makes all classes novel), list them in "
        "--split-file FILE, or move them under base/, val/ and novel/ (one is enough).",
    )


@contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Demand a folder, and turn an error of the operating system inside it into one that names the file."""
    if not root.is_dir():
        raise FsbenchError(f"Expected a folder, found none at {root}.", "Check the path.")
    try:
        yield
    except OSError as error:
        raise FsbenchError(f"Could not read {error.filename}: {error.strerror}.", "Check its rights.") from error


class FoundDataset(NamedTuple):
    """A folder that bears the name of a benchmark."""

    info: DatasetInfo  # if the folder follows another split of the same images than `named`, it is that one
    path: Path
    listing: Listing | None  # None if the folder could not be read
    problem: FsbenchError | None  # why it could not be read
    named: DatasetInfo  # the data set that the folder's name stands for


def find_datasets(root: Path) -> list[FoundDataset]:
    """The benchmarks under a data root, complete or not, in the order of their folders' names.

    A folder with raw CIFAR-100 images counts for FC100 and for CIFAR-FS. The root need not exist.
    """
    folders = visible_folders(root) if root.is_dir() else []
    return [_examine(folder, name) for folder in folders for name in names_for_folder(folder.name)]


def find_dataset(root: Path, name: str) -> FoundDataset | None:
    """One benchmark under a data root, None if it is not there; no other folder is listed.

    A folder that is named after another data set of the same images counts if it follows the split of that name: one
    with split folders must have its classes; class folders alone are divided by its class lists.
    """
    names = {folder: names_for_folder(folder.name) for folder in (visible_folders(root) if root.is_dir() else [])}
    if own := next((folder for folder in names if name in names[folder]), None):
        return _examine(own, name)
    info = dataset_info(name)
    same_classes = {other.name for other in variants(info) if other.split_of.keys() == info.split_of.keys()}
    others = (_examine(folder, name) for folder in names if same_classes.intersection(names[folder]))
    return next((other for other in others if other.listing is not None and other.info is info), None)


def other_folders(root: Path) -> list[str]:
    """The folders under a data root whose names stand for no benchmark."""
    return [folder.name for folder in visible_folders(root) if not names_for_folder(folder.name)]


def _examine(folder: Path, name: str) -> FoundDataset:
    named = dataset_info(name)
    try:
        listing = scan_folder(folder, named)
    except FsbenchError as error:
        return FoundDataset(named, folder, None, error, named)
    return FoundDataset(nearest_variant(listing, named), folder, listing, None, named)


class Difference(NamedTuple):
    """One way in which a folder departs from the catalog."""

    kind: str  # two splits, wrong split, files, empty, missing split, missing, extra, short, long or sizes
    names: tuple[str, ...]  # the classes or files concerned
    sentence: str


def compare_with_catalog(listing: Listing, info: DatasetInfo) -> tuple[Difference, ...]:
    """All departures of a folder from the catalog, the most serious first; none if it is complete."""
    shared = listing.shared_classes()
    differences = [
        _difference("two splits", shared, "{class is|classes are} in more than one split"),
        *_wrong_split(listing, info, shared),
        _difference("files", listing.missing, "{file is|files are} missing"),
        _difference("empty", listing.empty_classes(), "{class is|classes are} without any image"),
        *(_sizes(listing, info) if listing.anonymous else _classes(listing, info)),
    ]
    return tuple(difference for difference in differences if difference.names)


def nearest_variant(listing: Listing, info: DatasetInfo) -> DatasetInfo:
    """The split of the same images that a folder follows best; `info` itself in case of a tie."""
    pairs = [(name, split) for split in SPLITS for name in listing.counts(split)]
    return max(variants(info), key=lambda variant: sum(variant.split_of.get(name) == split for name, split in pairs))


def preflight(dataset: ImageDataset) -> str:
    """A user's own data in one line, before anything is computed."""
    sizes = np.concatenate([np.bincount(split.labels) for split in dataset.splits.values()]).tolist()
    splits = ", ".join(f"{len(split.class_names)} {split.name}" for split in dataset.splits.values())
    each = " to ".join(map(str, sorted({min(sizes), max(sizes)})))
    images = f"{sum(sizes):,} images of {len(sizes)} classes ({splits})"
    return f"{images}, {each} per class; {dataset.layout}."


def _difference(kind: str, names: Sequence[str], words: str, examples: Sequence[str] = ()) -> Difference:
    """A difference in words such as `{class is|classes are} missing`; it does not count without names."""
    sentence = re.sub(r"{(.+)[|](.+)}", lambda match: counted(len(names), match[1], match[2]), words)
    return Difference(kind, tuple(names), f"{sentence}: {first_names(examples or names)}.")


def _wrong_split(listing: Listing, info: DatasetInfo, shared: Sequence[str]) -> Iterator[Difference]:
    there = {name: split for split in SPLITS for name in listing.counts(split) if name not in shared}
    moved = [name for name, split in there.items() if info.split_of.get(name, split) != split]
    examples = [f"{name} belongs to {info.split_of[name]}, found in {there[name]}" for name in moved]
    likely = nearest_variant(listing, info)
    advice = "Results on such a split cannot be compared with published ones."
    if likely is not info:
        advice = f"This looks like {likely.split_title} split: use the name {likely.name}."
    words = f"{{class is|classes are}} in another split than {info.split_title}"
    wrong = _difference("wrong split", moved, words, examples)
    yield wrong._replace(sentence=f"{wrong.sentence} {advice}")


def _classes(listing: Listing, info: DatasetInfo) -> Iterator[Difference]:
    counts = {name: len(images) for classes in listing.splits.values() for name, images in classes.items()}
    for split in SPLITS:
        names = [name for name in info.classes(split) if name not in counts]
        if listing.splits.get(split):
            yield _difference("missing", names, split + ": {class is|classes are} missing")
        else:
            yield Difference("missing split", tuple(names), f"The split {split} is missing.")
    extra = sorted({*counts, *(name for name, count in listing.unassigned.items() if count)} - {*info.split_of})
    yield _difference("extra", extra, "{folder is not a class|folders are not classes} of " + info.title)
    expected = {name: count for split in SPLITS for name, count in info.splits[split].items()}
    surplus = {name: counts[name] - count for name, count in expected.items() if counts.get(name)}
    for kind, words, sign in (("short", "too few", -1), ("long", "too many", 1)):
        names = [name for name, more in surplus.items() if sign * more > 0]
        examples = [f"{name} ({counts[name]} of {expected[name]})" for name in names]
        yield _difference(kind, names, f"{{class has|classes have}} {words} images", examples)


def _sizes(listing: Listing, info: DatasetInfo) -> Iterator[Difference]:
    """Numbered classes can be compared by their sizes only."""
    for split in SPLITS:
        sizes = sorted(listing.counts(split).values())
        if sizes != sorted(info.splits[split].values()):
            there = f"found {len(sizes)} with {sum(sizes):,}"
            expected = f"expected {len(info.classes(split))} classes with {info.images(split):,} images"
            yield Difference("sizes", (split,), f"{split}: {expected}, {there}.")


def read_split_file(path: Path) -> dict[str, str]:
    """Read the split of each class from a json or csv file.

    The json maps splits to lists of classes; the csv has rows `class,split`. `train`, `validation`, `test` and the
    like stand for base, val and novel.
    """
    split_of: dict[str, str] = {}
    for name, text in _pairs_of_json(path) if path.suffix.lower() == ".json" else _pairs_of_csv(path):
        try:
            split = canonical_split(text)
        except FsbenchError as error:
            raise FsbenchError(f"{path}: {error.message}", error.hint) from error
        if split_of.setdefault(name, split) != split:
            message = f"The class {name!r} is both {split_of[name]} and {split} in {path}."
            raise FsbenchError(message, "Base, val and novel classes must differ. Remove one of the two entries.")
    if not split_of:
        raise FsbenchError(f"Expected classes, found none in {path}.", _EXAMPLE)
    return split_of


def _pairs_of_json(path: Path) -> list[tuple[str, str]]:
    try:
        lists = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # the last for a thousand brackets
        raise FsbenchError(f"Could not read {path} as json: {error}", _EXAMPLE) from error
    if not isinstance(lists, dict) or not all(isinstance(names, list) for names in lists.values()):
        raise FsbenchError(f"Expected lists of class names per split in {path}.", _EXAMPLE)
    return [(str(name), split) for split, names in lists.items() for name in names]


def _pairs_of_csv(path: Path) -> list[tuple[str, str]]:
    rows = read_csv(path)
    for line, cells in rows:
        if len(cells) != 2:
            message = f"Expected the two columns class,split, found {len(cells)} in line {line} of {path}."
            raise FsbenchError(message, "Write one class per line, for example `cat,base`.")
    return [(name, split) for _, (name, split) in rows if split.lower() != "split"]  # without the header


def parse_fractions(text: str) -> tuple[float, float, float]:
    """Read the shares of base, val and novel classes, which add up to 1, from text such as `0.64,0.16,0.20`."""
    try:
        base, val, novel = (float(part) for part in text.split(","))
        valid = min(base, val, novel) >= 0 and math.isclose(base + val + novel, 1, abs_tol=1e-6)
    except ValueError:
        valid = False
    if not valid:
        message = f"Expected three shares of base, val and novel classes that add up to 1, found {text!r}."
        raise FsbenchError(message, "Write for example 0.64,0.16,0.20; a share may be 0.")
    return base, val, novel


def split_by_fractions(classes: Iterable[str], fractions: Sequence[float], seed: int) -> dict[str, str]:
    """Divide classes at random, the same way on every machine.

    Classes are drawn in the order of the sha256 of the seed and their name. The numbers of classes are
    rounded by largest remainder, the earlier split first.
    """
    names = set(classes)
    drawn = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode(errors="surrogatepass")).digest())
    # Shares such as 0.16 have no exact binary value: round before cutting off.
    quotas = [round(len(names) * fraction, 9) for fraction in fractions]
    counts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: len(names) - sum(counts)]:
        counts[i] += 1
    for split, fraction, count in zip(SPLITS, fractions, counts, strict=True):
        if fraction > 0 and count == 0:
            message = f"The share {fraction:g} of {len(names)} classes leaves none for the split {split}."
            raise FsbenchError(message, "Give it a larger share, or 0.")
    order = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(drawn, order, strict=True))
