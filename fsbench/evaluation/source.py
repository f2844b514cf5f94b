"""Features in memory, with their names and what is known of their base classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fsbench.backbones.families import FAMILIES, describe_architecture
from fsbench.data.catalog import DATASETS, dataset_info
from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics, base_statistics
from fsbench.features.store import FeatureFile, Provenance, Split, opened, overlap, repeated_rows
from fsbench.methods.pool import POOL, Statistics
from fsbench.ranks import ALONE, Ranks
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from fsbench.evaluation.run import Runner
    from fsbench.methods.images.networks import ImageNetwork


FACTS = ("class_names", "provenance", "base_provenance", "network", "images", "warnings")  # of features, in records
Base = FeatureFile | Literal["pool"] | None  # another file whose base classes to use, or the images of each task


def base_named(base: Any) -> Base:
    """The base that an option or argument names: a feature file, arrays in memory, or the word `pool`."""
    if base is None:
        return None
    return POOL if isinstance(base, str | Path) and str(base) == POOL else next(iter(opened(base, "base")), None)


@dataclass(frozen=True)
class Source:
    """One split that tasks are drawn from."""

    split_name: str  # `novel`, `val` or `base`
    split: Split  # the features
    base: Statistics  # of the base classes; `pool`: the images of each task replace them
    provenance: Provenance  # of the features
    base_provenance: Provenance | None = None  # of the base classes, if they are of another file
    path: Path | None = None  # the feature file; None for arrays in memory
    base_path: Path | None = None  # that of the base classes, if it is another one
    network: str = ""  # how the network differs from the published one of its family
    images: str = ""  # how the numbers of images differ from those of the benchmark
    warnings: tuple[str, ...] = ()  # what else a reader of results must know of the features
    image_network: ImageNetwork | None = None  # for methods on images, whose rows are pixels: what these are for

    @property
    def facts(self) -> dict[str, Any]:
        """What records say of the features."""
        return {name: getattr(self.split if name == "class_names" else self, name) for name in FACTS}


def load_source(file: FeatureFile, split: str, base: Statistics, other: FeatureFile | None = None) -> Source:
    """Read a split of a feature file with what belongs to it; `other` is the file of the base, if not the same."""
    rows = file.read(split, with_images=False)
    repeated, seen = repeated_rows(rows), {*rows.class_names} & {*file.provenance.seen}
    warnings = [f"{split}: {repeated}, so that a query may be among the labelled images"] if repeated else []
    warnings += [f"{split}: the network was trained on {len(seen)} of its {len(rows.class_names)} classes"] * bool(seen)
    return Source(
        split_name=split,
        split=rows,
        warnings=tuple(warnings),
        base=base,
        provenance=file.provenance,
        base_provenance=other.provenance if other else None,
        path=None if file.in_memory else file.path,
        base_path=other.path if other and not other.in_memory else None,
        network=network_of(file),
        images=image_counts_of(file),
    )


def network_of(file: FeatureFile) -> str:
    """How the network behind a feature file differs from the published one of its family; empty if it does not."""
    made, family = file.provenance, FAMILIES.get(file.provenance.family)
    if family is None or not family.published:
        return ""
    standard = {**family.shape.standard, **family.options}
    expected, width = describe_architecture(standard), standard["widths"][-1]
    random = made.weights.startswith("none, seed ")
    words = ["random weights"] if random else [f"trained by {made.trained_by}"] if made.trained_by else []
    if made.architecture and made.architecture != expected:
        words.append(f"{made.architecture}, not {expected}")
    elif file.dimension != width:
        words.append(f"{file.dimension} features, not {width}")
    if made.other_transform not in {"", family.transform}:
        words.append(f"transform {made.other_transform}, not {family.transform}")
    return "; ".join(words)


def image_counts_of(file: FeatureFile) -> str:
    """How the numbers of images differ from those of the benchmark; empty if they do not, or there is none."""
    if file.provenance.dataset not in DATASETS:
        return ""
    info, different = dataset_info(file.provenance.dataset), []
    for name, split in file.splits.items():
        sizes, expected = np.diff(split.offsets).tolist(), [*info.splits[name].values()]
        if sorted(sizes) != sorted(expected):
            counts = (f"{sum(each):,} images of {len(each)} classes" for each in (sizes, expected))
            different.append(f"{name} has {' instead of '.join(counts)}")
        others = sorted({*split.class_names} - {*info.splits[name]}) if file.provenance.split_digest else []
        different += [f"{name} has other classes, such as {others[0]}"] if others else []
    return "; ".join(different)


def source_of(file: FeatureFile, split: str, other: Base, reporter: Reporter, ranks: Ranks = ALONE) -> Source:
    """A split of a feature file, with the base classes of another file if one is given, or with the pool for them.

    Base classes that are what is to be classified are refused, unless that is what was asked for.
    """
    if other == POOL:
        return load_source(file, split, POOL)
    own = file.splits.get("base")
    base = file if other is None or (own and own.digest == other.summary("base").digest) else other
    if base is not file:
        check_network(file, base, reporter)
        _check_apart(file, split, base, reporter)
    elif split == "base":
        reporter.warn(f"The base classes of {file.path} are classified with what was learned and measured on them.")
    elif own and own.digest == file.summary(split).digest:
        raise FsbenchError(
            f"The base and {split} classes of {file.path} are the same images.", "Extract or import the file again."
        )
    if "base" in base.splits and (base is not file or split != "base"):
        shared = {*file.summary(split).class_names} & {*base.summary("base").class_names}
        named = sorted(name for name in shared if not name.lstrip("-").isdigit())
        if named:
            reporter.warn(
                f"{len(named)} classes of {split} have the names of base classes of {base.path}, such as {named[0]}: "
                "if they are the same, the result means nothing."
            )
    return load_source(file, split, base_of(base, reporter, ranks), None if base is file else base)


def base_of(file: FeatureFile, reporter: Reporter, ranks: Ranks = ALONE) -> BaseStatistics | None:
    """Statistics of the file's base classes, read or computed; None if it has none."""
    return ranks.first_alone(lambda: base_statistics(file, reporter)) if "base" in file.splits else None


