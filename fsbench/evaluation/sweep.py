"""What `fsbench sweep` does: accuracy along an axis, point by point, each point a record of its own."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError
from fsbench.evaluation.run import POINTS, Job, configure, key_of
from fsbench.evaluation.source import Source, base_of, load_source
from fsbench.evaluation.spec import WHOLE_NUMBERS, Axis, at, parse_methods
from fsbench.io.files import readable_part
from fsbench.methods.presets import symbol
from fsbench.methods.registry import method_class, method_key
from fsbench.results.curves import Curve, Panel, Point, Sweep, Value
from fsbench.results.published import published_curve
from fsbench.results.record import named_network
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.spec import MethodChoice
    from fsbench.features.store import FeatureFile
    from fsbench.results.record import RunRecord


@dataclass(frozen=True)
class Line:
    """One curve to be measured: what stays the same along the axis."""

    label: str
    method: str
    options: Mapping[str, Any]
    protocol: TaskProtocol
    split: str = "novel"


@dataclass(frozen=True)
class Plan:
    """One panel to be measured."""

    title: str
    axis: Axis
    lines: Sequence[Line]


def plan_sweep(
    choices: Sequence[MethodChoice],
    axes: Sequence[Axis],
    splits: Sequence[str],
    protocols: Sequence[TaskProtocol],
    options: Mapping[str, Any],
) -> list[Plan]:
    """One panel per protocol: the first axis runs along it, every combination of the rest is a curve."""
    first, others = axes[0], axes[1:]
    combinations = [
        dict(zip([axis.name for axis in others], values, strict=True))
        for values in itertools.product(*(axis.values for axis in others))
    ]
    plans = []
    for protocol in protocols:
        lines = []
        for choice, values, split in itertools.product(choices, combinations, splits):
            own_protocol, own_options = at(values, protocol, {**choice.options, **options})
            words = [choice.label] if len(choices) > 1 else []
            words += [f"{symbol(name)} = {_number(value)}" for name, value in values.items()]
            words += [split] if len(splits) > 1 else []
            label = ", ".join(words) or choice.label
            lines.append(Line(label, choice.method, own_options, own_protocol, split))
        plans.append(Plan(protocol.describe([axis.name for axis in axes]), first, lines))
    return plans


def run_sweep(
    plans: Sequence[Plan], file: FeatureFile, runner: Runner, *, name: str, tasks: int, seed: int, preset: str = ""
) -> Sweep:
    """Measure missing points, read the others from their records, and assemble the curves."""
    made = file.provenance
    jobs = _all_jobs(plans, file, runner, tasks, seed, preset)
    points = replace(runner, results=runner.results / POINTS if runner.results else None)
    panels, versions = [], set()
    count = sum(len(along) for lines in jobs for along in lines)
    with runner.reporter.cells(count, tasks, "point") as next_point:
        for plan, lines in zip(plans, jobs, strict=True):
            curves = []
            for line, along in zip(plan.lines, lines, strict=True):
                label = f"{made.dataset} {name}, {line.label}"
                records = [points.run(job, source, next_point(label)) for job, source in along]
                curves.append(_curve(plan.axis, line, records))
                versions |= {record.versions.get("fsbench", "unknown") for record in records}
            panels.append(Panel(plan.axis.symbol, plan.title, tuple(curves)))
    cells = [cell for lines in jobs for along in lines for cell in along]
    first, splits = cells[0][1], dict.fromkeys(source.split_name for _, source in cells)
    names = f"{made.dataset}/{named_network(first.backbone, first.family, first.weights)}/{'+'.join(splits)}"
    origins = _each(job.params_from for job, _ in cells)
    parts = [f"fsbench:{'+'.join(sorted(versions))}", names, *_fixed(plans), f"seed:{seed}|tasks:{tasks}"]
    signature = "|".join([*parts, _over(plans), f"params:{origins}"])
    words = readable_part(re.sub(r"[^\w.+-]+", "-", f"{made.dataset}-{made.backbone}-{name}"))
    title = f"{first.title}: {name}, {tasks:,} tasks per point"
    keys = [key_of(job, source).digest() for job, source in cells]
    return Sweep(f"{words}-{_digest(plans, keys)}", title, signature, tuple(panels))


def planned_points(
    plans: Sequence[Plan], file: FeatureFile, runner: Runner, *, tasks: int, seed: int, preset: str = ""
) -> list[tuple[Job, Source]]:
    """The points that `run_sweep` would measure or read, without measuring any."""
    jobs = _all_jobs(plans, file, runner, tasks, seed, preset, planned=True)
    return [cell for panel in jobs for along in panel for cell in along]


def _all_jobs(
    plans: Sequence[Plan],
    file: FeatureFile,
    runner: Runner,
    tasks: int,
    seed: int,
    preset: str,
    *,
    planned: bool = False,
) -> list[list[list[tuple[Job, Source]]]]:
    """All points with what they run on, before the first is measured, so that a wrong value is named at once."""
    base = base_of(file, runner.reporter, runner.ranks)
    splits = dict.fromkeys(line.split for plan in plans for line in plan.lines)
    sources = {split: load_source(file, split, base) for split in splits}

    def point(line: Line, axis: Axis, x: Value) -> tuple[Job, Source]:
        protocol, options = at({axis.name: x}, line.protocol, line.options)
        source, network = sources[line.split], method_class(line.method).info.network_for(options)
        if network:
            source = runner.images.source_for(network, source, file, runner, planned=planned)
        method, origin = configure(line.method, source, protocol, options, preset)
        return Job(method, protocol, seed, tasks, origin, method_key(line.method)), source

    return [[[point(line, plan.axis, x) for x in plan.axis.values] for line in plan.lines] for plan in plans]


def _curve(axis: Axis, line: Line, records: Sequence[RunRecord]) -> Curve:
    points = tuple(Point(x, record.accuracy, record.ci95) for x, record in zip(axis.values, records, strict=True))
    known = published_curve(records[0], axis.name)
    return Curve(line.label, points, tuple(Point(x, accuracy) for x, accuracy in known))


def _fixed(plans: Sequence[Plan]) -> list[str]:
    """What does not change along the axes: protocols and methods with the parameters given, each once."""
    lines = [(plan.axis.name, line) for plan in plans for line in plan.lines]
    stars = {"alpha": {"mix": "dirichlet:*"}, **{name: {name: "*"} for name in WHOLE_NUMBERS}}
    protocols = [line.protocol.signature(**stars.get(name, {})).split("|") for name, line in lines]
    return [*map(_each, zip(*protocols, strict=True)), _each(_given(line) for _, line in lines)]


def _given(line: Line) -> str:
    """A method as its records name it, with the parameters given."""
    given = ",".join(f"{name}:{value}" for name, value in sorted(line.options.items()))
    return f"{method_key(line.method)}({given})" if given else method_key(line.method)


def _over(plans: Sequence[Plan]) -> str:
    """The axes and their values."""
    return "over:" + _each(f"{plan.axis.name}={','.join(map(str, plan.axis.values))}" for plan in plans)


def _each(texts: Iterable[str]) -> str:
    """Different texts in the order they come, each once."""
    return "+".join(dict.fromkeys(texts))


def _digest(plans: Sequence[Plan], keys: Sequence[str]) -> str:
    """Of what was asked for, and of the keys of all points: their features, tasks and parameters."""
    text = json.dumps([*keys, *(asdict(plan) for plan in plans)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _number(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


ONE, FIVE = TaskProtocol(shots=1), TaskProtocol(shots=5)


def figure(number: int, preset: str = "") -> list[Plan]:
    """The panels of one of the article's figures; with the preset `article`, in the article's units."""
    if number not in FIGURES:
        raise FsbenchError(f"There is no sweep for figure {number}.", f"Figures: {', '.join(map(str, FIGURES))}.")
    return FIGURES[number](preset)


def _prior_against_imbalance(preset: str) -> list[Plan]:
    """Fig. 3: the prior α_o against the imbalance α* of the tasks."""
    axes = [Axis("prior_alpha", (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)), Axis("alpha", (1.0, 2.0, 4.0))]
    return plan_sweep(parse_methods("bavardage"), axes, ["novel"], [ONE, FIVE], {})


def _settings(preset: str) -> list[Plan]:
    """Fig. 4: shots, and queries."""
    methods = parse_methods("soft-kmeans,bavardage")
    return [
        *plan_sweep(methods, [Axis("shots", (1, 5, 10, 20))], ["novel"], [ONE], {}),
        *plan_sweep(methods, [Axis("queries", (20, 50, 75, 100, 150))], ["novel"], [ONE], {}),
    ]


def _tuning(preset: str) -> list[Plan]:
    """Fig. 5: T_km, T_vb, s_max and β_o on val and novel.

    Departs from Fig. 5: without the article's preset its T_vb and s_max mean nothing, so τ and σ vary instead.
    """
    units = [
        Axis("t_vb", (30.0, 40.0, 50.0, 60.0, 80.0, 100.0)),
        Axis("s_max", (0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0)),
    ]
    if not preset:
        units = [
            Axis("tau", (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)),
            Axis("sigma", (5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 80.0, 120.0)),
        ]
    axes = [
        Axis("t_km", (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0)),
        *units,
        Axis("beta", (0.0, 2.0, 5.0, 10.0, 15.0, 20.0)),
    ]
    methods = parse_methods("bavardage")
    return [
        plan
        for protocol in (ONE, FIVE)
        for axis in axes
        for plan in plan_sweep(methods, [axis], ["val", "novel"], [protocol], {})
    ]


FIGURES: dict[int, Callable[[str], list[Plan]]] = {3: _prior_against_imbalance, 4: _settings, 5: _tuning}
