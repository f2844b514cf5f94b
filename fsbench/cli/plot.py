"""`fsbench plot simplex`, `task` and `spectrum`: pictures of features and of what BAVARDAGE does to a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsbench.cli.options import (
    OF_TASKS,
    Alpha,
    ArticleClamp,
    ArticlePrecision,
    Clamp,
    FeaturesArgument,
    FeaturesRoot,
    PictureFile,
    Precision,
    ProtocolName,
    Queries,
    Quiet,
    RecordsArgument,
    ResultsRoot,
    Seed,
    SetOption,
    SplitName,
    Steps,
    Temperature,
    Unbalanced,
    Variant,
    Ways,
    find_features,
)
from fsbench.cli.parse import given, help_of, level_of, parameters, precision, together

if TYPE_CHECKING:
    from fsbench.evaluation.task_views import WatchedTask
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Comparison
    from fsbench.tasks.protocol import TaskProtocol


Number = Annotated[
    int,
    typer.Option("--task", min=0, max=10**9, help="Number of the task in the list.", rich_help_panel=OF_TASKS),
]
Shots = Annotated[int, typer.Option(help="Labelled images per class.", rich_help_panel=OF_TASKS)]


def simplex(
    features: FeaturesArgument = None,
    number: Number = 0,
    unbalanced: Unbalanced = True,
    alpha: Alpha = None,
    shots: Shots = 1,
    queries: Queries = 75,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
    variant: Variant = None,
    t_km: Temperature = None,
    t_vb: ArticlePrecision = None,
    s_max: ArticleClamp = None,
    tau: Precision = None,
    sigma: Clamp = None,
    steps: Steps = None,
    others: SetOption = None,
    root: Annotated[
        int, typer.Option(min=1, max=64, help="Draw p^(1/ROOT), to open up the corners; 1 draws the probabilities.")
    ] = 4,
    out: PictureFile = Path("simplex.png"),
    features_dir: FeaturesRoot = Path("features"),
    quiet: Quiet = False,
) -> None:
    """Follow the queries of a 3-way task through the simplex.

    Three panels: nearest class mean, Soft-KMEANS, BAVARDAGE. A query stands where its class probabilities put it.

    Example: [bold]fsbench plot simplex features/mini-wrn.h5 --task 3 --shots 5 --out simplex.pdf[/bold]
    """
    named = given(variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=precision(tau), sigma=sigma, steps=steps)
    options = together(named, parameters(others))

    from fsbench.report.plots.style import check_ending
    from fsbench.report.plots.task import draw_simplex
    from fsbench.reporter import Reporter
    from fsbench.tasks.protocol import TaskProtocol

    check_ending(out)
    rules = TaskProtocol(protocol, 3, shots, queries, level_of(unbalanced, alpha))  # type: ignore[arg-type]
    reporter = Reporter(quiet)
    draw_simplex(watched(features, features_dir, split, rules, seed, number, options, reporter), root, out)
    reporter.say(f"Wrote {out}.")


def task(
    features: FeaturesArgument = None,
    number: Number = 0,
    unbalanced: Unbalanced = True,
    alpha: Alpha = None,
    shots: Shots = 1,
    ways: Ways = 3,
    queries: Queries = 75,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
    variant: Variant = None,
    t_km: Temperature = None,
    t_vb: ArticlePrecision = None,
    s_max: ArticleClamp = None,
    tau: Precision = None,
    sigma: Clamp = None,
    steps: Steps = None,
    others: SetOption = None,
    out: PictureFile = Path("task.png"),
    features_dir: FeaturesRoot = Path("features"),
    quiet: Quiet = False,
) -> None:
    """Show a task three ways.

    t-SNE of its features, the space of its centroids, that space after PLDA.

    Example: [bold]fsbench plot task features/mini-wrn.h5 --ways 5 --task 3 --out task.pdf[/bold]
    """
    named = given(variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=precision(tau), sigma=sigma, steps=steps)
    options = together(named, parameters(others))

    from fsbench.evaluation.task_views import three_views
    from fsbench.report.plots.style import check_ending
    from fsbench.report.plots.task import draw_task
    from fsbench.reporter import Reporter
    from fsbench.tasks.protocol import TaskProtocol

    check_ending(out)
    rules = TaskProtocol(protocol, ways, shots, queries, level_of(unbalanced, alpha))  # type: ignore[arg-type]
    reporter = Reporter(quiet)
    seen = watched(features, features_dir, split, rules, seed, number, options, reporter)
    draw_task(seen, three_views(seen), out)
    reporter.say(f"Wrote {out}.")


def spectrum(
    features: FeaturesArgument = None,
    unbalanced: Unbalanced = True,
    s_max: ArticleClamp = None,
    sigma: Clamp = None,
    out: PictureFile = Path("spectrum.png"),
    features_dir: FeaturesRoot = Path("features"),
    quiet: Quiet = False,
) -> None:
    """Show the spectrum of S_w, and what the clamp σ cuts.

    The clamp is the default σ unless it is given.

    Example: [bold]fsbench plot spectrum features/mini-wrn.h5 features/mini-rn18.h5 --out spectrum.pdf[/bold]
    """
    from fsbench.features.scatter import base_statistics
    from fsbench.methods.base import Context
    from fsbench.methods.bavardage import Bavardage
    from fsbench.report.plots.spectrum import Spectrum, draw_spectra
    from fsbench.report.plots.style import check_ending
    from fsbench.reporter import Reporter

    check_ending(out)
    reporter = Reporter(quiet)
    spectra = []
    for file in find_features(features, features_dir, reporter):
        with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
            base = base_statistics(file, advance)
        context = Context(balanced=not unbalanced, base=base)
        clamp = Bavardage.configure(context, **given(s_max=s_max, sigma=sigma)).sigma
        spectra.append(Spectrum(file.path.stem, base, clamp))
    draw_spectra(spectra, out)
    reporter.say(f"Wrote {out}.")


def watched(
    features: list[Path] | None,
    root: Path,
    split: str,
    protocol: TaskProtocol,
    seed: int,
    number: int,
    options: dict[str, Any],
    reporter: Reporter,
) -> WatchedTask:
    """One task of the first feature file, watched; other files are left out, and that is said."""
    from fsbench.evaluation.source import base_of, load_source
    from fsbench.evaluation.task_views import watch

    first, *rest = find_features(features, root, reporter)
    if rest:
        reporter.say(
            f"One task, one picture: it is drawn from {first.path}, the first of {1 + len(rest)} feature files."
        )
    return watch(load_source(first, split, base_of(first, reporter)), protocol, seed, number, options)


def bars(
    records: RecordsArgument = None,
    out: PictureFile = Path("bars.png"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Draw accuracies with their intervals.

    Example: [bold]fsbench plot bars --out bars.pdf[/bold]
    """
    from fsbench.report.plots.comparison import accuracy_bars
    from fsbench.report.plots.style import check_ending
    from fsbench.reporter import Reporter
    from fsbench.results.collect import collect, read_records

    check_ending(out)
    reporter = Reporter(quiet)
    accuracy_bars(_largest(collect(read_records(records, results_dir, reporter)), reporter), out)
    reporter.say(f"Wrote {out}.")