def check_network(file: FeatureFile, other: FeatureFile, reporter: Reporter) -> None:
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
    ways = [(made.transform, made.crops, made.precision) for made in (mine, theirs)]
    if ways[0] != ways[1] and mine.transform and theirs.transform:
        reporter.warn(f"{other.path} and {file.path} were extracted with different transforms, crops or precision.")


def _check_apart(file: FeatureFile, split: str, other: FeatureFile, reporter: Reporter) -> None:
    """Refuse base classes that hold what is to be classified."""
    mine, theirs = file.provenance, other.provenance
    if mine.dataset == theirs.dataset and mine.split_digest != theirs.split_digest and mine.split_digest:
        raise FsbenchError(
            f"{other.path} divides {mine.dataset} into other base, val and novel classes than {file.path}.",
            "Extract both with the same class lists.",
        )
    names = f"base of {other.path}", f"{split} of {file.path}"
    why = "the base classes would hold the images to be classified."
    if same := {*other.images("base")[1]} & {*file.images(split)[1]}:
        raise FsbenchError(f"{' and '.join(names)} share {len(same)} images: {why}", "Use other base classes.")
    if remark := overlap(names[0], other.stream("base"), names[1], file.stream(split), why):
        reporter.warn(remark)


def with_pixels(source: Source, network: str, file: FeatureFile, runner: Runner) -> Source:
    """The source for a method: of one on images, with its network, and pixels as rows."""
    if not network:
        return source
    loaded = runner.images.network(network, file)
    read = partial(runner.images.pixels, file, source.split_name, loaded, runner.reporter)
    pixels: Any = runner.ranks.first_alone(read)
    seen = {*loaded.backbone.info.trained_classes} & {*source.split.class_names}
    told = [f"{source.split_name}: the network of {network} was trained on {len(seen)} of its classes"] * bool(seen)
    split, warnings = replace(source.split, features=pixels), (*source.warnings, *told)
    return replace(source, image_network=loaded, split=split, warnings=warnings)
