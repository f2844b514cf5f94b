"""`fsbench import`: files of features from other programs into one feature file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.data.catalog import SPLIT_WORDS, SPLITS, canonical_split, dataset_info, dataset_names, resolve_name
from fsbench.errors import FsbenchError
from fsbench.exchange.checks import check_together, remarks_on, split_from
from fsbench.exchange.content import Part
from fsbench.exchange.detect import read_file
from fsbench.features.shards import fingerprint
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.io.files import is_name, readable_part, sha256_of
from fsbench.io.locks import only_writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsbench.features.store import Split
    from fsbench.reporter import Reporter


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
            parts = name.split("/")  # two in timm/NAME
            if not is_name(name) or len(parts) > 2 or any(not part.strip(". ") or part[0] in ".-" for part in parts):
                raise FsbenchError(f"{name!r} cannot name a {kind}.", "Use letters, digits, dots and hyphens.")

    def file_name(self) -> str:
        """As `extract` names its files."""
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
    """What the files hold together: parts and their origins by split, sources for the provenance, remarks."""

    parts: dict[str, Part] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    sources: list[dict[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, text: str, dataset: str) -> None:
        """Read one file."""
        given, path = _parse_source(text)
        kind, found = read_file(path, dataset, given)
        assigned = _assigned(found.parts, given, path)
        self.remarks += [f"{path.name}: {remark}" for remark in found.remarks]
        if not given and any(not part.split for part in found.parts):
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
        joined = Part(part.split, features.features, labels.labels, labels.class_names, features.images)
        self.parts[part.split] = joined

    def splits(self) -> dict[str, Split]:
        """The checked rows; remarks on them are added."""
        found = {
            name: split_from(self.parts[name], f"{self.origins[name]}, {name}") for name in SPLITS if name in self.parts
        }
        for name, split in found.items():
            self.remarks += remarks_on(split, name)
        self.remarks += check_together(found, self.origins)
        return found


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
    gathered = _Gathered()
    for text in sources:
        gathered.add(text, naming.dataset)
        if out.exists() and out.samefile(_parse_source(text)[1]):
            raise FsbenchError(f"{out} would be replaced by what is read from it.", "Choose another --out.")
    splits = gathered.splits()
    remarks = [*gathered.remarks, *_on_naming(naming, splits)]
    provenance = Provenance(
        naming.dataset, naming.backbone, crops=naming.crops, precision="", notes=remarks, imported=gathered.sources,
        fingerprint=fingerprint({"imported": gathered.sources, "crops": naming.crops}),
    )  # fmt: skip
    with only_writer(out):
        if out.exists() and not force:
            return _same(FeatureFile.open(out), provenance, reporter)
        for remark in remarks:
            reporter.say(f"note: {remark}")
        write_features(out, provenance, splits)
    return FeatureFile.open(out)


def _same(stored: FeatureFile, provenance: Provenance, reporter: Reporter) -> FeatureFile:
    """The file that is there, if it was made of the same files in the same way."""
    made = stored.provenance
    if (made.fingerprint, made.dataset, made.backbone) != (
        provenance.fingerprint, provenance.dataset, provenance.backbone,
    ):  # fmt: skip
        raise FsbenchError(f"{stored.path} exists already.", "Replace it with --force, or choose another --out.")
    reporter.say(f"{stored.path} is there already, made of the same files.")
    return stored


def _assigned(parts: Sequence[Part], given: str, path: Path) -> list[Part]:
    """Parts with their splits: what the user says, else what the file says, else its name."""
    if given and any(part.split and part.split != given for part in parts):
        stated = ", ".join(part.split for part in parts)
        raise FsbenchError(f"{path} says itself that it holds {stated}, not {given}.", f"Leave out `{given}=`.")
    split = given or _split_in_name(path)
    if not split and any(not part.split for part in parts):
        raise FsbenchError(
            f"Neither the content of {path} nor its name says which split it holds.",
            f"Say it: base={path}, val={path} or novel={path}.",
        )
    return [part if part.split else part.within(split) for part in parts]


def _on_naming(naming: Naming, splits: Mapping[str, Split]) -> list[str]:
    """What follows from the names that the user gave."""
    remarks = ["weights, transform and image size are not known for imported features"]
    if naming.dataset in dataset_names():
        known = dataset_info(naming.dataset).splits
        for name, split in splits.items():
            if len(split.class_names) != len(known[name]):
                found = f"the file has {len(split.class_names)}"
                remarks.append(
                    f"{naming.dataset} has {len(known[name])} {name} classes, {found}: is it another data set?"
                )
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
        raise FsbenchError(f"{word!r} in {text!r} is no split.", "Write base=FILE, val=FILE or novel=FILE.")
    return canonical_split(word), Path(path)


def _split_in_name(path: Path) -> str:
    """The one split that the file's name, or else its folder's, speaks of; empty if there is none."""
    for words in (re.split(r"[^a-z]+", path.stem.lower()), [path.absolute().parent.name.lower()]):
        found = {canonical_split(word) for word in words if word in SPLIT_WORDS}
        if len(found) == 1:
            return found.pop()
        if found:
            break
    return ""
