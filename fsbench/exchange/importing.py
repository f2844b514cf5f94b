"""`fsbench import`: files of features from other programs into one feature file, checked."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.data.catalog import SPLIT_WORDS, SPLITS, canonical_split, dataset_info, dataset_names, resolve_name
from fsbench.errors import FsbenchError
from fsbench.exchange.containers import REPAIR, Part, text_of
from fsbench.exchange.detect import read_file
from fsbench.features.store import FeatureFile, Provenance, digest, make_split, overlaps, write_features
from fsbench.io.files import is_name, only_writer, readable_part, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fsbench.features.store import Split
    from fsbench.reporter import Reporter


def split_from(part: Part, origin: str) -> Split:
    """The checked rows of a split; `origin` says in messages where they come from."""
    if part.features is None or part.labels is None:
        missing = "features" if part.features is None else "labels"
        hint = f"Give the file of {missing} too, for the same split: novel=features.npy novel=labels.npy."
        raise FsbenchError(f"{origin}: there are no {missing}.", hint)
    rows = len(part.features)
    if part.labels.shape != (rows,):
        raise FsbenchError(f"{origin}: {rows} rows of features, labels of shape {part.labels.shape}.", REPAIR)
    if not part.features.size:
        raise FsbenchError(f"{origin}: no rows.", REPAIR)
    if part.images and len(part.images) != rows:
        raise FsbenchError(f"{origin}: {rows} rows, but {len(part.images)} names of images.", REPAIR)
    classes, names = _classes(part.labels, part.class_names, origin)
    with np.errstate(all="ignore"):
        broken = np.flatnonzero(~np.isfinite(part.features.astype(np.float32, copy=False)).all(axis=1))
    if len(broken):
        first = f"the first is row {broken[0]} (class {names[classes[broken[0]]]})"
        message = f"{origin}: {len(broken)} rows are not finite in float32, {first}."
        raise FsbenchError(message, "Features must be finite: leave these images out, or extract them again.")
    return make_split(part.features, classes, names, part.images)


def _classes(labels: NDArray[Any], class_names: Sequence[str], origin: str) -> tuple[NDArray[np.int64], list[str]]:
    """Class numbers without gaps, and their names: those of the file, else the labels themselves."""
    if labels.dtype.kind == "f" and (np.abs(labels) < 1 << 53).all() and (labels == np.round(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUS":
        raise FsbenchError(f"{origin}: labels are {labels.dtype}, expected whole numbers or names.", REPAIR)
    values, classes = np.unique(labels, return_inverse=True)
    names = [str(value) if (text := text_of(value)) is None else text for value in values.tolist()]
    if class_names and labels.dtype.kind in "iu":
        if values[0] < 0 or values[-1] >= len(class_names):
            message = f"labels go from {values[0]} to {values[-1]}, but there are {len(class_names)} names of classes"
            raise FsbenchError(f"{origin}: {message}.", REPAIR)
        names = [class_names[value] for value in values.tolist()]
    if len(set(names)) < len(names) or not all(names):
        raise FsbenchError(f"{origin}: two classes have the same name, or one has none.", REPAIR)
    return classes.astype(np.int64), names


def remarks_on(split: Split, name: str) -> list[str]:
    """Remarks on the rows of a split: single images, zeros, unit norm, negative values."""
    remarks = []
    single = [split.class_names[c] for c in np.flatnonzero(np.diff(split.offsets) == 1)]
    if single:
        remarks.append(f"{name}: {len(single)} classes have a single image: {', '.join(single[:5])}")
    norms = np.sqrt(np.einsum("md,md->m", split.features, split.features, dtype=np.float64))  # (M,)
    if (norms == 0).any():
        remarks.append(f"{name}: {int((norms == 0).sum())} rows are all zero")
    elif np.abs(norms - 1).max() < 1e-3:
        remarks.append(f"{name}: all rows have unit norm; methods expect features as the backbone gives them")
    negative = float((split.features < 0).mean())
    if negative:
        remarks.append(f"{name}: {100 * negative:.3g} % of the values are negative, so not the output of a ReLU")
    return remarks


def check_together(splits: Mapping[str, Split], origins: Mapping[str, str]) -> list[str]:
    """Refuse splits that cannot belong together; remark on what may be right or wrong."""
    numbers_shared = False
    for (one, first), (other, second) in itertools.combinations(splits.items(), 2):
        where = f"({origins[one]}, {origins[other]})"
        widths = first.features.shape[1], second.features.shape[1]
        if widths[0] != widths[1]:
            message = f"{one} has {widths[0]} features per image, {other} has {widths[1]} {where}."
            raise FsbenchError(message, "All splits must come from one backbone.")
        if np.array_equal(first.features, second.features):
            raise FsbenchError(f"{one} and {other} hold the same rows {where}.", "Give each split its own file.")
        shared = sorted(set(first.class_names) & set(second.class_names))
        named = [name for name in shared if not name.lstrip("-").isdigit()]
        if named:
            message = f"{one} and {other} share {len(named)} classes: {', '.join(named[:5])} {where}."
            raise FsbenchError(message, "A class belongs to one split: remove it from the other.")
        numbers_shared |= bool(shared)
    remarks = [shared_rows.refuse_many("they cannot belong together.") for shared_rows in overlaps(splits)]
    if numbers_shared:
        remarks.append("splits share class numbers: right if each numbers its classes anew, else they share classes")
    return list(filter(None, remarks))


@dataclass(frozen=True)
class Naming:
    """What a feature file of another program does not say; `crops` per image were averaged."""

    dataset: str
    backbone: str
    crops: int = 1

    def __post_init__(self) -> None:
        for kind, name in (("data set", self.dataset), ("backbone", self.backbone)):
            parts = name.split("/")  # two in timm/NAME
            if not is_name(name) or len(parts) > 2 or any(not part.strip(". ") or part[0] in ".-" for part in parts):
                raise FsbenchError(f"{name!r} cannot name a {kind}.", "Use letters, digits, dots and hyphens.")

    def file_name(self) -> str:
        """The name of the feature file, as `extract` names its own."""
        name = f"{self.dataset}-{self.backbone}".replace("/", "_")
        if readable_part(name) != name:
            raise FsbenchError(f"{name}.h5 is too long for the name of a file.", "Give a shorter one: --out FILE.")
        return f"{name}.h5"


def known_dataset(name: str) -> str:
    """The catalog's name for a data set, or the name itself."""
    try:
        return resolve_name(name)
    except FsbenchError:
        return name


