"""Choose data sets by name or folder, read them, and compare benchmarks with the catalog."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fsbench.data.catalog import EMBEDDED, SPLITS, DatasetInfo, dataset_info, find_info, names_for_folder, variants
from fsbench.data.dataset import ImageDataset, Listing, build_dataset, drop_small, first_names
from fsbench.data.layouts import list_folder, visible_folders
from fsbench.errors import FsbenchError, UsageError
from fsbench.reporter import Reporter


@dataclass(frozen=True)
class OwnData:
    """A user's own images, in class folders."""

    folder: Path
    fractions: str | None = None  # shares of base, val and novel classes: `0.64,0.16,0.2`
    min_images: int | None = None  # smaller classes are left out
    split_seed: int | None = None  # of the draw by fractions

    @classmethod
    def given(cls, options: Any) -> OwnData | None:
        """The options about own images, None if there are none; without a folder of images the rest is an error."""
        others = options.split_fractions, options.min_images
        if options.split_seed is not None and options.split_fractions is None:
            raise UsageError("split_seed", "draws the classes of --split-fractions, which are not given")
        if options.data is not None:
            return cls(options.data, *others, options.split_seed)
        if others != (None, None):
            message = "Only classes of your own images can be divided or left out, and no folder of images is given."
            raise FsbenchError(message, "Name the folder with --data FOLDER; benchmarks are used as published.")
        return None

    def load(self, name: str | None = None) -> ImageDataset:
        """Read the folder; a name of the catalog makes it that data set, any other name is just its name.

        Own data may have any layout but the archive's. Classes without a readable image are left out.
        """
        if name and (info := find_info(name)):
            if self.fractions or self.min_images:
                message = f"{info.name} is a benchmark, whose classes are those that were published."
                raise FsbenchError(message, "Choose another name for a division of your own.")
            return load_dataset(self.folder, info.name)
        name = name or self.folder.resolve().name
        if benchmarks := names_for_folder(name):
            hint = f"Add --dataset {benchmarks[0]} to read it as that, or --dataset and a name of your own."
            raise FsbenchError(f"The folder {self.folder} has the name of a benchmark.", hint)
        whole = list_folder(self.folder, None)
        folders = {one.name.lower().replace("labeled", "labelled"): one for one in visible_folders(self.folder)}
        if {"labelled", "unlabelled"} <= folders.keys():
            command = f"fsbench label {folders['unlabelled']} --support {folders['labelled']}"
            raise FsbenchError(f"{self.folder} has labelled and unlabelled images, not classes.", f"Use {command}")
        return build_dataset(self._divided(whole), name)

    def _divided(self, whole: Listing) -> Listing:
        """The classes that are large enough, in their splits."""
        listing = drop_small(whole, self.min_images or 1)
        if listing.divided == (self.fractions is not None):
            if whole.divided:
                message = f"The classes in {whole.root} are divided already: {whole.layout}."
                raise FsbenchError(message, "Leave out --split-fractions.")
            count = len(whole.splits["novel"])
            message = f"Found {count} class folders in {whole.root}, but not which of them are base, val and novel."
            raise FsbenchError(
                " ".join([message, *whole.notes]),
                "Draw them with --split-fractions 0.6,0.2,0.2 (0,0,1 makes all classes novel), or move them under "
                "base/, val/ and novel/ (one is enough).",
            )
        if self.fractions is None:
            return listing
        classes, seed = listing.splits["novel"], self.split_seed or 0
        split_of = split_by_fractions(classes, parse_fractions(self.fractions), seed)
        splits = {split: {name: classes[name] for name in classes if split_of[name] == split} for split in SPLITS}
        layout = f"class folders, split by fractions, seed {seed}"
        return replace(listing, layout=layout, splits=splits, divided=True)


def choose_datasets(names: str | None, own: OwnData | None, root: Path, reporter: Reporter) -> list[ImageDataset]:
    """The data sets of those names; without names, all that are under the data root, else the built-in one.

    Names are separated by commas; with own images there is one, what their data set is called.
    """
    if own is not None:
        chosen = [own.load(names)]
    elif names:
        chosen = [_load_by_name(dataset_info(name.strip()), root, reporter) for name in names.split(",")]
    else:
        chosen = _load_all(root, reporter) or [_load_by_name(dataset_info(EMBEDDED), root, reporter)]
    for dataset in chosen:
        if own is not None:
            reporter.say(f"{dataset.name}: {preflight(dataset)}")
        for note in dataset.notes:
            reporter.warn(f"{dataset.name}: {note}")
    return chosen


def _load_all(root: Path, reporter: Reporter) -> list[ImageDataset]:
    """All benchmarks under the data root that can be used; the others are named."""
    datasets = []
    for name, folder in find_datasets(root):
        try:
            datasets += [load_dataset(folder, name)] if name != EMBEDDED else []
        except FsbenchError as error:
            reporter.warn(f"{folder} is left out: {error}")
    return datasets