def differences(
    method: Annotated[str, typer.Argument(help="As `fsbench compare` calls it.")],
    baseline: Annotated[str, typer.Argument(help="The method to subtract.")] = "soft-kmeans",
    records: RecordsArgument = None,
    out: PictureFile = Path("differences.png"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Draw how a method fares against another, task by task.

    Example: [bold]fsbench plot differences bavardage soft-kmeans[/bold]
    """
    from fsbench.errors import FsbenchError, unknown_name
    from fsbench.report.plots.comparison import differences_figure, paired_runs
    from fsbench.report.plots.style import check_ending, save
    from fsbench.reporter import Reporter
    from fsbench.results.collect import collect, read_records

    check_ending(out)
    reporter = Reporter(quiet)
    found = collect(read_records(records, results_dir, reporter))
    known = {entry.label for comparison in found for entry in comparison.entries}
    for name in (method, baseline):
        if name not in known:
            raise unknown_name("method among the records", name, known)
    both = [comparison for comparison in found if paired_runs(comparison, method, baseline)]
    if not both:
        raise FsbenchError(
            f"{method} and {baseline} did not run on the same tasks of the same features.",
            f"Run them together: fsbench compare --methods {method} --baseline {baseline}",
        )
    pairs = paired_runs(_largest(both, reporter), method, baseline)
    save(differences_figure(pairs, method, baseline), out)
    reporter.say(f"Wrote {out}.")


def curves(
    sweep: Annotated[Path, typer.Argument(help="A file that `fsbench sweep` wrote into results/sweeps/.")],
    out: PictureFile = Path("curves.png"),
    quiet: Quiet = False,
) -> None:
    """Draw the curves of a sweep again, for instance as PDF.

    Example: [bold]fsbench plot curves results/sweeps/SWEEP.json --out curves.pdf[/bold]
    """
    from fsbench.report.plots.studies import draw_sweep
    from fsbench.report.plots.style import check_ending, save
    from fsbench.reporter import Reporter
    from fsbench.results.curves import load_sweep

    check_ending(out)
    save(draw_sweep(load_sweep(sweep)), out)
    Reporter(quiet).say(f"Wrote {out}.")


def _largest(comparisons: list[Comparison], reporter: Reporter) -> Comparison:
    """The comparison of the most runs; the others are named, for a picture shows one list of tasks."""
    first, *others = comparisons
    if others:
        left = ", ".join(other.signature() for other in others)
        reporter.warn(
            f"A picture shows one list of tasks: {first.signature()}. Left out: {left}. Name records to choose."
        )
    return first


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Draw a picture: PNG, PDF or SVG, by the ending of --out.",
)
for panel, pictures in (
    ("From records", (bars, differences, curves)),
    ("From features", (simplex, task, spectrum)),
):
    for picture in pictures:
        app.command(picture.__name__, help=help_of(picture), rich_help_panel=panel)(picture)
