"""`fsbench import`: files of features from other programs into one feature file, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbench.data.catalog import SPLIT_WORDS, SPLITS
from fsbench.errors import FsbenchError
from fsbench.exchange.containers import REPAIR, text_of
from fsbench.exchange.layouts import Part, read_file, read_text
from fsbench.features.store import (
    FeatureFile,
    Provenance,
    Split,
    digest,
    make_split,
    overlaps,
    repeated_rows,
    with_text,
    write_features,
)
from fsbench.io.files import is_name, only_writer, sha256_of
from fsbench.reporter import Reporter

TEXT = "text"  # in place of a split: a table of text prototypes


def split_from(part: Part, origin: str) -> Split:
    """The checked rows of a split; `origin` says in messages where they come from."""
    if part.images and len(part.images) != len(part.features):
        raise FsbenchError(f"{origin}: {len(part.features)} rows, but {len(part.images)} names of images.", REPAIR)
    classes, names = _classes(part.labels, part.class_names, origin)
    try:
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, and are refused
            return make_split(part.features, classes, names, part.images)
    except FsbenchError as error:
        raise FsbenchError(f"{origin}: {error.message}", error.hint) from error


def _classes(labels: NDArray[Any], class_names: Sequence[str], origin: str) -> tuple[NDArray[np.int64], list[str]]:
    """Class numbers without gaps, and their names: those of the file, else the labels themselves."""
    if labels.dtype.kind == "f" and (np.abs(labels) < 1 << 53).all() and (labels == np.round(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUS":
        raise FsbenchError(f"{origin}: labels are {labels.dtype}, expected whole numbers or names.", REPAIR)
    values, classes = np.unique(labels, return_inverse=True)
    names = [str(value) if (text := text_of(value)) is None else text for value in values.tolist()]
    if class_names and labels.size and labels.dtype.kind in "iu":
        if len(class_names) == len(labels) > len(values):
            message = f"{origin}: there is a name for every row, so these are not names of classes."
            raise FsbenchError(message, "Store names of rows as `images`, and one name per class as `class_names`.")
        if values[0] < 0 or values[-1] >= len(class_names):
            message = f"labels go from {values[0]} to {values[-1]}, but there are {len(class_names)} names of classes"
            raise FsbenchError(f"{origin}: {message}.", REPAIR)
        names = [class_names[value] for value in values.tolist()]
    if len(set(names)) < len(names) or not all(names):
        raise FsbenchError(f"{origin}: two classes have the same name, or one has none.", REPAIR)
    return classes.astype(np.int64), names


def remarks_on(split: Split, name: str) -> list[str]:
    """Remarks on the rows of a split that do not look like the output of a backbone."""
    remarks = [f"{name}: {repeated}: the same images twice?"] if (repeated := repeated_rows(split)) else []
    norms = np.sqrt(np.einsum("md,md->m", split.features, split.features, dtype=np.float64))  # (M,)
    if np.abs(norms - 1).max() < 1e-3:
        remarks.append(f"{name}: all rows have unit norm; methods expect features as the backbone gives them")
    return remarks


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
        return f"{self.dataset}-{self.backbone}.h5".replace("/", "_")


def import_files(
    sources: Sequence[str], out: Path, naming: Naming, reporter: Reporter, *, force: bool = False
) -> FeatureFile:
    """Read files of features, each a path or `split=path`, check them, and write one feature file.

    `text=path` is a table of text prototypes of the classes, in its own order of names or in that of their numbers.
    Remarks on missing, conflicting and inferred fields go to the reporter and into the provenance.
    """
    read: dict[str, Split] = {}
    origins: dict[str, str] = {}
    imported, remarks, parsed = [], [], [_parse_source(source) for source in sources]
    for stated, path in parsed:
        if out.exists() and path.exists() and out.samefile(path):
            raise FsbenchError(f"{out} would be replaced by what is read from it.", "Choose another --out.")
        if stated == TEXT:
            continue
        kind, recognised = read_file(path, naming.dataset, stated)
        names = [_split_of(part, stated, path) for part in recognised.parts]
        for name, part in zip(names, recognised.parts, strict=True):
            if name in read:
                raise FsbenchError(f"Two files hold the split {name}: {origins[name]} and {path}.", "Give one.")
            read[name], origins[name] = split_from(part, f"{path}, {name}"), str(path)
        remarks += [f"{path.name}: {remark}" for remark in recognised.remarks]
        imported.append(_facts(path, kind, ", ".join(names)))
    splits = {name: read[name] for name in SPLITS if name in read}
    remarks += [remark for name, split in splits.items() for remark in remarks_on(split, name)]
    widths = {name: split.features.shape[1] for name, split in splits.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name} has {width} ({origins[name]})" for name, width in widths.items())
        raise FsbenchError(f"Numbers of features differ: {listed}.", "All splits must come from one backbone.")
    remarks += overlaps(splits, "they cannot belong together.")
    texts = [path for stated, path in parsed if stated == TEXT]
    templates: tuple[str, ...] = ()
    if len(texts) > 1:
        raise FsbenchError(f"Two files of text: {texts[0]} and {texts[1]}.", "Give one table for all classes.")
    for path in texts:
        kind, table, class_names, templates = read_text(path)
        imported.append(_facts(path, kind, TEXT))
        splits = {name: _with_text(split, table, class_names, str(path)) for name, split in splits.items()}
        remarks += [zero_shot_remark(split, name) for name, split in splits.items()]
    provenance = Provenance(
        naming.dataset, naming.backbone, crops=naming.crops, precision="", notes=remarks, imported=imported,
        fingerprint=digest({"imported": imported, "crops": naming.crops}), templates=templates,
        text_encoder=naming.backbone if texts else "",
    )  # fmt: skip
    return _store(out, provenance, splits, reporter, force=force)


def _store(
    out: Path, provenance: Provenance, splits: Mapping[str, Split], reporter: Reporter, *, force: bool
) -> FeatureFile:
    """Write the feature file, unless the same files were imported into it before; any other file is refused."""
    with only_writer(out):
        if out.exists() and not force:
            stored = FeatureFile.open(out)
            same = ("fingerprint", "dataset", "backbone")
            if any(getattr(stored.provenance, name) != getattr(provenance, name) for name in same):
                raise FsbenchError(f"{out} exists already.", "Replace it with --force, or choose another --out.")
            reporter.say(f"{out} exists already, made from the same files.")
            return stored
        for remark in provenance.notes:
            reporter.say(f"note: {remark}")
        write_features(out, provenance, splits)
    return FeatureFile.open(out)


def _facts(path: Path, kind: str, splits: str) -> dict[str, str]:
    """What the provenance says of a file."""
    return {"file": path.name, "sha256": sha256_of(path), "format": kind, "splits": splits}


def _with_text(split: Split, table: NDArray[Any], names: Sequence[str], origin: str) -> Split:
    """A split with its rows of a table (classes, D) or (D, classes), found by the names or numbers of its classes."""
    width = split.features.shape[1]
    if width not in table.shape:
        raise FsbenchError(f"{origin}: text of shape {table.shape}, but images have {width} features.", REPAIR)
    rows = table if table.shape[1] == width else table.T
    if names and len(names) != len(rows):
        raise FsbenchError(f"{origin}: {len(names)} names for text of shape {table.shape}.", REPAIR)
    if not names and not all(name.isdigit() for name in split.class_names):
        if len(rows) == len(split.class_names):
            return with_text(split, rows, origin)
        message = f"{origin}: text of {len(rows)} classes without names, and the split has {len(split.class_names)}."
        raise FsbenchError(message, "Save it with the names: numpy.savez(FILE, text=…, class_names=…).")
    places = {_plain(name): place for place, name in enumerate(names or map(str, range(len(rows))))}
    if len(places) < len(rows):
        raise FsbenchError(f"{origin}: two classes have the same name.", REPAIR)
    missing = [name for name in split.class_names if _plain(name) not in places]
    if missing:
        message = f"{origin} has no text of {len(missing)} classes, such as {missing[0]}."
        raise FsbenchError(message, "Name all classes of the features, or leave the others out of these.")
    return with_text(split, rows[[places[_plain(name)] for name in split.class_names]], origin)


def _plain(name: str) -> str:
    """A name of a class without the differences that programs make: `Egyptian_Mau` is `egyptian mau`."""
    return " ".join(name.lower().replace("_", " ").replace("-", " ").split())


def zero_shot_remark(split: Split, name: str) -> str:
    """How well text prototypes alone classify the images, which tells whether they are in the right order."""
    assert split.text is not None
    text = split.text / np.linalg.norm(split.text, axis=1, keepdims=True)
    right = float(((split.features @ text.T).argmax(axis=1) == split.labels).mean())
    doubt = ": are the classes in the right order?" if right < 2 / len(text) else ""
    return f"{name}: the text alone classifies {100 * right:.2f} % of the images of {len(text)} classes{doubt}"


def _split_of(part: Part, stated: str, path: Path) -> str:
    """The split of a part: what the file says, which the user must not contradict, else what the user says."""
    if stated and part.split not in {"", stated}:
        raise FsbenchError(f"{path} says itself that it holds {part.split}, not {stated}.", f"Leave out `{stated}=`.")
    if not (stated or part.split):
        message = f"The content of {path} does not say which split it holds."
        raise FsbenchError(message, f"Name the split: base={path}, val={path} or novel={path}.")
    return stated or part.split


def _parse_source(text: str) -> tuple[str, Path]:
    """`novel=path` as split and path; without a split, the first is empty."""
    word, sign, path = text.partition("=")
    if not sign or Path(text).exists():
        return "", Path(text)
    if word.lower() == TEXT:
        return TEXT, Path(path)
    if word.lower() not in SPLIT_WORDS:
        hint = "Write base=FILE, val=FILE, novel=FILE or text=FILE."
        raise FsbenchError(f"{word!r} in {text!r} is not a split.", hint)
    return SPLIT_WORDS[word.lower()], Path(path)
