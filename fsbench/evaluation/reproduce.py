"""Repeat the article's Tables 1, 2 and 3 with the feature files that are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsbench.backbones.families import FAMILIES, first_family
from fsbench.backbones.find_weights import candidates, read_manifest, shipped_weights
from fsbench.evaluation.compare import compare
from fsbench.evaluation.options import Comparing
from fsbench.evaluation.run import Runner
from fsbench.evaluation.source import network_of
from fsbench.evaluation.spec import NO_BASELINE, MethodChoice, Spec, protocols_of
from fsbench.features.store import FeatureFile
from fsbench.methods.registry import method_class, working_methods
from fsbench.results.comparison import Column
from fsbench.results.published import CROPS, article_number
from fsbench.results.record import Record

_RIVALS = ("MAML", "Versa", "Entropy-min", "PT-MAP", "LaplacianShot", "BD-CSPN", "TIM", "alpha-TIM", "BAVARDAGE")
_CUB_RIVALS = ("PT-MAP", "Entropy-min", *_RIVALS[4:])
_STEPS = ("Soft-KMEANS", "Soft-KMEANS+VB", "BAVARDAGE")
Rows = tuple[tuple[str, tuple[str, ...]], ...]  # a backbone and its methods, by their published names


@dataclass(frozen=True)
class Layout:
    """The blocks of a table, one per data set, and its settings."""

    caption: str
    settings: tuple[str, ...]
    blocks: tuple[tuple[str, Rows], ...]
    others: tuple[str, ...] = ()  # methods to run on feature files that have no place in the table


def _table3(*backbones: str) -> Rows:
    return tuple((backbone, ("Soft-KMEANS", "BAVARDAGE")) for backbone in backbones)


TABLES = {
    "table1": Layout(
        "Table 1: methods on the same networks",
        ("unbalanced", "balanced"),
        (
            ("mini", (("RN18", _RIVALS), ("WRN", _RIVALS[2:]), ("RN12", ("BAVARDAGE",)))),
            ("tiered", (("RN18", _RIVALS[2:]), ("WRN", _RIVALS[2:]), ("RN12", ("BAVARDAGE",)))),
            ("cub", (("RN18", _CUB_RIVALS), ("RN12", ("BAVARDAGE",)))),
        ),
    ),
    "table2": Layout(
        "Table 2: the elements of BAVARDAGE",
        ("unbalanced",),
        (("mini", (("WRN", _STEPS),)), ("cub", (("RN18", _STEPS),))),
        others=_STEPS,
    ),
    "table3": Layout(
        "Table 3: BAVARDAGE and Soft-KMEANS on all data sets",
        ("unbalanced", "balanced"),
        (
            ("mini", _table3("RN18", "WRN", "RN12", "RN12*")),
            ("tiered", _table3("RN18", "WRN", "RN12", "RN12*")),
            ("cub", _table3("RN18", "RN12", "RN12*")),
            ("fc100", _table3("RN12", "RN12*")),
            ("cifarfs", _table3("RN12", "RN12*")),
        ),
    ),
}


@dataclass(frozen=True)
class Cell:
    """One number of the article, and ours: None where it was not measured."""

    published: float | None
    ours: Record | None

    @property
    def gap(self) -> float | None:
        """Ours minus the published one."""
        return None if self.ours is None or self.published is None else self.ours.accuracy - self.published


@dataclass(frozen=True)
class Row:
    """A method on a network, both by their published names."""

    method: str
    backbone: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Reproduction:
    """A table of the article with our numbers beside its own."""

    caption: str
    columns: tuple[Column, ...]
    blocks: tuple[tuple[str, tuple[Row, ...]], ...]  # data sets with their rows, as the article orders them
    notes: tuple[str, ...]  # which networks and parameters are behind our numbers, and what the others lack


def reproduce(
    table: str, files: Sequence[FeatureFile], runner: Runner, *, tasks: int, seed: int, weights: Path
) -> Reproduction:
    """Run the cells of `table1`, `table2` or `table3` whose data set and network are among the files.

    Parameters are the article's where the network is the published one, and the scale-free defaults elsewhere. Table 2
    also includes the files that are not part of it.
    """
    layout = TABLES[table]
    places = _places(layout, files, runner)
    taken = {file.path for file in places.values()}
    left = [file for file in files if layout.others and file.path not in taken and "base" in file.splits]
    others = {(file.provenance.dataset, file.path.stem): file for file in left}
    blocks = {name: dict(networks) for name, networks in layout.blocks}
    for name, network in others:
        blocks.setdefault(name, {})[network] = layout.others
    protocols = protocols_of(Comparing(settings=layout.settings))
    runs: dict[tuple[str, str, str, Column], Record] = {}  # by data set, backbone and method (published names)
    notes = []
    for (dataset, backbone), file in {**places, **others}.items():
        choices = [choice for choice in map(_choice, blocks[dataset][backbone]) if choice]
        differs = network_of(file)
        preset = "" if differs or (dataset, backbone) in others else "article"
        spec = Spec(
            methods=tuple(choices), protocols=protocols, baseline=NO_BASELINE, tasks=tasks, seed=seed, preset=preset,
            published=False, all_methods=True,
        )  # fmt: skip
        comparison = compare(spec, [file], runner)
        for (label, column), cell in comparison.groups[0].cells.items():
            runs[dataset, backbone, label, column] = cell.record
        fewer = [f"{entry.label} ({entry.fewer})" for entry in comparison.entries if entry.fewer]
        parameters = "the article's parameters" if preset else "scale-free defaults"
        notes.append(f"{dataset} {backbone}: {file.path}, {parameters}.")
        notes += [f"{dataset} {backbone}: {line}" for line in comparison.warnings()]
        if fewer:
            notes.append(f"{dataset} {backbone}: fewer tasks where a network is adapted to each: {', '.join(fewer)}.")
    if runs:
        widest = max((record.ci95 for record in runs.values() if record.ci95 is not None), default=None)
        intervals = "" if widest is None else f"; 95 % intervals are at most ± {widest:.1f}"
        notes.insert(0, f"{tasks:,} tasks per cell, seed {seed}{intervals}.")
    notes += _missing(layout, {key[:2] for key in runs}, weights)
    rows = {name: _rows(name, networks, protocols, runs) for name, networks in blocks.items()}
    return Reproduction(layout.caption, protocols, tuple(rows.items()), tuple(notes))


def _rows(
    dataset: str,
    networks: dict[str, tuple[str, ...]],
    columns: Sequence[Column],
    runs: dict[tuple[str, str, str, Column], Record],
) -> tuple[Row, ...]:
    """The rows of a data set that have a number, ours or published."""
    rows = []
    for backbone, method in ((backbone, method) for backbone, methods in networks.items() for method in methods):
        numbers = (article_number(dataset, backbone, method, column) for column in columns)
        ours = (runs.get((dataset, backbone, method, column)) for column in columns)
        rows.append(Row(method, backbone, tuple(map(Cell, numbers, ours))))
    return tuple(row for row in rows if any(cell.published is not None or cell.ours for cell in row.cells))


def _choice(published: str) -> MethodChoice | None:
    """The method of a published name; None for those that have none here."""
    for name in working_methods():
        names = method_class(name).info.published
        if published in names:
            return MethodChoice(published, name, {key: values[0] for key, values in names[published].items()})
    return None


def _places(layout: Layout, files: Sequence[FeatureFile], runner: Runner) -> dict[tuple[str, str], FeatureFile]:
    """The files that are part of the table, by data set and published name of the network; published networks first."""
    wanted = {(dataset, backbone) for dataset, networks in layout.blocks for backbone, _ in networks}
    places: dict[tuple[str, str], FeatureFile] = {}
    for file in sorted(files, key=lambda file: bool(network_of(file))):
        made = file.provenance
        family = FAMILIES.get(made.family) if made.family else first_family(made.backbone)
        place = (
            made.dataset,
            (family.published if family else "") + {1: "", CROPS: "*"}.get(made.crops, " with other crops"),
        )
        if place not in wanted or "base" not in file.splits:
            if not layout.others:
                runner.reporter.say(f"{file.path} is not part of this table.")
        elif places.setdefault(place, file) is not file:
            runner.reporter.say(f"{file.path} is left out: {places[place].path} has its place.")
    return places


def _missing(layout: Layout, present: set[tuple[str, str]], weights: Path) -> list[str]:
    """What to put where for the rows that have no feature file."""
    manifest = [entry for entry in read_manifest() if entry.rows]
    notes, sources = [], {}
    for dataset, networks in layout.blocks:
        for backbone in (backbone for backbone, _ in networks if (dataset, backbone) not in present):
            of_dataset = (entry for entry in manifest if entry.dataset == dataset)
            entry = next(one for one in of_dataset if any(row.endswith(f" {backbone}") for row in one.rows))
            sources[entry.repository] = entry.source
            crops = " --crops 30" if backbone.endswith("*") else ""
            ships = not crops and candidates(shipped_weights(), dataset, entry.backbone)
            small = "; without that file it takes the small network that comes with fsbench" if ships else ""
            notes.append(
                f"{dataset} {backbone} is missing: save {entry.file} of {entry.repository} as "
                f"{weights / entry.target}, then fsbench extract --dataset {dataset} --backbone {entry.backbone}{crops}"
                f"{small}"
            )
    return notes + [f"{repository}: {source}" for repository, source in sources.items()]
