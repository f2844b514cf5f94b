"""Feature files: the features, labels and names of every split, and where they come from; and arrays in their place."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fsbench.data.catalog import SPLITS
from fsbench.errors import FsbenchError, UsageError
from fsbench.io.files import is_name
from fsbench.io.hdf5 import REMAKE, attribute_of, encode, open_hdf5, sealed_hdf5, strings_of

FORMAT = "fsbench-features"
VERSION = 1
_CHUNK_BYTES = 32 << 20
_MANY = 0.01  # share of the smaller split: public data sets have a few doubles, a mistake has many
_MARKED_AT_ONCE = 4096  # rows
_ONE_TEXT = "A text prototype is a row of as many features as images have, one per class, in the order of the classes."
_RELABEL = "Every class has a number from 0 and at least one image: repair the labels, or make the file again."

# features (M, D) and labels (M,), as arrays or tensors; and text prototypes (C, D) of the classes
Pair = tuple[Any, Any] | tuple[Any, Any, Any]
Arrays = Pair | Mapping[str, Pair]  # of novel classes alone, or by split
_EXAMPLE = 'Give a feature file, or arrays: {"base": (features, labels), "novel": (features, labels)}.'


@dataclass(frozen=True)
class Provenance:
    """Where features come from; what is not known is empty."""

    dataset: str
    backbone: str
    family: str = ""  # in `fsbench.backbones.families`, such as `wrn-s2m2`
    weights: str = ""  # name of the weights file, or "none, seed s"
    weights_sha256: str = ""
    split_digest: str = ""  # of the class lists
    transform: str = ""  # from image to tensor, as JSON
    image_size: int = 0  # side of the tensor, in pixels
    crops: int = 1  # per image, whose features were averaged
    precision: str = "fp32"
    libraries: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()  # what else is worth knowing, such as images that were left out
    fingerprint: str = ""  # of the recipe and of all images
    imported: Sequence[Mapping[str, str]] = ()  # file, sha256, format and splits of what fsbench did not extract
    architecture: str = ""  # `widths 64-160-320-640`
    trained_by: str = ""  # "fsbench" for weights of `fsbench train`
    seen: tuple[str, ...] = ()  # classes beside the base classes that the network was trained on
    other_transform: str = ""  # a transform that was chosen in place of the one that belongs to the network
    text_encoder: str = ""  # of the text prototypes, if there are some
    templates: tuple[str, ...] = ()  # that the names of the classes were put into

    @property
    def named_weights(self) -> str:
        """The weights in a few words, as records name them: `rn12.pt1@0a1b2c3d`, or `random seed 0`."""
        if self.weights_sha256:
            return f"{self.weights}@{self.weights_sha256[:8]}"
        return self.weights.replace("none, seed", "random seed")

    @property
    def aspects(self) -> dict[str, str]:
        """What determines a row beside its image, in words."""
        steps: dict[str, Any] = json.loads(self.transform or "{}")
        aspects = {"backbone": self.backbone, "family": self.family, "weights": self.named_weights}
        aspects |= {"network": self.architecture, "crops": str(self.crops), "precision": self.precision}
        return aspects | {f"transform {name}": str(value) for name, value in steps.items()}

    @property
    def recipe(self) -> str:
        """A digest of these aspects, whatever the weights file is called."""
        return digest({**self.aspects, "weights": self.weights_sha256 or self.weights})


def library_versions() -> dict[str, str]:
    """Versions of Python and the packages that matter; an empty text for one that is not installed."""
    versions = {"python": sys.version.split()[0]}
    for package in ("torch", "torchvision", "timm", "numpy", "pillow", "h5py"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    return versions


def digest(content: Any) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Split:
    """One split in memory, sorted by class."""

    features: NDArray[np.float32]  # (M, D)
    offsets: NDArray[np.int64]  # (C + 1,) first row of every class, then M
    class_names: tuple[str, ...]
    images: tuple[str, ...] = ()  # M relative names, or none
    digest: str = ""  # SHA-256 of features and labels
    hashes: tuple[str, ...] = ()  # M hashes of the images' bytes, or none
    text: NDArray[np.float32] | None = None  # (C, D) text prototype of every class, of any length

    @property
    def labels(self) -> NDArray[np.int64]:
        """(M,) class number of every row."""
        return np.repeat(np.arange(len(self.class_names)), np.diff(self.offsets))


@dataclass(frozen=True)
class SplitSummary:
    """What a file says of one split, without its features."""

    rows: int
    dimension: int
    offsets: NDArray[np.int64]
    class_names: tuple[str, ...]
    digest: str
    text: NDArray[np.float32] | None = None


def make_split(
    features: NDArray[Any],
    labels: NDArray[Any],
    class_names: Sequence[str] | None = None,
    images: Sequence[str] = (),
    hashes: Sequence[str] = (),
) -> Split:
    """Sort rows by class, keeping their order within a class, and check them.

    Labels may be any integers; class c of the split is the c-th smallest of them unless names say otherwise.
    """
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        message = f"Expected features (M, D) and labels (M,), got {features.shape} and {labels.shape}."
        raise FsbenchError(message, "Pass one label per row of features.")
    if not np.issubdtype(labels.dtype, np.integer):
        raise FsbenchError(f"Labels must be integers, got {labels.dtype}.", _RELABEL)
    if class_names is None:
        values, labels = np.unique(labels, return_inverse=True)
        class_names = [str(value) for value in values]
    _check_labels(labels, len(class_names))
    order = np.argsort(labels, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=len(class_names)))])
    names, contents = (tuple(values[i] for i in order) if values else () for values in (images, hashes))
    ordered = np.ascontiguousarray(features[order], dtype=np.float32)
    _check_finite(ordered, order, names)
    return Split(ordered, offsets.astype(np.int64), tuple(class_names), names, hashes=contents)


def write_features(path: Path, provenance: Provenance, splits: Mapping[str, Split]) -> None:
    """Write a feature file, whole or not at all."""
    if not splits or any(name not in SPLITS for name in splits):
        raise FsbenchError(f"A feature file holds the splits {', '.join(SPLITS)}, got: {', '.join(splits) or 'none'}.")
    with sealed_hdf5(path, FORMAT, VERSION, [f"{name}/features" for name in splits]) as file:
        file.attrs["provenance"] = json.dumps(asdict(provenance), ensure_ascii=False, sort_keys=True)
        for name, split in splits.items():
            group = file.create_group(name)
            group.create_dataset("features", data=split.features, dtype=np.float32)
            group.create_dataset("labels", data=split.labels)
            group.create_dataset("class_offsets", data=split.offsets.astype(np.int64))
            group.create_dataset("class_names", data=encode(split.class_names))
            for kind, texts in (("images", split.images), ("hashes", split.hashes)):
                if texts:
                    group.create_dataset(kind, data=encode(texts))
            if split.text is not None:
                group.create_dataset("text", data=split.text, dtype=np.float32)
            group.attrs["sha256"] = content_digest(split)


def content_digest(split: Split) -> str:
    """The SHA-256 of features and labels, and of text prototypes where there are some."""
    checksum = hashlib.sha256()
    for block in in_blocks(split.features):
        checksum.update(block.data)
    return _with_classes(checksum, split)


def _with_classes(checksum: hashlib._Hash, split: Split | SplitSummary) -> str:
    """The checksum of features, completed by the labels and the text."""
    checksum.update(np.repeat(np.arange(len(split.class_names)), np.diff(split.offsets)).astype("<i8").data)
    if split.text is not None:
        checksum.update(np.ascontiguousarray(split.text, dtype="<f4").data)
    return checksum.hexdigest()


def with_text(split: Split, text: NDArray[Any], origin: str) -> Split:
    """A split with text prototypes (C, D), after a check; `origin` says in messages where they come from."""
    table = np.asarray(text).astype(np.float32)
    expected = len(split.class_names), split.features.shape[1]
    if table.shape != expected:
        raise FsbenchError(f"{origin}: expected text of shape {expected}, got {table.shape}.", _ONE_TEXT)
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1) | ~table.any(axis=1))
    if len(broken):
        message = f"{origin}: the text of class {split.class_names[broken[0]]} is zero or not finite."
        raise FsbenchError(message, _ONE_TEXT)
    return replace(split, text=table)


def in_blocks(features: NDArray[np.float32] | h5py.Dataset) -> Iterator[NDArray[np.float32]]:
    """Blocks of whole rows, on disk or in memory."""
    step = max(1, _CHUNK_BYTES // max(1, 4 * features.shape[1]))
    for start in range(0, len(features), step):
        yield np.ascontiguousarray(features[start : start + step], dtype="<f4")


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """A checked feature file on disk. Opening reads its structure; `read` and `stream` read features."""

    in_memory: ClassVar[bool] = False  # then there is no file at `path`, which is a name for messages

    path: Path
    provenance: Provenance
    splits: Mapping[str, SplitSummary]

    @classmethod
    def open(cls, path: str | Path) -> FeatureFile:
        """Check a file's structure and read everything but the features and the image names."""
        path = Path(path)
        with open_hdf5(path, FORMAT, VERSION) as file:
            made = TypeAdapter(Provenance).validate_json(str(attribute_of(file, "provenance")))
            if not all(map(is_name, (made.dataset, made.backbone, made.family or "none"))):
                raise FsbenchError(f"{path} does not name its data set, backbone and family in letters.", REMAKE)
            splits = {}
            for name, group in ((name, file[name]) for name in SPLITS if name in file):
                names, checksum = strings_of(group["class_names"]), str(attribute_of(group, "sha256"))
                text = group["text"][()] if "text" in group else None  # labels are for other programs: see the offsets
                rows, dimension = group["features"].shape
                splits[name] = SplitSummary(rows, dimension, group["class_offsets"][()], names, checksum, text)
            return cls(path, made, splits)

    def __str__(self) -> str:
        made = self.provenance
        origin = f"imported from {made.imported[0].get('file', '?')}" if made.imported else "extracted"
        crops = f"{made.crops} {'crop' if made.crops == 1 else 'crops'}"
        size = f"{made.image_size} pixels" if made.image_size else ""
        lines = [f"{self.path}: {made.dataset}, {made.backbone}, D = {self.dimension}"]
        lines += [f"{name}: {one.rows} images of {len(one.class_names)} classes" for name, one in self.splits.items()]
        has_text = any(split.text is not None for split in self.splits.values())
        lines += [f"text of {made.text_encoder or 'an unknown encoder'}"] if has_text else []
        return "\n  ".join([*lines, ", ".join(filter(None, (made.family, made.named_weights, size, crops, origin)))])

    @property
    def dimension(self) -> int:
        """Number of features, D."""
        return next(iter(self.splits.values())).dimension

    def summary(self, name: str) -> SplitSummary:
        """What the file says of one split; an error that lists the splits if it is missing."""
        if name not in self.splits:
            hint = f"Extract the {name} images into this file, or choose another --split."
            raise FsbenchError(f"{self.path} has no split {name!r}; it has {', '.join(self.splits)}.", hint)
        return self.splits[name]

    def read(self, name: str, *, with_images: bool = True) -> Split:
        """Read one split into memory and verify it against its digest; the names of its images only if asked for."""
        summary = self.summary(name)
        features, start = np.empty((summary.rows, summary.dimension), dtype=np.float32), 0
        for block in self.stream(name):
            features[start : start + len(block)] = block
            start += len(block)
        images, hashes = self.images(name) if with_images else ((), ())
        return Split(features, summary.offsets, summary.class_names, images, summary.digest, hashes, summary.text)

    def images(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and hashes of the images of one split, each empty if the file has none."""
        self.summary(name)
        with open_hdf5(self.path, FORMAT, VERSION) as file:
            group = file[name]
            images, hashes = (strings_of(group[kind]) if kind in group else () for kind in ("images", "hashes"))
        return images, hashes

    def stream(self, name: str) -> Iterator[NDArray[np.float32]]:
        """Read one split in blocks of whole rows; its digest is verified at the end."""
        summary = self.summary(name)
        checksum = hashlib.sha256()
        with open_hdf5(self.path, FORMAT, VERSION) as file:
            for block in in_blocks(file[name]["features"]):
                checksum.update(block.data)
                yield block
        if _with_classes(checksum, summary) != summary.digest:
            message = f"The features of split {name} in {self.path} are not those that were written"
            raise FsbenchError(f"{message}: the SHA-256 differs.", REMAKE)


def _check_labels(labels: NDArray[Any], classes: int) -> None:
    if not len(labels):
        raise FsbenchError("There are no images at all.", _RELABEL)
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        row = int(outside[0])
        raise FsbenchError(f"Row {row} has label {int(labels[row])}, outside 0..{classes - 1}.", _RELABEL)
    empty = np.setdiff1d(np.arange(classes), labels)
    if len(empty):
        raise FsbenchError(f"Class {empty[0]} has no images.", _RELABEL)


def _check_finite(features: NDArray[np.float32], order: NDArray[np.intp], images: Sequence[str]) -> None:
    """Refuse rows that are not finite; the error has the number of the first before they were put in order."""
    rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(rows):
        row = features[rows[0]]
        image = f" (image {images[rows[0]]})" if images else ""
        hint = "Features must be finite: check the image and the precision of the extraction."
        raise FsbenchError(f"Row {order[rows[0]]}{image} of the features contains {row[~np.isfinite(row)][0]}.", hint)


def overlap(
    one: str, first: Iterable[NDArray[np.float32]], other: str, second: Iterable[NDArray[np.float32]], why: str = ""
) -> str:
    """A remark on rows that two splits, given as blocks, have in common bit for bit; empty if there are none.

    Rows of zeros do not count. Many cannot be an accident: they are refused, if `why` says what they would spoil.
    """
    marks, others = _marks(first), _marks(second)
    shared = len(np.intersect1d(marks[marks > 0], others[others > 0]))
    rows = "1 identical row" if shared == 1 else f"{shared:,} identical rows"
    sentence = f"{one} and {other} share {rows} of features"
    if why and shared / max(1, min(len(marks), len(others))) >= _MANY:
        raise FsbenchError(f"{sentence}: {why}", "Remove the images that are in both, and extract again.")
    return f"{sentence}: the same images in both?" if shared else ""


def overlaps(splits: Mapping[str, Split], why: str = "") -> list[str]:
    """The remarks on all pairs of splits of a data set."""
    pairs = itertools.combinations(splits.items(), 2)
    remarks = [overlap(one, [first.features], other, [second.features], why) for (one, first), (other, second) in pairs]
    return [remark for remark in remarks if remark]


def repeated_rows(split: Split) -> str:
    """How many rows of a split are stored more than once, and how many of them with two labels; empty if none is."""
    marks, labels = _marks([split.features]), split.labels
    order = np.lexsort((labels, marks))
    again = (marks[order][1:] == marks[order][:-1]) & (marks[order][1:] > 0)
    other_label = again & (labels[order][1:] != labels[order][:-1])
    if not again.any():
        return ""
    words = f"{again.sum():,} of {len(marks):,} rows are copies of other rows"
    return words + (f", {other_label.sum():,} of them with another label" if other_label.any() else "")


def _marks(blocks: Iterable[NDArray[np.float32]]) -> NDArray[np.uint64]:
    """(M,) a 64-bit sum of the bits of every row, each place with its own odd weight; 0 for a row of zeros."""
    sums = [np.zeros(0, dtype=np.uint64)]
    for block in blocks:
        weights = np.random.default_rng(0).integers(0, 1 << 63, block.shape[1], dtype=np.uint64) * 2 + 1
        for start in range(0, len(block), _MARKED_AT_ONCE):
            bits = np.ascontiguousarray(block[start : start + _MARKED_AT_ONCE]).view(np.uint32)
            sums.append(bits.astype(np.uint64) @ weights)
    return np.concatenate(sums)


@dataclass(frozen=True, eq=False)
class FeaturesInMemory(FeatureFile):
    """Features and labels that are in no file."""

    in_memory: ClassVar[bool] = True

    held: Mapping[str, Split]

    def stream(self, name: str) -> Iterator[NDArray[np.float32]]:
        """One split in blocks of whole rows."""
        self.summary(name)
        return in_blocks(self.held[name].features)

    def images(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Arrays do not name their images."""
        return (), ()


def is_arrays(value: object) -> bool:
    """Whether something is meant as features and labels in memory, right or wrong."""
    return isinstance(value, Mapping) or (
        isinstance(value, tuple) and 1 < len(value) < 4 and hasattr(value[0], "shape")
    )


def opened(values: Any, argument: str) -> list[FeatureFile]:
    """Open the value of an argument: None, or one or a list of paths, open files, and arrays."""
    listed = values if isinstance(values, list) else [] if values is None else [values]
    return [_opened(one, f"arrays{number or ''}", argument) for number, one in enumerate(listed)]


def _opened(value: Any, name: str, argument: str) -> FeatureFile:
    if isinstance(value, FeatureFile):
        return value
    if isinstance(value, str | Path):
        return FeatureFile.open(value)
    if not is_arrays(value):
        raise UsageError(argument, f"expected a feature file, got {described(value)}", _EXAMPLE)
    pairs = value if isinstance(value, Mapping) else {"novel": value}
    for split in pairs or ("nothing",):
        if split not in SPLITS:
            raise UsageError(argument, f"{split!r} is not a split; expected {', '.join(SPLITS)}", _EXAMPLE)
    named = {split: f"{argument}[{split!r}]" if pairs is value else argument for split in SPLITS if split in pairs}
    held = {split: _split(pairs[split], place) for split, place in named.items()}
    if len({one.features.shape[1] for one in held.values()}) > 1:
        raise FsbenchError("All splits must have the same number of features.")
    summaries = {
        split: SplitSummary(
            len(x := one.features), x.shape[1], one.offsets, one.class_names, content_digest(one), one.text
        )
        for split, one in held.items()
    }
    return FeaturesInMemory(Path(name), Provenance("arrays", "memory"), summaries, held)


def _split(pair: Any, argument: str) -> Split:
    if not isinstance(pair, Sequence) or len(pair) not in (2, 3):
        raise UsageError(argument, f"expected (features, labels), got {described(pair)}", _EXAMPLE)
    try:
        features, labels, *text = (array.detach().cpu() if hasattr(array, "detach") else array for array in pair)
        split = make_split(features, labels)
        return with_text(split, text[0], "text") if text else split
    except (FsbenchError, ValueError, TypeError) as error:
        problem = error.message if isinstance(error, FsbenchError) else str(error)
        raise UsageError(argument, problem.rstrip(".")) from error


def described(value: object) -> str:
    """A value in a few words: its shape, or its type."""
    shape = getattr(value, "shape", None)
    return f"an array of shape {tuple(shape)}" if shape is not None else f"a {type(value).__name__}"
