"""`fsbench plot simplex`, `task` and `spectrum`: pictures of features and of what BAVARDAGE does to a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsbench.cli.contradictions import together
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
from fsbench.cli.parse import given, level_of, parameters, precision

if TYPE_CHECKING:
    from fsbench.evaluation.watch import WatchedTask
    from fsbench.report.progress import Reporter
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

    from fsbench.report.plots.simplex import draw_simplex
    from fsbench.report.plots.style import check_ending
    from fsbench.report.progress import Reporter
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

    from fsbench.evaluation.views import three_views
    from fsbench.report.plots.style import check_ending
    from fsbench.report.plots.task import draw_task
    from fsbench.report.progress import Reporter
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

    The clamp is that of the data set and setting unless it is given.

    Example: [bold]fsbench plot spectrum features/mini-wrn.h5 features/mini-rn18.h5 --out spectrum.pdf[/bold]
    """
    from fsbench.features.scatter import base_statistics
    from fsbench.methods.base import Context
    from fsbench.methods.bavardage import Bavardage
    from fsbench.report.plots.spectrum import Spectrum, draw_spectra
    from fsbench.report.plots.style import check_ending
    from fsbench.report.progress import Reporter

    check_ending(out)
    reporter = Reporter(quiet)
    spectra = []
    for file in find_features(features, features_dir, reporter):
        with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
            base = base_statistics(file, advance)
        context = Context(balanced=not unbalanced, dataset=file.provenance.dataset, base=base)
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
    from fsbench.evaluation.watch import watch

    first, *rest = find_features(features, root, reporter)
    if rest:
        reporter.say(
            f"One task, one picture: it is drawn from {first.path}, the first of {1 + len(rest)} feature files."
        )
    return watch(load_source(first, split, base_of(first, reporter)), protocol, seed, number, options)
