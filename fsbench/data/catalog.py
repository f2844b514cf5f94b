"""The data sets this field reports on: class lists, image counts, names.

A data set is one entry of the catalog below and one file `splits/<name>.json`, either with lists of classes,
`{"base": [class, ...], "val": [...], "novel": [...]}`, all with as many images as the entry says, or with
the images of each class, `{"base": {class: images, ...}, ...}`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

from fsbench.errors import unknown_name

SPLITS = ("base", "val", "novel")
EMBEDDED = "glyphs"  # the data set that fsbench draws itself

# Folder, file and key names under which the three splits are met in practice.
SPLIT_ALIASES = {
    "base": ("base", "train", "meta-train", "meta_train", "metatrain", "training"),
    "val": ("val", "validation", "valid", "meta-val", "meta_val", "metaval"),
    "novel": ("novel", "test", "meta-test", "meta_test", "metatest", "testing"),
}
SPLIT_WORDS = {alias: split for split, aliases in SPLIT_ALIASES.items() for alias in aliases}


@dataclass(frozen=True, eq=False)
class DatasetInfo:
    """What the catalog says about a data set."""

    name: str  # on the command line and in file names
    title: str  # in tables
    split_title: str  # whose class split it is, for sentences: "CloserLook's"
    images_of: str  # shared by data sets that are cut from the same images
    image_size: int | None = None  # side of the images on disk, None when it varies from copy to copy
    images_per_class: int | None = None  # None when it varies
    aliases: tuple[str, ...] = ()  # what people type, too; compared in lower case without punctuation, as are folders
    folders: tuple[str, ...] = ()  # further names under which the images lie on disk

    @cached_property
    def splits(self) -> dict[str, dict[str, int]]:
        """Number of images per class, for every split."""
        text = resources.files("fsbench.data").joinpath(f"splits/{self.name}.json").read_text(encoding="utf-8")
        return {
            split: dict(sorted(classes.items()) if isinstance(classes, dict) else
                        ((label, self.images_per_class or 0) for label in sorted(classes)))
            for split, classes in json.loads(text).items()
        }  # fmt: skip

    def classes(self, split: str) -> tuple[str, ...]:
        """The sorted class names of a split."""
        return tuple(self.splits[split])

    @cached_property
    def split_of(self) -> dict[str, str]:
        """The split of every class."""
        return {label: split for split, labels in self.splits.items() for label in labels}


_CIFAR = ("cifar-100-python", "cifar-100")
_CATALOG = {info.name: info for info in (
    DatasetInfo(
        "mini", "mini-ImageNet", "Ravi & Larochelle's", "mini", None, 600, aliases=("mini-imagenet", "mini-ravi"),
        folders=("mini-imagenet-images", "mini-imagenet-84", "mini-imagenet-full-size"),
    ),
    DatasetInfo(
        "mini-vinyals", "mini-ImageNet, Vinyals' classes", "the list known as Vinyals'", "mini", None, 600,
        aliases=("mini-imagenet-vinyals",),
    ),
    DatasetInfo(
        "tiered", "tiered-ImageNet", "Ren et al.'s", "tiered", 84, aliases=("tiered-imagenet",),
        folders=("tiered-imagenet-images", "tiered-imagenet-84"),
    ),
    DatasetInfo("cub", "CUB-200-2011", "CloserLook's", "cub", aliases=("cub-200", "cub-200-2011", "cub-closerlook")),
    DatasetInfo("cub-feat", "CUB-200-2011, FEAT's split", "FEAT's", "cub", aliases=("cub-200-2011-feat",)),
    DatasetInfo(
        "cub-metadataset", "CUB-200-2011, Meta-Dataset's split", "Meta-Dataset's", "cub", aliases=("cub-easyfsl",)
    ),
    DatasetInfo("fc100", "FC100", "TADAM's", "cifar100", 32, 600, ("cifar-fc100", "fewshot-cifar100"), _CIFAR),
    DatasetInfo("cifarfs", "CIFAR-FS", "Bertinetto et al.'s", "cifar100", 32, 600, ("cifar-few-shot",), _CIFAR),
    DatasetInfo(EMBEDDED, "glyphs", "fsbench's", "glyphs", 32, 80),
)}  # fmt: skip
DATASETS = tuple(_CATALOG)  # the names of all data sets of the catalog


def split_digest(classes: Mapping[str, Iterable[str]]) -> str:
    """The sha256 that identifies a division of classes into splits.

    It does not depend on the order of the classes, and a split without classes counts as absent.
    """
    lists = {split: sorted(classes[split]) for split in SPLITS if classes.get(split)}
    return hashlib.sha256(json.dumps(lists, separators=(",", ":")).encode()).hexdigest()


def find_info(name: str) -> DatasetInfo | None:
    """The catalog entry for what a user typed, a name or an alias; None if there is none."""
    plain = _plain(name)
    return next((info for info in _CATALOG.values() if plain in map(_plain, (info.name, *info.aliases))), None)


def dataset_info(name: str) -> DatasetInfo:
    """The catalog entry of a data set, by its name or an alias of it; an unknown name is refused."""
    info = _CATALOG.get(name) or find_info(name)
    if info is None:
        raise unknown_name("data set", name, _CATALOG)
    return info


def benchmark_of(name: str) -> str:
    """The benchmark that a data set of the catalog is a split of, as `cub-feat` is of `cub`; any other name itself."""
    images = _CATALOG[name].images_of if name in _CATALOG else name
    return images if images in _CATALOG else name


def names_for_folder(folder: str) -> tuple[str, ...]:
    """The data sets that may lie in a folder of that name, the most usual first."""
    names = {info.name: (info.name, *info.aliases, *info.folders) for info in _CATALOG.values()}
    return tuple(name for name, all_names in names.items() if _plain(folder) in map(_plain, all_names))


def variants(info: DatasetInfo) -> tuple[DatasetInfo, ...]:
    """All data sets cut from the same images, `info` itself first."""
    others = (other for other in _CATALOG.values() if other.images_of == info.images_of and other is not info)
    return (info, *others)


def _plain(name: str) -> str:
    """A name in lower case with letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