@dataclass
class _Gathered:
    """The content of all files: parts and their origins by split, sources for the provenance, remarks."""

    parts: dict[str, Part] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    sources: list[dict[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, text: str, dataset: str) -> None:
        stated, path = _parse_source(text)
        kind, recognised = read_file(path, dataset, stated)
        assigned = _assigned(recognised.parts, stated, path)
        self.remarks += [f"{path.name}: {remark}" for remark in recognised.remarks]
        if not stated and any(not part.split for part in recognised.parts):
            self.remarks.append(f"{path.name}: taken as {assigned[0].split}, by its name")
        for part in assigned:
            self._join(part, path)
        splits = ", ".join(part.split for part in assigned)
        self.sources.append({"file": path.name, "sha256": sha256_of(path), "format": kind, "splits": splits})

    def _join(self, part: Part, path: Path) -> None:
        """Keep a part, together with its other half if features and labels come in two files."""
        before = self.parts.get(part.split)
        if before is None:
            self.parts[part.split], self.origins[part.split] = part, str(path)
            return
        origin = self.origins[part.split] = f"{self.origins[part.split]} and {path}"
        features, labels = (before, part) if before.labels is None else (part, before)
        if features.labels is not None or labels.features is not None:
            raise FsbenchError(f"Two files hold the split {part.split}: {origin}.", "Give one of them.")
        self.parts[part.split] = replace(labels, features=features.features, images=features.images)

    def splits(self) -> dict[str, Split]:
        """The checked rows; remarks on them are added."""
        splits = {}
        for name in sorted(self.parts, key=SPLITS.index):
            splits[name] = split_from(self.parts[name], f"{self.origins[name]}, {name}")
            self.remarks += remarks_on(splits[name], name)
        self.remarks += check_together(splits, self.origins)
        return splits


def import_files(
    sources: Sequence[str], out: Path, naming: Naming, reporter: Reporter, *, force: bool = False
) -> FeatureFile:
    """Read files of features, each a path or `split=path`, check them, and write one feature file.

    Remarks on missing, conflicting and inferred fields go to the reporter and into the provenance.
    """
    gathered = _Gathered()
    for text in sources:
        gathered.add(text, naming.dataset)
        if out.exists() and out.samefile(_parse_source(text)[1]):
            raise FsbenchError(f"{out} would be replaced by what is read from it.", "Choose another --out.")
    splits = gathered.splits()
    remarks = [*gathered.remarks, *_on_naming(naming, splits)]
    provenance = Provenance(
        naming.dataset, naming.backbone, crops=naming.crops, precision="", notes=remarks, imported=gathered.sources,
        fingerprint=digest({"imported": gathered.sources, "crops": naming.crops}),
    )  # fmt: skip
    with only_writer(out):
        if out.exists() and not force:
            stored = FeatureFile.open(out)
            same = ("fingerprint", "dataset", "backbone")
            if any(getattr(stored.provenance, name) != getattr(provenance, name) for name in same):
                raise FsbenchError(f"{out} exists already.", "Replace it with --force, or choose another --out.")
            reporter.say(f"{out} exists already, made from the same files.")
            return stored
        for remark in remarks:
            reporter.say(f"note: {remark}")
        write_features(out, provenance, splits)
    return FeatureFile.open(out)


def _assigned(parts: Sequence[Part], stated: str, path: Path) -> list[Part]:
    """Parts with their splits: what the user says, else what the file says, else its name."""
    if stated and any(part.split and part.split != stated for part in parts):
        own = ", ".join(part.split for part in parts)
        raise FsbenchError(f"{path} says itself that it holds {own}, not {stated}.", f"Leave out `{stated}=`.")
    split = stated or _split_in_name(path)
    if not split and any(not part.split for part in parts):
        message = f"Neither the content of {path} nor its name says which split it holds."
        raise FsbenchError(message, f"Name the split: base={path}, val={path} or novel={path}.")
    return [part if part.split else replace(part, split=split) for part in parts]


def _on_naming(naming: Naming, splits: Mapping[str, Split]) -> list[str]:
    """Remarks that follow from the names of data set and backbone."""
    remarks = ["weights, transform and image size are not known for imported features"]
    if naming.dataset in dataset_names():
        catalogued = dataset_info(naming.dataset).splits
        for name, split in splits.items():
            expected, classes = len(catalogued[name]), len(split.class_names)
            if classes != expected:
                message = f"{naming.dataset} has {expected} {name} classes, the file has {classes}"
                remarks.append(f"{message}: is it another data set?")
    else:
        remarks.append(f"{naming.dataset} is not in the catalog, so it has neither presets nor published numbers")
    if "base" not in splits:
        remarks.append("there are no base classes: methods that need them take those of another file with --base")
    return remarks


def _parse_source(text: str) -> tuple[str, Path]:
    """`novel=path` as split and path; without a split, the first is empty."""
    word, sign, path = text.partition("=")
    if not sign or Path(text).exists():
        return "", Path(text)
    if word.lower() not in SPLIT_WORDS:
        raise FsbenchError(f"{word!r} in {text!r} is not a split.", "Write base=FILE, val=FILE or novel=FILE.")
    return canonical_split(word), Path(path)


def _split_in_name(path: Path) -> str:
    """The one split that the file's name, or else its folder's, speaks of; empty if there is none."""
    for words in (re.split(r"[^a-z]+", path.stem.lower()), [path.absolute().parent.name.lower()]):
        splits = {canonical_split(word) for word in words if word in SPLIT_WORDS}
        if splits:
            return splits.pop() if len(splits) == 1 else ""
    return ""
