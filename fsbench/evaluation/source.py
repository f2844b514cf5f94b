"""Features in memory, with their names and what is known of their base classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsbench.backbones.families import differences
from fsbench.data.catalog import dataset_info, dataset_names
from fsbench.errors import FsbenchError, unknown_name
from fsbench.features.overlap import overlap
from fsbench.features.scatter import base_statistics
from fsbench.methods import presets
from fsbench.methods.base import Context
from fsbench.ranks import ALONE
from fsbench.results.record import network_words
from fsbench.tasks.protocol import ALPHA

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import FeatureFile, Split
    from fsbench.methods.networks import ImageNetwork
    from fsbench.ranks import Ranks
    from fsbench.reporter import Reporter
    from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class Source:
    """One split that tasks are drawn from.

    Attributes:
        dataset: Name of the data set.
        backbone: Name of the backbone.
        split_name: `novel`, `val` or `base`.
        split: The features.
        base: Statistics of the base classes, if there are any.
        crops: Crops per image that the features are averaged over.
        base_dataset: Data set of the base classes, if not the same.
        other_base: Whether the base classes come from another file.
        family: Family of the backbone; empty if it is not known.
        weights: Name and digest of the weights, or their random seed.
        network: How the network differs from the published one of its family.
        images: How the numbers of images differ from those of the benchmark.
        image_network: For methods on images, whose rows are pixels: the network that they are for.
    """

    dataset: str
    backbone: str
    split_name: str
    split: Split
    base: BaseStatistics | None
    crops: int = 1
    base_dataset: str = ""
    other_base: bool = False
    family: str = ""
    weights: str = ""
    network: str = ""
    images: str = ""
    image_network: ImageNetwork | None = None

    @property
    def title(self) -> str:
        """Data set and network, as headings name them."""
        words = network_words(self.backbone, self.family, self.weights)
        return f"{self.dataset} {self.backbone}" + (f" ({words})" if words else "")

    def context(self, protocol: TaskProtocol, preset: str = "") -> Context:
        """What defaults of methods may depend on; with the preset `article`, its parameters for this data set."""
        if preset not in presets.CHOICES:
            raise unknown_name("preset", preset, filter(None, presets.CHOICES))
        return Context(
            balanced=protocol.balanced,
            shots=protocol.shots,
            preset=presets.benchmark_with_preset(self.dataset) if preset else "",
            alpha=protocol.alpha or ALPHA,
            base=self.base,
            network=self.image_network,
        )


def load_source(file: FeatureFile, split: str, base: BaseStatistics | None, other: FeatureFile | None = None) -> Source:
    """Read a split of a feature file with what belongs to it; `other` is the file of the base, if not the same."""
    made, dataset = file.provenance, other.provenance.dataset if other else ""
    return Source(
        dataset=made.dataset,
        backbone=made.backbone,
        split_name=split,
        split=file.read(split, with_images=False),
        base=base,
        crops=made.crops,
        base_dataset="" if dataset == made.dataset else dataset,
        other_base=other is not None,
        family=made.family,
        weights=_printable(made.named_weights),
        network=network_of(file),
        images=image_counts_of(file),
    )


def network_of(file: FeatureFile) -> str:
    """How the network behind a feature file differs from the published one of its family; empty if it does not."""
    made = file.provenance
    random = made.weights.startswith("none, seed ")
    origin = "random weights" if random else f"trained by {made.trained_by}" if made.trained_by else ""
    return _printable("; ".join(differences(made.family, made.architecture, file.dimension, origin)))


def image_counts_of(file: FeatureFile) -> str:
    """How the numbers of images differ from those of the benchmark; empty if they do not, or there is none."""
    if file.provenance.dataset not in dataset_names():
        return ""
    info, found = dataset_info(file.provenance.dataset), []
    for name, split in file.splits.items():
        sizes, expected = np.diff(split.offsets).tolist(), [*info.splits[name].values()]
        if sorted(sizes) != sorted(expected):
            counts = (f"{sum(each):,} images of {len(each)} classes" for each in (sizes, expected))
            found.append(f"{name} has {' instead of '.join(counts)}")
    return "; ".join(found)


def _printable(text: str) -> str:
    """A text from a feature file as a record can hold it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def source_of(
    file: FeatureFile, split: str, other: FeatureFile | None, reporter: Reporter, ranks: Ranks = ALONE
) -> Source:
    """A split of a feature file, with the base classes of another file if one is given."""
    if other is None or _same_base(file, other):
        _check_within(file, split, reporter)
        return load_source(file, split, base_of(file, reporter, ranks))
    check_base(file, other, reporter)
    _check_apart(file, split, other, reporter)
    return load_source(file, split, base_of(other, reporter, ranks), other)


