"""`fsbench plot FIGURE`: figures of records, of features, and of what BAVARDAGE does to a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsbench.cli import options as use
from fsbench.cli.app import COMMANDS, help_of
from fsbench.cli.parse import parameters, setting_of
from fsbench.cli.session import find_features
from fsbench.errors import FsbenchError, unknown_name
from fsbench.evaluation.engine import TaskList
from fsbench.evaluation.source import base_of, load_source
from fsbench.evaluation.spec import parse_protocols
from fsbench.evaluation.task_views import three_views, watch
from fsbench.features.scatter import base_statistics
from fsbench.methods.base import Context
from fsbench.methods.bavardage import Bavardage
from fsbench.report.plots.comparison import draw_differences, draw_dots, draw_speed, paired_runs
from fsbench.report.plots.predictions import draw_calibration, draw_confusion
from fsbench.report.plots.spectrum import Spectrum, draw_spectra
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import Width, check_ending, save
from fsbench.report.plots.task import draw_simplex, draw_task
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records, titles
from fsbench.results.curves import load_sweep
from fsbench.results.predictions import confusion as confused
from fsbench.results.predictions import find_predictions, load_predictions, reliability

if TYPE_CHECKING:
    from fsbench.evaluation.task_views import WatchedTask
    from fsbench.results.comparison import Comparison
    from fsbench.results.predictions import Reliability

TaskNumber = Annotated[int, use.of_tasks("--task", min=0, max=10**9, help="Number of the task in the list.")]
FigureWidth = Annotated[
    Width,
    use.of_output("--width", metavar="column|page", help="True width on paper: column is 3.25 in, page 6.75 in."),
]
Shots = Annotated[int, use.of_tasks(help="Labelled images per class.")]


def dots(
    records: use.RecordsArgument = None,
    baseline: Annotated[str, typer.Option(help="Plot paired differences to this method instead of accuracies.")] = "",
    width: FigureWidth = "page",
    out: use.FigureFile = Path("dots.png"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Plot accuracies or differences as dots with intervals.

    Example: [bold]fsbench plot dots --width column --out dots.pdf[/bold]
    """
    check_ending(out)
    reporter = Reporter(quiet)
    found = read_records(records, results_dir, reporter)
    first = _first(collect(found, baseline) if baseline else collect(found), reporter)
    save(draw_dots(first, width, baseline), out)
    reporter.say(f"Wrote {out}.")


