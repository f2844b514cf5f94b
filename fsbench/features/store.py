"""Feature files: the features, labels and names of every split, and where they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic reads the annotations
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fsbench.data.catalog import SPLIT_ALIASES, SPLITS
from fsbench.errors import FsbenchError
from fsbench.io.files import is_name, whole_file
from fsbench.io.hdf5 import REMAKE, attribute_of, dataset_of, encode, has_member, open_hdf5, sealed_hdf5, strings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import h5py
    from numpy.typing import NDArray


FORMAT = "fsbench-features"
VERSION = 1
_CHUNK_BYTES = 32 << 20
_RELABEL = "Every class has a number from 0 and at least one image: repair the labels, or make the file again."


@dataclass(frozen=True)
class Provenance:
    """Where features come from; what is not known is empty.

    Attributes:
        family: Name in `fsbench.backbones.families`, such as `wrn-s2m2`.
        weights: Name of the weights file, or "none, seed s".
        weights_sha256: Of that file.
        split_digest: Of the class lists.
        transform: From image to tensor, as JSON.
        image_size: Side of the tensor, in pixels.
        crops: Crops per image whose features were averaged.
        notes: What else is worth knowing, such as images that were left out.
        fingerprint: Of everything that determines the features.
        imported: Where features come from that fsbench did not extract: file, sha256, format and splits of each.
        architecture: Widths and depth of the network, `widths 64-160-320-640`.
        trained_by: "fsbench" for weights of `fsbench train`.
    """

    dataset: str
    backbone: str
    family: str = ""
    weights: str = ""
    weights_sha256: str = ""
    split_digest: str = ""
    transform: str = ""
    image_size: int = 0
    crops: int = 1
    precision: str = "float32"
    libraries: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    fingerprint: str = ""
    imported: Sequence[Mapping[str, str]] = ()
    architecture: str = ""
    trained_by: str = ""

    @property
    def named_weights(self) -> str:
        """The weights in a few words, as records name them: `rn12.pt1@0a1b2c3d`, or `random seed 0`."""
        if self.weights_sha256:
            return f"{self.weights}@{self.weights_sha256[:8]}"
        return self.weights.replace("none, seed", "random seed")


def _read_provenance(file: h5py.File, path: Path) -> Provenance:
    """Read and check what a file says of its origin."""
    stated = attribute_of(file, "provenance")
    if not isinstance(stated, str):
        raise FsbenchError(f"{path} does not say where its features come from.", REMAKE)
    try:
        provenance = TypeAdapter(Provenance).validate_json(stated)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FsbenchError(f"{path} has no readable provenance: {where}: {first['msg']}.", REMAKE) from error
    if not is_name(provenance.dataset) or not is_name(provenance.backbone):
        raise FsbenchError(f"{path} does not name its data set and backbone.", REMAKE)
    if provenance.family and not is_name(provenance.family):
        raise FsbenchError(f"{path} has an unprintable or overlong name of a backbone family.", REMAKE)
    return provenance


@dataclass(frozen=True)
class Split:
    """One split in memory, sorted by class.

    Attributes:
        features: (M, D) float32.
        offsets: (C + 1,) first row of every class, then M.
        images: M relative names, or empty.
        marks: M numbers that differ between most images of the same name (see `ImageReader.mark`), or empty.
        digest: SHA-256 of features and labels.
    """

    features: NDArray[np.float32]
    offsets: NDArray[np.int64]
    class_names: tuple[str, ...]
    images: tuple[str, ...] = ()
    digest: str = ""
    marks: tuple[int, ...] = ()

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
    marks: Sequence[int] = (),
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
    names, known = (tuple(values[i] for i in order) if values else () for values in (images, marks))
    ordered = np.ascontiguousarray(features[order], dtype=np.float32)
    _check_finite(ordered, 0, "features", names)
    return Split(ordered, offsets.astype(np.int64), tuple(class_names), names, marks=known)


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
    digest = hashlib.sha256()
    for start, stop in _chunks(*split.features.shape):
        block = np.ascontiguousarray(split.features[start:stop], dtype="<f4")
        _check_finite(block, start, f"split {group.name[1:]}", split.images)
        digest.update(block.data)
        if block.size:
            stored[start:stop] = block
    digest.update(split.labels.astype("<i8").data)
    group.create_dataset("labels", data=split.labels)
    group.create_dataset("class_offsets", data=split.offsets.astype(np.int64))
    group.create_dataset("class_names", data=encode(split.class_names))
    if split.images:
        group.create_dataset("images", data=encode(split.images))
    if split.marks:
        group.create_dataset("marks", data=np.array(split.marks, dtype=np.int64))
    group.attrs["sha256"] = digest.hexdigest()


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
            present = [name for name in SPLITS if has_member(file, name)]
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
        features = np.empty((summary.rows, summary.dimension), dtype=np.float32)
        start = 0
        for block in self.stream(name):
            features[start : start + len(block)] = block
            start += len(block)
        images, marks = self.images(name) if with_images else ((), ())
        return Split(features, summary.offsets, summary.class_names, images, summary.digest, marks)

    def images(self, name: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Names and marks of the images of one split, each empty if the file has none."""
        rows = self.summary(name).rows
        with open_hdf5(self.path, FORMAT, VERSION) as file:
            images = strings_of(file, f"{name}/images", self.path) if has_member(file[name], "images") else ()
            stored = has_member(file[name], "marks")
            marks = dataset_of(file, f"{name}/marks", self.path, ndim=1, kind="i")[()].tolist() if stored else ()
        if len(images) not in {0, rows} or len(marks) not in {0, rows}:
            message = f"{self.path}: {rows} rows in {name}, but {len(images)} names and {len(marks)} marks of images."
            raise FsbenchError(message, REMAKE)
        return images, tuple(marks)

    def stream(self, name: str) -> Iterator[NDArray[np.float32]]:
        """Read one split in blocks of whole rows; its digest is verified at the end."""
        summary = self.summary(name)
        digest = hashlib.sha256()
        with open_hdf5(self.path, FORMAT, VERSION) as file:
            stored = dataset_of(file, f"{name}/features", self.path, ndim=2, kind="f")
            for start, stop in _chunks(summary.rows, summary.dimension):
                block = np.asarray(stored[start:stop], dtype="<f4")
                _check_finite(block, start, f"split {name} of {self.path}", ())
                digest.update(block.data)
                yield block
        digest.update(np.repeat(np.arange(len(summary.class_names)), np.diff(summary.offsets)).astype("<i8").data)
        if digest.hexdigest() != summary.digest:
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
    digest = attribute_of(file[name], "sha256")
    if not isinstance(digest, str):
        raise FsbenchError(f"{where}: no SHA-256 of the content.", REMAKE)
    return SplitSummary(rows, dimension, offsets, names, digest)


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
