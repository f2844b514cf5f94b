"""Repeat the article's tables with the feature files that are here."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from fsbench.backbones.families import FAMILIES, first_family
from fsbench.backbones.find_weights import candidates, read_manifest, shipped_weights
from fsbench.data.catalog import benchmark_of
from fsbench.evaluation.compare import compare
from fsbench.evaluation.source import network_of
from fsbench.evaluation.spec import NO_BASELINE, MethodChoice, Spec, parse_protocols
from fsbench.methods.registry import method_class, method_names
from fsbench.results.comparison import Column
from fsbench.results.reproduction import Layout, Reproduction, assemble, layout_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fsbench.evaluation.run import Runner
    from fsbench.features.store import FeatureFile
    from fsbench.results.record import RunRecord

_TASKS = re.compile(r" \([\d,-]+ tasks\)$")  # at the end of a label, where these are fewer


def reproduce(
    table: str, files: Sequence[FeatureFile], runner: Runner, *, tasks: int, seed: int, weights: Path
) -> Reproduction:
    """Run the cells of `table1`, `table2` or `table3` whose data set and network are among the files.

    Parameters are the article's where the network is the published one, and the scale-free defaults elsewhere. Table 2
    also includes the files that are not part of it.
    """
    article = layout_of(table)
    places = _places(article, files, runner)
    others = _others(article, places, files)
    blocks = {name: dict(networks) for name, networks in article.blocks}
    for name, network in others:
        blocks.setdefault(name, {})[network] = article.others
    layout = replace(article, blocks=tuple((name, tuple(networks.items())) for name, networks in blocks.items()))
    protocols = parse_protocols(settings=layout.settings)
    runs: dict[tuple[str, str, str, Column], RunRecord] = {}
    notes = []
    for (dataset, backbone), file in {**places, **others}.items():
        choices = [choice for choice in map(_choice, blocks[dataset][backbone]) if choice]
        differs = network_of(file)
        preset = "" if differs or (dataset, backbone) in others else "article"
        spec = Spec(
            methods=tuple(choices), protocols=protocols, baseline=NO_BASELINE, tasks=tasks, seed=seed, preset=preset,
            published=False, all_methods=True,
        )  # fmt: skip
        fewer: dict[str, None] = {}
        for group in compare(spec, [file], runner).groups:
            for (label, column), cell in group.cells.items():
                if cell.record:
                    runs[dataset, backbone, _TASKS.sub("", label), column] = cell.record
                    fewer |= {label: None} if cell.record.asked else {}
        parameters = "the article's parameters" if preset else "scale-free defaults"
        parameters += f"; not the published network ({differs})" if differs and (dataset, backbone) in places else ""
        notes.append(f"{dataset} {backbone}: {file.path}, {parameters}.")
        if fewer:
            notes.append(f"{dataset} {backbone}: fewer tasks where a network is adapted to each: {', '.join(fewer)}.")
    if runs:
        widest = max((record.ci95 for record in runs.values() if record.ci95 is not None), default=None)
        intervals = "" if widest is None else f"; 95 % intervals are at most ± {widest:.1f}"
        notes.insert(0, f"{tasks:,} tasks per cell, seed {seed}{intervals}.")
    notes += _missing(article, {key[:2] for key in runs}, weights)
    return assemble(layout, [Column.of(protocol) for protocol in protocols], runs, notes)


def _choice(published: str) -> MethodChoice | None:
    """The method of a published name; None for those that have none here."""
    for name in method_names():
        names = method_class(name).info.published
        if published in names:
            return MethodChoice(published, name, {key: values[0] for key, values in names[published].items()})
    return None


def _places(layout: Layout, files: Sequence[FeatureFile], runner: Runner) -> dict[tuple[str, str], FeatureFile]:
    """The files that are part of the table, by data set and published name of the network; published networks first."""
    wanted = {(dataset, backbone) for dataset, networks in layout.blocks for backbone, _ in networks}
    found: dict[tuple[str, str], FeatureFile] = {}
    for file in sorted(files, key=lambda file: bool(network_of(file))):
        made = file.provenance
        family = FAMILIES.get(made.family) if made.family else first_family(made.backbone)
        place = benchmark_of(made.dataset), (family.published if family else "") + ("*" if made.crops > 1 else "")
        if place not in wanted or "base" not in file.splits:
            if not layout.others:
                runner.reporter.say(f"{file.path} is not part of this table.")
        elif found.setdefault(place, file) is not file:
            runner.reporter.say(f"{file.path} is left out: {found[place].path} has its place.")
    return found


def _others(
    layout: Layout, places: dict[tuple[str, str], FeatureFile], files: Sequence[FeatureFile]
) -> dict[tuple[str, str], FeatureFile]:
    """The files that are not part of the table, by data set and name of the file, if it includes them."""
    taken = {file.path for file in places.values()}
    return {
        (file.provenance.dataset, file.path.stem): file
        for file in files
        if layout.others and file.path not in taken and "base" in file.splits
    }


def _missing(layout: Layout, present: set[tuple[str, str]], weights: Path) -> list[str]:
    """What to put where for the rows that have no feature file."""
    manifest = [entry for entry in read_manifest() if entry.rows]
    notes, sources = [], {}
    for dataset, networks in layout.blocks:
        for backbone in (backbone for backbone, _ in networks if (dataset, backbone) not in present):
            entry = next(
                entry
                for entry in manifest
                if entry.dataset == dataset and any(row.endswith(f" {backbone}") for row in entry.rows)
            )
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
