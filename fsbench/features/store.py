"""Feature files: the features, labels and names of every split, and where they come from."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fsbench.data.catalog import SPLIT_ALIASES, SPLITS
from fsbench.errors import FsbenchError
from fsbench.io.files import is_name, whole_file
from fsbench.io.hdf5 import REMAKE, attribute_of, dataset_of, encode, open_hdf5, sealed_hdf5, strings_of

FORMAT = "fsbench-features"
VERSION = 1
_CHUNK_BYTES = 32 << 20
_RELABEL = "Every class has a number from 0 and at least one image: repair the labels, or make the file again."


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


def _read_provenance(file: h5py.File, path: Path) -> Provenance:
    try:
        provenance = TypeAdapter(Provenance).validate_json(str(attribute_of(file, "provenance")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FsbenchError(f"{path} has no readable provenance: {where}: {first['msg']}.", REMAKE) from error
    if not all(map(is_name, (provenance.dataset, provenance.backbone, provenance.family or "none"))):
        raise FsbenchError(f"{path} does not name its data set, backbone and family in printable letters.", REMAKE)
    return provenance


@dataclass(frozen=True)
class Split:
    """One split in memory, sorted by class."""

    features: NDArray[np.float32]  # (M, D)
    offsets: NDArray[np.int64]  # (C + 1,) first row of every class, then M
    class_names: tuple[str, ...]
    images: tuple[str, ...] = ()  # M relative names, or none
    digest: str = ""  # SHA-256 of features and labels
    hashes: tuple[str, ...] = ()  # M hashes of the images' bytes, or none

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
    _check_labels(labels, len(class_names), "labels")
    order = np.argsort(labels, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=len(class_names)))])
    names, contents = (tuple(values[i] for i in order) if values else () for values in (images, hashes))
    ordered = np.ascontiguousarray(features[order], dtype=np.float32)
    _check_finite(ordered, 0, "features", names)
    return Split(ordered, offsets.astype(np.int64), tuple(class_names), names, hashes=contents)


def write_features(path: Path, provenance: Provenance, splits: Mapping[str, Split]) -> None:
    """Write a feature file, whole or not at all."""
    if not splits or any(name not in SPLITS for name in splits):
        raise FsbenchError(f"A feature file holds the splits {', '.join(SPLITS)}, got: {', '.join(splits) or 'none'}.")
    if len({split.features.shape[1] for split in splits.values()}) > 1:
        raise FsbenchError("All splits of a feature file must have the same number of features.")
    with whole_file(path) as temporary, sealed_hdf5(temporary, [f"{name}/features" for name in splits]) as file:
        file.attrs["format"] = FORMAT
        file.attrs["version"] = VERSION
        file.attrs["provenance"] = json.dumps(asdict(provenance), ensure_ascii=False, sort_keys=True)
        for name, split in splits.items():
            _write_split(file.create_group(name), split)


def _write_split(group: h5py.Group, split: Split) -> None:
    stored = group.create_dataset("features", split.features.shape, np.float32)
    checksum = hashlib.sha256()
    for start, stop in _chunks(*split.features.shape):
        block = np.ascontiguousarray(split.features[start:stop], dtype="<f4")
        _check_finite(block, start, f"split {group.name[1:]}", split.images)
        checksum.update(block.data)
        if block.size:
            stored[start:stop] = block
    checksum.update(split.labels.astype("<i8").data)
    group.create_dataset("labels", data=split.labels)
    group.create_dataset("class_offsets", data=split.offsets.astype(np.int64))
    group.create_dataset("class_names", data=encode(split.class_names))
    for name, texts in (("images", split.images), ("hashes", split.hashes)):
        if texts:
            group.create_dataset(name, data=encode(texts))
    group.attrs["sha256"] = checksum.hexdigest()


@dataclass(frozen=True)
class FeatureFile:
    """A checked feature file on disk. Opening reads its structure; `read` and `stream` read features."""

    path: Path
    provenance: Provenance
    splits: Mapping[str, SplitSummary]

    @classmethod
    def open(cls, path: str | Path) -> FeatureFile:
        """Check a file's structure and read everything but the features and the image names."""
        path = Path(path)
        with open_hdf5(path, FORMAT, VERSION) as file:
            provenance = _read_provenance(file, path)
            present = [name for name in SPLITS if name in file]
            if not present:
                raise FsbenchError(f"{path} has none of the splits {', '.join(SPLITS)}.", REMAKE)
            splits = {name: _summarise(file, name, path) for name in present}
        if len({summary.dimension for summary in splits.values()}) > 1:
            raise FsbenchError(f"The splits of {path} differ in the number of features.", REMAKE)
        return cls(path, provenance, splits)

    def __str__(self) -> str:
        made = self.provenance
        family = "" if made.family == made.backbone else made.family
        network = ", ".join(filter(None, (family, made.named_weights)))
        splits = (f"{name} {len(one.class_names)} classes, {one.rows:,} images" for name, one in self.splits.items())
        origin = f"imported from {made.imported[0].get('file', '?')}" if made.imported else "extracted"
        size = f"{made.image_size} pixels, " if made.image_size else ""
        return (
            f"{self.path}: {made.dataset} {made.backbone}" + (f" ({network})" if network else "") + "\n"
            f"{'; '.join(splits)}\n"
            f"D = {self.dimension}, {size}{made.crops} {'crop' if made.crops == 1 else 'crops'}, {origin}"
        )

    @property
    def dimension(self) -> int:
        """Number of features, D."""
        return next(iter(self.splits.values())).dimension

    def summary(self, name: str) -> SplitSummary:
        """What the file says of one split; an error that lists the splits if it is missing."""
        if name not in SPLITS:
            meant = next((split for split, aliases in SPLIT_ALIASES.items() if name.lower() in aliases), "")
            hint = f"fsbench calls it {meant}." if meant else f"Splits: {', '.join(self.splits)}."
            raise FsbenchError(f"Unknown split {name!r}.", hint)
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
        return Split(features, summary.offsets, summary.class_names, images, summary.digest, hashes)

    def images(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and hashes of the images of one split, each empty if the file has none."""
        rows, texts = self.summary(name).rows, []
        with open_hdf5(self.path, FORMAT, VERSION) as file:
            for kind in ("images", "hashes"):
                present = kind in file[name]
                texts.append(strings_of(file, f"{name}/{kind}", self.path) if present else ())
        if any(len(values) not in {0, rows} for values in texts):
            message = f"{self.path}: {rows} rows in {name}, but {len(texts[0])} names and {len(texts[1])} hashes."
            raise FsbenchError(message, REMAKE)
        return texts[0], texts[1]

    def stream(self, name: str) -> Iterator[NDArray[np.float32]]:
        """Read one split in blocks of whole rows; its digest is verified at the end."""
        summary = self.summary(name)
        checksum = hashlib.sha256()
        with open_hdf5(self.path, FORMAT, VERSION) as file:
            stored = dataset_of(file, f"{name}/features", self.path, ndim=2, kind="f")
            for start, stop in _chunks(summary.rows, summary.dimension):
                block = np.asarray(stored[start:stop], dtype="<f4")
                _check_finite(block, start, f"split {name} of {self.path}", ())
                checksum.update(block.data)
                yield block
        checksum.update(np.repeat(np.arange(len(summary.class_names)), np.diff(summary.offsets)).astype("<i8").data)
        if checksum.hexdigest() != summary.digest:
            message = f"The features of split {name} in {self.path} are not those that were written"
            raise FsbenchError(f"{message}: the SHA-256 differs.", REMAKE)

    def describe(self) -> list[str]:
        """A few lines on the content, for people."""
        lines = [f"{self.path}: {self.provenance.dataset}, {self.provenance.backbone}, D = {self.dimension}"]
        for name, summary in self.splits.items():
            sizes = np.diff(summary.offsets)
            each = f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
            lines.append(f"  {name}: {summary.rows} images of {len(sizes)} classes ({each} each)")
        return lines


def _summarise(file: h5py.File, name: str, path: Path) -> SplitSummary:
    where = f"split {name} of {path}"
    rows, dimension = map(int, dataset_of(file, f"{name}/features", path, ndim=2, kind="f").shape)
    labels = np.asarray(dataset_of(file, f"{name}/labels", path, ndim=1, kind="i")[()])
    offsets = np.asarray(dataset_of(file, f"{name}/class_offsets", path, ndim=1, kind="i")[()], dtype=np.int64)
    names = strings_of(file, f"{name}/class_names", path)
    if len(labels) != rows:
        raise FsbenchError(f"{where}: {rows} rows of features but {len(labels)} labels.", REMAKE)
    _check_labels(labels, len(names), where)
    unsorted = np.flatnonzero(np.diff(labels) < 0)
    if len(unsorted):
        raise FsbenchError(f"{where}: rows are not sorted by class (first at row {unsorted[0] + 1}).", REMAKE)
    if not np.array_equal(offsets, np.searchsorted(labels, np.arange(len(names) + 1))):
        raise FsbenchError(f"{where}: class_offsets do not agree with the labels.", REMAKE)
    checksum = attribute_of(file[name], "sha256")
    if not isinstance(checksum, str):
        raise FsbenchError(f"{where}: no SHA-256 of the content.", REMAKE)
    return SplitSummary(rows, dimension, offsets, names, checksum)


def _chunks(rows: int, dimension: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CHUNK_BYTES // max(1, 4 * dimension))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def _check_labels(labels: NDArray[Any], classes: int, where: str) -> None:
    if not len(labels):
        raise FsbenchError(f"{where}: no images at all.", _RELABEL)
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        row = int(outside[0])
        raise FsbenchError(f"{where}: row {row} has label {int(labels[row])}, outside 0..{classes - 1}.", _RELABEL)
    counts = np.bincount(labels.astype(np.int64), minlength=classes)
    if not counts.all():
        raise FsbenchError(f"{where}: class {int(np.flatnonzero(counts == 0)[0])} has no images.", _RELABEL)


def _check_finite(block: NDArray[np.float32], start: int, where: str, images: Sequence[str]) -> None:
    if np.isfinite(block.sum(dtype=np.float64)) and np.isfinite(block).all():
        return
    row = int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
    value = block[row][~np.isfinite(block[row])][0]
    image = f" (image {images[start + row]})" if images else ""
    hint = "Features must be finite: check the image and the precision of the extraction."
    raise FsbenchError(f"{where}: row {start + row}{image} contains {value}.", hint)
