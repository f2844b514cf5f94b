"""What `fsbench sweep` does: accuracy along an axis, point by point, each point a record of its own."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from fsbench.evaluation.run import POINTS, Job, Runner, configure
from fsbench.evaluation.source import base_of, load_source, with_pixels
from fsbench.evaluation.spec import Axis, MethodChoice, at, parse_methods
from fsbench.features.store import FeatureFile
from fsbench.io.files import readable_part
from fsbench.options import text_of
from fsbench.results.published import published_curve
from fsbench.results.record import common_signature, network_words
from fsbench.results.studies import Curve, Panel, Point, Sweep, Value, symbol
from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class Line:
    """One curve to be measured: what stays the same along the axis."""

    label: str
    choice: MethodChoice
    protocol: TaskProtocol
    split: str = "novel"


@dataclass(frozen=True)
class Plan:
    """One panel to be measured."""

    title: str
    axis: Axis
    lines: Sequence[Line]


def plan_sweep(
    choices: Sequence[MethodChoice], axes: Sequence[Axis], splits: Sequence[str], protocols: Sequence[TaskProtocol]
) -> list[Plan]:
    """One panel per protocol: the first axis runs along it, every combination of the rest is a curve."""
    first, others = axes[0], axes[1:]
    names, places = [axis.name for axis in others], itertools.product(*(axis.values for axis in others))
    combinations = [dict(zip(names, values, strict=True)) for values in places]
    plans = []
    for protocol in protocols:
        lines = []
        for choice, values, split in itertools.product(choices, combinations, splits):
            own_protocol, own_options = at(values, protocol, choice.options)
            words = [choice.label] if len(choices) > 1 else []
            words += [f"{symbol(name)} = {text_of(value)}" for name, value in values.items()]
            words += [split] if len(splits) > 1 else []
            label = ", ".join(words) or choice.label
            lines.append(Line(label, replace(choice, options=own_options), own_protocol, split))
        plans.append(Plan(protocol.describe([axis.name for axis in axes]), first, lines))
    return plans


def run_sweep(
    plans: Sequence[Plan], file: FeatureFile, runner: Runner, *, name: str, tasks: int, seed: int, preset: str = ""
) -> Sweep:
    """Measure missing points, read the others from their records, and assemble the curves."""
    made = file.provenance
    jobs = _all_jobs(plans, file, runner, tasks, seed, preset)
    apart = replace(runner, results=runner.results / POINTS if runner.results else None)
    every = [job for lines in jobs for along in lines for job in along]
    with runner.reporter.bar(f"{made.dataset} {name}", len(every) * tasks) as bar:
        records = {job: apart.run(job, lambda done, label: bar(done)) for job in every}
    panels = []
    for plan, lines in zip(plans, jobs, strict=True):
        curves = []
        for line, along in zip(plan.lines, lines, strict=True):
            own = {x: records[job] for x, job in zip(plan.axis.values, along, strict=True)}
            published = published_curve(next(iter(own.values())), plan.axis.name)
            points = tuple(Point(x, record.accuracy, record.ci95) for x, record in own.items())
            curves.append(Curve(line.label, points, tuple(Point(*pair) for pair in published)))
        panels.append(Panel(symbol(plan.axis.name), plan.title, tuple(curves)))
    over = dict.fromkeys(f"{plan.axis.name}={','.join(map(str, plan.axis.values))}" for plan in plans)
    signature = f"{common_signature([*records.values()])}|over:{'+'.join(over)}"
    stem = readable_part(re.sub(r"[^\w.+-]+", "-", f"{made.dataset}-{made.backbone}-{name}"))
    details = f" ({words})" if (words := network_words(made)) else ""
    names = {one for plan in plans for line in plan.lines for one in (preset, line.split, line.protocol.name)}
    more = ", ".join([f"{tasks:,} tasks per point, seed {seed}", *sorted(names - {"", "novel", "disjoint"})])
    title = f"{made.dataset} {made.backbone}{details}: {name}, {more}"
    digests = [record.run.digest for record in records.values()]
    content = json.dumps([tasks, *digests, *map(asdict, plans)], sort_keys=True, default=str)
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    return Sweep(f"{stem}-{digest}", title, signature, tuple(panels))


def _all_jobs(
    plans: Sequence[Plan], file: FeatureFile, runner: Runner, tasks: int, seed: int, preset: str
) -> list[list[list[Job]]]:
    """All points by plan and line, before the first is measured, so that a wrong value is named at once."""
    base = base_of(file, runner.reporter, runner.ranks)
    splits = dict.fromkeys(line.split for plan in plans for line in plan.lines)
    sources = {split: load_source(file, split, base) for split in splits}

    def point(line: Line, axis: Axis, x: Value) -> Job:
        protocol, options = at({axis.name: x}, line.protocol, line.choice.options)
        choice, source = replace(line.choice, options=options), sources[line.split]
        source = with_pixels(source, choice.network, file, runner)
        return Job(choice, *configure(choice, source, protocol, preset=preset), source, protocol, seed, tasks)

    return [[[point(line, plan.axis, x) for x in plan.axis.values] for line in plan.lines] for plan in plans]


ONE, FIVE = TaskProtocol(shots=1), TaskProtocol(shots=5)


def _prior_against_imbalance(preset: str) -> list[Plan]:
    """Fig. 3: the prior α_o against the imbalance α* of the tasks."""
    axes = [Axis("prior_alpha", (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)), Axis("alpha", (1.0, 2.0, 4.0))]
    return plan_sweep(parse_methods("bavardage"), axes, ["novel"], [ONE, FIVE])


def _settings(preset: str) -> list[Plan]:
    """Fig. 4: shots, and queries."""
    methods = parse_methods("soft-kmeans,bavardage")
    return [
        *plan_sweep(methods, [Axis("shots", (1, 5, 10, 20))], ["novel"], [ONE]),
        *plan_sweep(methods, [Axis("queries", (20, 50, 75, 100, 150))], ["novel"], [ONE]),
    ]


def _tuning(preset: str) -> list[Plan]:
    """Fig. 5: T_km, T_vb, s_max and β_o on val and novel.

    Departs from Fig. 5: without the article's preset its T_vb and s_max mean nothing, so τ and σ vary instead.
    """
    t_vb = Axis("t_vb", (30.0, 40.0, 50.0, 60.0, 80.0, 100.0))
    s_max = Axis("s_max", (0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0))
    tau = Axis("tau", (0.05, 0.1, 0.2, 0.3, 0.5, 1.0))
    sigma = Axis("sigma", (5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 80.0, 120.0))
    t_km = Axis("t_km", (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0))
    beta = Axis("beta", (0.0, 2.0, 5.0, 10.0, 15.0, 20.0))
    axes = [t_km, *([t_vb, s_max] if preset else [tau, sigma]), beta]
    methods = parse_methods("bavardage")
    panels = itertools.product((ONE, FIVE), axes)
    return [plan for one, axis in panels for plan in plan_sweep(methods, [axis], ["val", "novel"], [one])]


# The panels of the article's figures; with the preset `article`, in the article's units.
FIGURES: dict[int, Callable[[str], list[Plan]]] = {3: _prior_against_imbalance, 4: _settings, 5: _tuning}