def speed(
    records: use.RecordsArgument = None,
    width: FigureWidth = "page",
    out: use.FigureFile = Path("speed.png"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Plot accuracy against tasks per second.

    Example: [bold]fsbench plot speed --out speed.pdf[/bold]
    """
    check_ending(out)
    reporter = Reporter(quiet)
    save(draw_speed(_first(collect(read_records(records, results_dir, reporter)), reporter), width), out)
    reporter.say(f"Wrote {out}.")


def differences(
    method: Annotated[str, typer.Argument(help="Label of the method, as in `fsbench compare`.")],
    baseline: Annotated[str, typer.Argument(help="The method to subtract.")] = "soft-kmeans",
    records: use.RecordsArgument = None,
    width: FigureWidth = "page",
    out: use.FigureFile = Path("differences.png"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Plot the difference of two methods, task by task.

    Example: [bold]fsbench plot differences bavardage soft-kmeans[/bold]
    """
    check_ending(out)
    reporter = Reporter(quiet)
    comparisons = collect(read_records(records, results_dir, reporter))
    known = {entry.label for comparison in comparisons for entry in comparison.entries}
    for name in (method, baseline):
        if name not in known:
            raise unknown_name("method among the records", name, known)
    both = [comparison for comparison in comparisons if paired_runs(comparison, method, baseline)]
    if not both:
        raise FsbenchError(
            f"{method} and {baseline} did not run on the same tasks of the same features.",
            f"Run them together: fsbench compare --methods {method} --baseline {baseline}",
        )
    save(draw_differences(paired_runs(_first(both, reporter), method, baseline), method, baseline, width), out)
    reporter.say(f"Wrote {out}.")


def curves(
    sweep: Annotated[Path, typer.Argument(help="A file that `fsbench sweep` wrote into results/sweeps/.")],
    width: FigureWidth = "page",
    out: use.FigureFile = Path("curves.png"),
    quiet: use.Quiet = False,
) -> None:
    """Plot the curves of a sweep again, for instance as PDF.

    Example: [bold]fsbench plot curves results/sweeps/SWEEP.json --out curves.pdf[/bold]
    """
    save(draw_sweep(load_sweep(sweep), width), out)
    Reporter(quiet).say(f"Wrote {out}.")


def confusion(
    records: use.RecordsArgument = None,
    method: Annotated[str, typer.Option(help="Label of the method. (default: the one with the best accuracy)")] = "",
    width: FigureWidth = "page",
    out: use.FigureFile = Path("confusion.png"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Plot which classes are confused, over all tasks.

    Needs predictions: `fsbench compare --save-predictions`. Plots the first setting of the table; pass a record file to
    choose another one.

    Example: [bold]fsbench plot confusion --method bavardage --out confusion.pdf[/bold]
    """
    check_ending(out)
    reporter = Reporter(quiet)
    comparison, files = _with_predictions(records, results_dir, reporter)
    group, column = comparison.groups[0], comparison.columns[0]
    known = {label: cell.record for (label, one), cell in group.cells.items() if cell.record and one == column}
    if method and method not in known:
        raise unknown_name("method with predictions", method, known)
    label = method or max(known, key=lambda name: known[name].accuracy)
    record = known[label]
    found = load_predictions(files[record.key.digest()], record)
    title = f"{label} on {group.title}, {column.title}, {comparison.tasks:,} tasks: {record.accuracy:.2f} % right"
    save(draw_confusion(confused(found), found.class_names, title, width), out)
    reporter.say(f"Wrote {out}.")


def calibration(
    records: use.RecordsArgument = None,
    width: FigureWidth = "page",
    out: use.FigureFile = Path("calibration.png"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Plot how often methods are right against how sure they are.

    One panel per setting, with the expected calibration error (ECE) of every method in 15 bins. Needs predictions:
    `fsbench compare --save-predictions`.

    Example: [bold]fsbench plot calibration --out calibration.pdf[/bold]
    """
    check_ending(out)
    reporter = Reporter(quiet)
    comparison, files = _with_predictions(records, results_dir, reporter)
    group = comparison.groups[0]
    panels: dict[str, dict[str, Reliability]] = {}
    for column in comparison.columns:
        for entry in comparison.entries:
            cell = group.cells.get((entry.label, column))
            if cell and cell.record:
                found = load_predictions(files[cell.record.key.digest()], cell.record)
                panels.setdefault(column.title, {})[entry.label] = reliability(found, entry.label)
    save(draw_calibration(panels, f"{group.title}, {comparison.tasks:,} tasks", width), out)
    reporter.say(f"Wrote {out}.")


def simplex(
    features: use.FeaturesArgument = None,
    number: TaskNumber = 0,
    unbalanced: use.Unbalanced = True,
    alpha: use.Alpha = None,
    shots: Shots = 1,
    queries: use.Queries = 75,
    seed: use.Seed = 0,
    split: use.SplitName = "novel",
    protocol: use.ProtocolName = "disjoint",
    variant: use.Variant = None,
    t_km: use.Temperature = None,
    t_vb: use.ArticlePrecision = None,
    s_max: use.ArticleClamp = None,
    tau: use.Precision = None,
    sigma: use.Clamp = None,
    steps: use.Steps = None,
    others: use.SetOption = None,
    root: Annotated[
        int, typer.Option(min=1, max=64, help="Plot p^(1/ROOT), to open up the corners; 1 plots the probabilities.")
    ] = 4,
    width: FigureWidth = "page",
    out: use.FigureFile = Path("simplex.png"),
    features_dir: use.FeaturesRoot = Path("features"),
    quiet: use.Quiet = False,
) -> None:
    """Plot the queries of a 3-way task in the simplex.

    Three panels: nearest class mean, Soft-KMEANS, BAVARDAGE. A query stands where its class probabilities put it.

    Example: [bold]fsbench plot simplex features/mini-wrn.h5 --task 3 --shots 5 --out simplex.pdf[/bold]
    """
    check_ending(out)
    options = parameters(others, variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=tau, sigma=sigma, steps=steps)
    (rules,) = parse_protocols(
        settings=setting_of(unbalanced), alpha=alpha, shots=shots, ways=3, queries=queries, protocol=protocol
    )
    tasks, reporter = TaskList(rules, seed, number + 1), Reporter(quiet)
    seen = _watched(features, features_dir, split, tasks, options, reporter)
    save(draw_simplex(seen, root, width), out)
    reporter.say(f"Wrote {out}.")


def task(
    features: use.FeaturesArgument = None,
    number: TaskNumber = 0,
    unbalanced: use.Unbalanced = True,
    alpha: use.Alpha = None,
    shots: Shots = 1,
    ways: use.Ways = 3,
    queries: use.Queries = 75,
    seed: use.Seed = 0,
    split: use.SplitName = "novel",
    protocol: use.ProtocolName = "disjoint",
    variant: use.Variant = None,
    t_km: use.Temperature = None,
    t_vb: use.ArticlePrecision = None,
    s_max: use.ArticleClamp = None,
    tau: use.Precision = None,
    sigma: use.Clamp = None,
    steps: use.Steps = None,
    others: use.SetOption = None,
    width: FigureWidth = "page",
    out: use.FigureFile = Path("task.png"),
    features_dir: use.FeaturesRoot = Path("features"),
    quiet: use.Quiet = False,
) -> None:
    """Plot one task in three projections.

    PCA of its features, the space of its centroids, and that space after PLDA.

    Example: [bold]fsbench plot task features/mini-wrn.h5 --ways 5 --task 3 --out task.pdf[/bold]
    """
    check_ending(out)
    options = parameters(others, variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=tau, sigma=sigma, steps=steps)
    (rules,) = parse_protocols(
        settings=setting_of(unbalanced), alpha=alpha, shots=shots, ways=ways, queries=queries, protocol=protocol
    )
    tasks, reporter = TaskList(rules, seed, number + 1), Reporter(quiet)
    seen = _watched(features, features_dir, split, tasks, options, reporter)
    save(draw_task(seen, three_views(seen), width), out)
    reporter.say(f"Wrote {out}.")


def spectrum(
    features: use.FeaturesArgument = None,
    s_max: use.ArticleClamp = None,
    sigma: use.Clamp = None,
    width: FigureWidth = "page",
    out: use.FigureFile = Path("spectrum.png"),
    features_dir: use.FeaturesRoot = Path("features"),
    quiet: use.Quiet = False,
) -> None:
    """Plot the spectrum of S_w, and what the clamp σ cuts.

    Example: [bold]fsbench plot spectrum features/mini-wrn.h5 features/mini-rn18.h5 --out spectrum.pdf[/bold]
    """
    check_ending(out)
    reporter = Reporter(quiet)
    spectra = []
    for file in find_features(features, features_dir, reporter):
        with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
            base = base_statistics(file, advance)
        clamp = Bavardage.configure(
            Context(balanced=False, base=base), **parameters(None, s_max=s_max, sigma=sigma)
        ).sigma
        spectra.append(Spectrum(f"{file.path.stem} {file.provenance.named_weights}".strip(), base, clamp))
    save(draw_spectra(spectra, width), out)
    reporter.say(f"Wrote {out}.")


def _watched(
    features: list[Path] | None, root: Path, split: str, tasks: TaskList, options: dict[str, Any], reporter: Reporter
) -> WatchedTask:
    """The last task of a list on the first feature file; a note names the files left out."""
    first, *rest = find_features(features, root, reporter)
    if rest:
        reporter.say(f"Plotting a task of {first.path}, the first of {1 + len(rest)} feature files.")
    source = load_source(first, split, base_of(first, reporter))
    return watch(source, tasks.protocol, tasks.seed, tasks.count - 1, options)


def _with_predictions(given: list[Path] | None, folder: Path, reporter: Reporter) -> tuple[Comparison, dict[str, Path]]:
    """The first comparison of records with predictions, and the files of these; a note names feature files left out."""
    records = read_records(given, folder, reporter)
    files = find_predictions(records, given or [folder])
    comparison = _first(collect([record for record in records if record.key.digest() in files]), reporter)
    if others := [group.title for group in comparison.groups[1:]]:
        reporter.say(f"Plotting {comparison.groups[0].title}; pass record files to choose {', '.join(others)}.")
    return comparison, files


def _first(comparisons: list[Comparison], reporter: Reporter) -> Comparison:
    """The comparison with the most tasks; a note names those left out."""
    shown, *others = titles(comparisons)
    if others:
        reporter.warn(f"Plotting the runs over {shown}; pass record files to choose others ({'; '.join(others)}).")
    return comparisons[0]


app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich", help=COMMANDS["plot"][1])
_PANELS = {
    "From records": (dots, differences, speed, confusion, calibration, curves),
    "From features": (simplex, task, spectrum),
}
for panel, figures in _PANELS.items():
    for figure in figures:
        app.command(figure.__name__, help=help_of(figure), rich_help_panel=panel)(figure)
app.command("bars", help=help_of(dots), hidden=True)(dots)  # an earlier name