def base_of(file: FeatureFile, reporter: Reporter, ranks: Ranks = ALONE) -> BaseStatistics | None:
    """Statistics of the file's base classes, read or computed; None if it has none."""
    if "base" not in file.splits:
        return None
    with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
        return ranks.first_alone(lambda: base_statistics(file, advance, reporter.warn))


def check_base(file: FeatureFile, other: FeatureFile, reporter: Reporter) -> None:
    """Refuse base classes whose features cannot be those of the same network; warn where that is not known."""
    base = other.summary("base")
    if base.dimension != file.dimension:
        raise FsbenchError(
            f"{other.path} has {base.dimension} features per image, {file.path} has {file.dimension}.",
            "--base takes a feature file of the same backbone.",
        )
    mine, theirs = file.provenance, other.provenance
    weights = [made.weights_sha256 or made.weights for made in (mine, theirs)]
    if all(weights) and weights[0] != weights[1]:
        raise FsbenchError(
            f"{other.path} was extracted with other weights ({theirs.weights}) than {file.path} ({mine.weights}).",
            f"Extract the base images with the weights of {file.path.name}.",
        )
    if not all(weights) and mine.backbone != theirs.backbone:
        reporter.warn(f"{other.path} is of backbone {theirs.backbone}, {file.path} of {mine.backbone}.")
    if (mine.transform, mine.crops) != (theirs.transform, theirs.crops) and mine.transform and theirs.transform:
        reporter.warn(f"{other.path} and {file.path} were extracted with different transforms or numbers of crops.")


def _check_within(file: FeatureFile, split: str, reporter: Reporter) -> None:
    """Refuse a file whose base classes are what is to be classified; say so where that is what was asked for."""
    if split == "base":
        reporter.warn(f"The base classes of {file.path} are classified with what was learned and measured on them.")
    elif "base" in file.splits and file.summary("base").digest == file.summary(split).digest:
        raise FsbenchError(
            f"The base and {split} classes of {file.path} are the same images.", "Extract or import the file again."
        )
    elif "base" in file.splits:
        _warn_of_shared_names(file, split, file, reporter)


def _check_apart(file: FeatureFile, split: str, other: FeatureFile, reporter: Reporter) -> None:
    """Refuse base classes that hold what is to be classified; warn where names alone say so."""
    mine, theirs = file.provenance, other.provenance
    if mine.dataset == theirs.dataset and mine.split_digest != theirs.split_digest and mine.split_digest:
        raise FsbenchError(
            f"{other.path} divides {mine.dataset} into other base, val and novel classes than {file.path}.",
            "Extract both with the same class lists.",
        )
    found = overlap(f"base of {other.path}", other.stream("base"), f"{split} of {file.path}", file.stream(split))
    if remark := found.refuse_many("the base classes would hold the images to be classified."):
        reporter.warn(remark)
    _warn_of_shared_names(file, split, other, reporter)


def _warn_of_shared_names(file: FeatureFile, split: str, other: FeatureFile, reporter: Reporter) -> None:
    shared = sorted(set(file.summary(split).class_names) & set(other.summary("base").class_names))
    named = [name for name in shared if not name.lstrip("-").isdigit()]
    if named:
        reporter.warn(
            f"{len(named)} classes of {split} have the names of base classes of {other.path}, such as {named[0]}: "
            "if they are the same, the result means nothing."
        )


def _same_base(file: FeatureFile, other: FeatureFile) -> bool:
    return "base" in file.splits and file.summary("base").digest == other.summary("base").digest
