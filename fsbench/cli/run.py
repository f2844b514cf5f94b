"""`fsbench run`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from fsbench.cli import options as use
from fsbench.cli.run_file import override, read_study, steps_of, text_of
from fsbench.cli.solve import spec_of
from fsbench.cli.sweep import plans_of
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.compare import planned_cells
from fsbench.evaluation.forecast import Forecast, forecast, read_speeds
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.run import POINTS, Runner
from fsbench.evaluation.spec import Spec, SpecWords
from fsbench.evaluation.sweep import planned_points
from fsbench.features.store import FeatureFile
from fsbench.io.files import write_text
from fsbench.report.html import STUDY
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from fsbench.cli.run_file import Step

EXAMPLE = """\
# Run with: fsbench run study.toml
#
# A table is one command, its keys are the arguments and options of that command: see fsbench COMMAND --help.
# Lists become values separated by commas. [[sweep]] in place of [sweep] allows several. Steps run in this order:
# import, extract, scatter, tune, solve, compare, reproduce, sweep, plot, report.

[extract]
dataset = "glyphs"  # the built-in data set
backbone = "rn12"

[compare]
features = "features/glyphs-rn12.h5"
methods = ["ncm", "soft-kmeans", "bavardage"]
shots = [1, 5]
tasks = 200

[sweep]
features = "features/glyphs-rn12.h5"
over = { tau = [0.1, 0.3, 1.0] }
shots = 1
tasks = 100

[plot.dots]
out = "dots.png"

[report]
title = "Three methods on the built-in data set"
out = "report.html"
"""
_UNTIMED = ("import", "extract", "tune", "reproduce")  # steps that take time and have no estimate


def run(
    study: Annotated[Path | None, typer.Argument(metavar="STUDY", help="Run file, in TOML.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STEP.KEY=VALUE", help="Override a value, e.g. compare.tasks=300."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command lines, the cells to compute and the minutes expected.")
    ] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a run file to start from.")] = False,
    quiet: use.Quiet = False,
) -> None:
    """Run the commands of a TOML file, from images to the report.

    Every table of the file is one command line; its keys are the options of that command. The whole file is checked
    before the first step runs. Steps run in a fixed order: import, extract, scatter, tune, solve, compare, reproduce,
    sweep, plot, report. Finished work is kept: run the same command again to resume. The report shows the run file.

    Example: [bold]fsbench run study.toml --set compare.tasks=300 --dry-run[/bold]
    """
    if example == (study is not None):
        raise UsageError(
            "example", "give a run file, or --example alone", "Write one: fsbench run --example > study.toml"
        )
    if study is None:
        print(EXAMPLE, end="")
        return
    text, tables = read_study(study)
    if overrides:
        override(tables, overrides)
        text = text_of(tables)
    steps = steps_of(tables, study)
    if dry_run:
        _show(steps)
        return
    if os.environ.get("WORLD_SIZE", "1") != "1":
        hint = "Start its commands one by one with torchrun: fsbench run --dry-run prints them."
        raise FsbenchError("A study runs in one process.", hint)
    reporter = Reporter(quiet)
    for number, step in enumerate(steps, start=1):
        reporter.say(f"Step {number} of {len(steps)}: {step.line}")
        if step.title == "report":
            write_text(step.context().params["results_dir"] / STUDY, text)  # where the report looks for it
        if status := step.run(quiet):
            raise typer.Exit(status)


def _show(steps: list[Step]) -> None:
    """Print a study as a shell script, with what its steps have to compute as comments."""
    total = Forecast()
    for step in steps:
        with step.named_in_errors():
            found = _forecast(step)
        print(f"{step.line}  # {found}" if found else step.line)
        total += found or Forecast()
    others = dict.fromkeys(step.title for step in steps if step.title in _UNTIMED)
    print(f"# {total}" + (f"; not counting {', '.join(others)}" if others else ""))


def _forecast(step: Step) -> Forecast | None:
    """What a step has to compute; None if it is not made of cells."""
    if step.title not in {"solve", "compare", "sweep"}:
        return None
    context = step.context()
    said: dict[str, Any] = context.params
    results = said["results_dir"]
    paths = said["features"] or [path for path in said["features_dir"].glob("*.h5") if ".scatter" not in path.name]
    files = [FeatureFile.open(path) for path in paths if Path(path).exists()]
    wanted = said.get("save_predictions", False)
    runner = Runner(torch.device("cpu"), reporter=Reporter(silent=True), force=said["force"], predictions=wanted)
    if "data_dir" in said:
        runner = replace(runner, images=ImagePlaces(said["data_dir"], said["weights_dir"]))
    known = read_speeds(results)
    later = max(len(paths), 1) - len(files)  # feature files that an earlier step makes
    if step.title == "sweep":
        plans, _ = plans_of(context)
        rules = {name: said[name] for name in ("tasks", "seed", "preset")}
        points = [cell for file in files for cell in planned_points(plans, file, runner, **rules)]
        each = sum(len(plan.axis.values) * len(plan.lines) for plan in plans)
        return forecast(points, runner, results / POINTS, known) + Forecast(later * each, untimed=later * each)
    if step.title == "solve":
        spec = spec_of(said)
    else:
        words = {name: said[name] for name in SpecWords.__annotations__ if name in said}
        spec = Spec.from_words(**words)
    base = FeatureFile.open(said["base"]) if said["base"] else None
    each = len(spec.protocols) * len({*(choice.label for choice in spec.methods), spec.baseline or "soft-kmeans"})
    if spec.tune:  # parameters, and so records, are not known before the search
        return Forecast((len(files) + later) * each, untimed=(len(files) + later) * each)
    cells = planned_cells(spec, files, runner, base) if files else []
    return forecast(cells, runner, results, known) + Forecast(later * each, untimed=later * each)
