"""What `fsbench import` does: files of others into one feature file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.catalog import dataset_names, resolve_name
from fsbench.errors import FsbenchError
from fsbench.exchange.checks import check_together, remarks_on, split_from
from fsbench.exchange.detect import read_file
from fsbench.exchange.found import Part
from fsbench.exchange.splits import parse_source, split_in_name
from fsbench.features.shards import fingerprint
from fsbench.features.store import SPLITS, FeatureFile, Provenance, write_features
from fsbench.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from fsbench.report.progress import Reporter


@dataclass(frozen=True)
class Naming:
    """What a file of features does not say of itself.

    Attributes:
        dataset: Name of the data set.
        backbone: Name of the backbone.
        crops: Crops per image that the features are averaged over.
    """

    dataset: str
    backbone: str
    crops: int = 1

    def __post_init__(self) -> None:
        for kind, name in (("data set", self.dataset), ("backbone", self.backbone)):
            if not re.fullmatch(r"\w[\w.+-]*(/\w[\w.+-]*)?", name):
                raise FsbenchError(f"{name!r} cannot name a {kind}.", "Use letters, digits, dots and hyphens.")

    def file_name(self) -> str:
        """As `extract` names its files."""
        return f"{self.dataset}-{self.backbone}.h5".replace("/", "_")


def known_dataset(name: str) -> str:
    """The catalog's name for a data set, or the name itself."""
    try:
        return resolve_name(name)
    except FsbenchError:
        return name


def import_files(
    sources: Sequence[str], out: Path, naming: Naming, reporter: Reporter, *, force: bool = False
) -> FeatureFile:
    """Read files of features, check them, and write one feature file.

    Args:
        sources: Paths, or `split=path`.
        out: The feature file.
        naming: Data set, backbone and crops.
        reporter: Hears what the files do not say, and what is worth knowing of them.
        force: Replace a file that is there.
    """
    if out.exists() and not force:
        raise FsbenchError(f"{out} exists already.", "Replace it with --force, or choose another --out.")
    parts: dict[str, Part] = {}
    origins: dict[str, str] = {}
    listed, remarks = [], []
    for text in sources:
        given, path = parse_source(text)
        kind, found = read_file(path, naming.dataset, given)
        remarks += [f"{path.name}: {remark}" for remark in found.remarks]
        assigned = _assigned(found.parts, given, path)
        if not given and any(not part.split for part in found.parts):
            remarks.append(f"{path.name}: taken as {assigned[0].split}, by its name")
        for part in assigned:
            parts[part.split] = _joined(parts.get(part.split), part, path, origins)
        splits = ", ".join(part.split for part in assigned)
        listed.append({"file": path.name, "sha256": sha256_of(path), "format": kind, "splits": splits})
    splits_read = {name: split_from(parts[name], f"{origins[name]}, {name}") for name in SPLITS if name in parts}
    for name, split in splits_read.items():
        remarks += remarks_on(split, name)
    remarks += check_together(splits_read, origins)
    remarks += _on_naming(naming, splits_read)
    for remark in remarks:
        reporter.say(f"note: {remark}.")
    provenance = Provenance(
        naming.dataset, naming.backbone, crops=naming.crops, precision="", notes=remarks, imported=listed,
        fingerprint=fingerprint({"imported": listed, "crops": naming.crops}),
    )  # fmt: skip
    write_features(out, provenance, splits_read)
    return FeatureFile.open(out)


def _assigned(parts: Sequence[Part], given: str, path: Path) -> list[Part]:
    """Parts with their splits: what the user says, else what the file says, else its name."""
    if given and any(part.split and part.split != given for part in parts):
        stated = ", ".join(part.split for part in parts)
        raise FsbenchError(f"{path} says itself that it holds {stated}, not {given}.", f"Leave out `{given}=`.")
    split = given or split_in_name(path)
    if not split and any(not part.split for part in parts):
        raise FsbenchError(
            f"Neither the content of {path} nor its name says which split it holds.",
            f"Say it: base={path}, val={path} or novel={path}.",
        )
    return [part if part.split else part.within(split) for part in parts]


def _joined(before: Part | None, part: Part, path: Path, origins: dict[str, str]) -> Part:
    """A part, together with its other half if features and labels come in two files."""
    if before is None:
        origins[part.split] = str(path)
        return part
    origins[part.split] = f"{origins[part.split]} and {path}"
    features, labels = (before, part) if before.labels is None else (part, before)
    if features.labels is not None or labels.features is not None:
        raise FsbenchError(f"Two files hold the split {part.split}: {origins[part.split]}.", "Give one of them.")
    return Part(part.split, features.features, labels.labels, labels.class_names, features.images)


def _on_naming(naming: Naming, splits: Collection[str]) -> list[str]:
    remarks = ["weights, transform and image size are not known for imported features"]
    if naming.dataset.partition("-")[0] not in {name.partition("-")[0] for name in dataset_names()}:
        remarks.append(
            f"{naming.dataset} is no data set of the catalog, so it has neither presets nor published numbers"
        )
    if "base" not in splits:
        remarks.append("there are no base classes: methods that need them take those of another file with --base")
    return remarks