def _load_by_name(info: DatasetInfo, root: Path, reporter: Reporter) -> ImageDataset:
    """A benchmark from the folder of its name, or of another split of the same images and classes."""
    if info.name == EMBEDDED:
        from fsbench.data.glyphs import ensure_glyphs  # noqa: PLC0415 - fontTools and SciPy are slow to import

        reporter.say(f"Using the built-in data set {EMBEDDED}, rendered into {root / EMBEDDED}.")
        return load_dataset(ensure_glyphs(root, reporter), EMBEDDED)
    usable = [other.name for other in variants(info) if other.split_of.keys() == info.split_of.keys()]
    present = sorted((usable.index(name), name, folder) for name, folder in find_datasets(root) if name in usable)
    if not present:
        hint = f"Put its folder there, for example as {root / info.name}, or name it with --data. See `fsbench doctor`."
        raise FsbenchError(f"{info.title} is not under {root}/.", hint)
    _, name, folder = present[0]
    if name != info.name:
        reporter.say(f"{info.name}: images of {folder}, which are the same, with the classes of {info.name}.")
    return load_dataset(folder, info.name)


def find_datasets(root: Path) -> list[tuple[str, Path]]:
    """Names and folders of the benchmarks under a data root, which need not exist, by the names of the folders.

    A folder with raw CIFAR-100 images counts for FC100 and for CIFAR-FS.
    """
    folders = visible_folders(root) if root.is_dir() else []
    return [(name, folder) for folder in folders for name in names_for_folder(folder.name)]


def load_dataset(root: Path, name: str) -> ImageDataset:
    """Read a data set of the catalog from its folder.

    Missing classes or images do not stop it; they are in the notes, and without a class the split digest
    differs from the catalog's. Classes in the wrong split do: accuracies could not be compared with published ones.
    """
    info = dataset_info(name)
    listing = list_folder(root, info)
    present = {label for classes in listing.splits.values() for label in classes}
    if present and present.isdisjoint(info.split_of):
        message = f"None of the {len(present)} classes in {root} is one of {info.title}"
        hint = f"{info.title} has classes such as {info.classes('base')[0]}. Load other data as your own."
        raise FsbenchError(f"{message}: {first_names(sorted(present))}.", hint)
    if wrong := wrong_split(listing, info):
        message = f"The folder {root} does not follow the split of {info.name}: {wrong}"
        raise FsbenchError(message, "Use the name of the split that is there, or sort the classes as listed.")
    return build_dataset(listing, info.name, info, differences(listing, info))


def preflight(dataset: ImageDataset) -> str:
    """A user's own data in one line, before anything is computed."""
    sizes = np.concatenate([np.bincount(split.labels) for split in dataset.splits.values()]).tolist()
    splits = ", ".join(f"{len(split.class_names)} {split.name}" for split in dataset.splits.values())
    each = " to ".join(map(str, sorted({min(sizes), max(sizes)})))
    images = f"{sum(sizes):,} images of {len(sizes)} classes ({splits})"
    return f"{images}, {each} per class; {dataset.layout}."


def wrong_split(listing: Listing, info: DatasetInfo) -> str:
    """Which classes are in another split than the catalog's, in words; empty if there are none."""
    pairs = [(name, split) for split in SPLITS for name in listing.counts(split)]
    moved = [(name, split) for name, split in pairs if info.split_of.get(name, split) != split]
    if not moved:
        return ""
    examples = [f"{name} belongs to {info.split_of[name]}, found in {split}" for name, split in moved]
    likely = max(variants(info), key=lambda variant: sum(variant.split_of.get(name) == split for name, split in pairs))
    advice = "Results on such a split cannot be compared with published ones."
    if likely is not info:
        advice = f"This looks like {likely.split_title} split: use the name {likely.name}."
    return f"Classes in another split than {info.split_title}: {first_names(examples)}. {advice}"


def differences(listing: Listing, info: DatasetInfo) -> list[str]:
    """All other departures of a folder from the catalog, in words; none if it is complete."""
    counts = {name: len(images) for classes in listing.splits.values() for name, images in classes.items()}
    expected = {name: count for classes in info.splits.values() for name, count in classes.items()}
    named = {
        f"Missing {split} classes": [name for name in info.classes(split) if name not in counts] for split in SPLITS
    } | {
        f"Folders that are not classes of {info.title}": sorted({*counts, *listing.unassigned} - {*expected}),
        "Classes with another number of images": [
            f"{name} ({counts[name]} of {count})"
            for name, count in expected.items()
            if counts.get(name, count) != count
        ],
    }
    return [f"{what}: {first_names(names)}." for what, names in named.items() if names]


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
