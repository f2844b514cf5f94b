"""The data sets this field reports on: class lists, image counts, names.

A data set is one row of the table below and one file ``splits/<name>.json``, either with lists of classes,
``{"base": [class, ...], "val": [...], "novel": [...]}``, all with as many images as the row says, or with
the images of each class, ``{"base": {class: images, ...}, ...}``.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SPLITS = ("base", "val", "novel")
EMBEDDED = "glyphs"  # the data set that fsbench draws itself

# Folder, file and key names under which the three splits are met in practice.
SPLIT_ALIASES = {
    "base": ("base", "train", "meta-train", "meta_train", "metatrain", "training"),
    "val": ("val", "validation", "valid", "meta-val", "meta_val", "metaval"),
    "novel": ("novel", "test", "meta-test", "meta_test", "metatest", "testing"),
}
SPLIT_WORDS = frozenset(alias for aliases in SPLIT_ALIASES.values() for alias in aliases)


@dataclass(frozen=True)
class _Row:
    """What the table says about a data set beside its class lists; see `DatasetInfo`."""

    title: str
    split_title: str
    images_of: str
    image_size: int | None = None
    images_per_class: int | None = None
    aliases: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


_CIFAR_FOLDERS = ("cifar-100-python", "cifar-100")
# `aliases` are what people type, `folders` are further names under which the images lie on disk.
# Both are compared in lower case without punctuation.
_TABLE = {
    "mini": _Row(
        "mini-ImageNet",
        "Ravi & Larochelle's",
        images_of="mini",
        images_per_class=600,
        aliases=("mini-imagenet", "mini-ravi"),
        folders=("mini-imagenet-images", "mini-imagenet-84", "mini-imagenet-full-size"),
    ),
    "mini-vinyals": _Row(
        "mini-ImageNet, Vinyals' classes",
        "the list known as Vinyals'",
        images_of="mini",
        images_per_class=600,
        aliases=("mini-imagenet-vinyals",),
    ),
    "tiered": _Row(
        "tiered-ImageNet",
        "Ren et al.'s",
        images_of="tiered",
        image_size=84,
        aliases=("tiered-imagenet",),
        folders=("tiered-imagenet-images", "tiered-imagenet-84"),
    ),
    "cub": _Row("CUB-200-2011", "CloserLook's", "cub", aliases=("cub-200", "cub-200-2011", "cub-closerlook")),
    "cub-feat": _Row("CUB-200-2011, FEAT's split", "FEAT's", "cub", aliases=("cub-200-2011-feat",)),
    "cub-metadataset": _Row(
        "CUB-200-2011, Meta-Dataset's split", "Meta-Dataset's", images_of="cub", aliases=("cub-easyfsl",)
    ),
    "fc100": _Row(
        "FC100",
        "TADAM's",
        images_of="cifar100",
        image_size=32,
        images_per_class=600,
        aliases=("cifar-fc100", "fewshot-cifar100"),
        folders=_CIFAR_FOLDERS,
    ),
    "cifarfs": _Row(
        "CIFAR-FS",
        "Bertinetto et al.'s",
        images_of="cifar100",
        image_size=32,
        images_per_class=600,
        aliases=("cifar-few-shot",),
        folders=_CIFAR_FOLDERS,
    ),
    EMBEDDED: _Row("glyphs", "fsbench's", images_of="glyphs", image_size=32, images_per_class=80),
}


@dataclass(frozen=True, eq=False)
class DatasetInfo:
    """What is known about a data set before any image is read.

    Attributes:
        name: The name used on the command line and in file names.
        title: The name used in tables.
        split_title: Whose class split it is, for sentences ("CloserLook's").
        splits: Number of images per class, for every split.
        image_size: Side of the images on disk, None when it varies from copy to copy.
        images_of: Name shared by data sets that are cut from the same images.
    """

    name: str
    title: str
    split_title: str
    splits: Mapping[str, Mapping[str, int]]
    image_size: int | None
    images_of: str

    def classes(self, split: str) -> tuple[str, ...]:
        """The sorted class names of a split."""
        return tuple(self.splits[split])

    def images(self, split: str) -> int:
        """The number of images of a split."""
        return sum(self.splits[split].values())

    @cached_property
    def split_of(self) -> dict[str, str]:
        """The split of every class."""
        return {label: split for split, labels in self.splits.items() for label in labels}

    @property
    def split_digest(self) -> str:
        """The sha256 that identifies the class lists."""
        return split_digest(self.splits)


def split_digest(classes: Mapping[str, Iterable[str]]) -> str:
    """The sha256 that identifies a division of classes into splits.

    It does not depend on the order of the classes, and a split without classes counts as absent.
    """
    lists = {split: sorted(classes[split]) for split in SPLITS if classes.get(split)}
    return hashlib.sha256(json.dumps(lists, separators=(",", ":")).encode()).hexdigest()


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets of the catalog."""
    return tuple(_TABLE)


def resolve_name(name: str) -> str:
    """The catalog's name for what a user typed.

    Raises:
        FsbenchError: No data set goes by that name.
    """
    wanted = plain(name)
    for known, row in _TABLE.items():
        if wanted in {plain(alias) for alias in (known, *row.aliases)}:
            return known
    raise unknown_name("data set", name, _TABLE)


def benchmark_of(name: str) -> str:
    """The benchmark that a data set of the catalog is a split of, as `cub-feat` is of `cub`; any other name itself."""
    return name.partition("-")[0] if name in _TABLE else name


def names_for_folder(folder: str) -> tuple[str, ...]:
    """The data sets that may lie in a folder of that name, the most usual first."""
    wanted = plain(folder)
    return tuple(
        name for name, row in _TABLE.items() if wanted in {plain(alias) for alias in (name, *row.aliases, *row.folders)}
    )


def variants(info: DatasetInfo) -> tuple[DatasetInfo, ...]:
    """All data sets cut from the same images, the given one first."""
    others = (name for name, row in _TABLE.items() if row.images_of == info.images_of and name != info.name)
    return (info, *(dataset_info(name) for name in others))


@cache
def dataset_info(name: str) -> DatasetInfo:
    """The catalog entry of a data set, by its name or an alias of it."""
    if name not in _TABLE:
        return dataset_info(resolve_name(name))
    row = _TABLE[name]
    text = resources.files("fsbench.data").joinpath(f"splits/{name}.json").read_text(encoding="utf-8")
    splits = {}
    for split, classes in json.loads(text).items():
        counts = classes if isinstance(classes, dict) else dict.fromkeys(classes, row.images_per_class)
        splits[split] = dict(sorted(counts.items()))
    return DatasetInfo(name, row.title, row.split_title, splits, row.image_size, row.images_of)


def canonical_split(name: str) -> str:
    """The split meant by one of the names in circulation, such as ``train`` or ``meta-test``.

    Raises:
        FsbenchError: It is none of them.
    """
    wanted = name.strip().lower()
    for split, aliases in SPLIT_ALIASES.items():
        if wanted in aliases:
            return split
    known = ", ".join(f"{split} ({', '.join(aliases[1:])})" for split, aliases in SPLIT_ALIASES.items())
    raise FsbenchError(f"Unknown split {name!r}.", f"Known: {known}.")


def plain(name: str) -> str:
    """A name in lower case with letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
