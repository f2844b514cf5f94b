"""`fsbench compare` and `fsbench ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.cli.session import find_features, format_of, open_runner, show_table
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.spec import ABLATION, Spec, parse_protocols, with_prior
from fsbench.features.store import FeatureFile
from fsbench.results.collect import read_others


def compare(
    features: use.FeaturesArgument = None,
    methods: Annotated[
        str,
        use.of_method(
            metavar="NAMES",
            help="Names separated by commas, NAME:VARIANT, file.py:CLASS, or all. See fsbench methods.",
            autocompletion=complete.methods,
        ),
    ] = "soft-kmeans,bavardage,bavardage:released,bavardage:transport",
    shots: use.Shots = "1,5",
    settings: use.Settings = "unbalanced,balanced",
    alpha: use.Alpha = None,
    ways: use.Ways = None,
    queries: use.Queries = 75,
    tasks: use.Tasks = 10_000,
    seed: use.Seed = 0,
    split: use.SplitName = "novel",
    protocol: use.ProtocolName = "disjoint",
    present: use.Present = None,
    skip_infeasible: use.SkipInfeasible = False,
    baseline: Annotated[
        str | None,
        use.of_method(
            help="Method that others are compared to. (default: soft-kmeans; without base classes simpleshot:L2N)",
            autocompletion=complete.methods,
        ),
    ] = None,
    base: use.BaseFile = None,
    others: use.With = None,
    fail_if_worse: Annotated[
        str,
        use.of_output(metavar="METHOD", help="End with status 1 if it is below the baseline, by the paired interval."),
    ] = "",
    by: Annotated[float, use.of_output(min=0, metavar="X", help="With --fail-if-worse: by more than X points.")] = 0.0,
    tune: use.Tune = False,
    blind: use.Blind = False,
    preset: use.Preset = "",
    prior_alpha: use.PriorAlpha = None,
    published: Annotated[bool, use.of_output("--published/--no-published", help="Show published numbers.")] = True,
    over_data: Annotated[
        bool, use.of_output("--over-data", help="Add intervals for new images of these classes.")
    ] = False,
    over_classes: Annotated[bool, use.of_output("--over-classes", help="Add intervals for new classes.")] = False,
    timing: Annotated[bool, use.of_output("--timing", help="Add tasks per second and peak memory.")] = False,
    sort: use.Sort = False,
    budget: Annotated[
        float | None,
        use.of_run(
            parser=use.duration,
            metavar="TIME",
            help="Time for everything, such as 10m: as many tasks per method as fit into its share.",
        ),
    ] = None,
    output: use.TableFormat = None,
    as_json: use.AsJson = False,
    out: use.TableFile = None,
    save_predictions: use.SavePredictions = False,
    device: use.Device = "auto",
    batch: use.Batch = None,
    force: use.Force = False,
    features_dir: use.FeaturesRoot = Path("features"),
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Compare methods on the same tasks, with paired statistics.

    Shows accuracy with its interval, the paired difference to a baseline, and the published numbers that match data
    set, backbone and setting. The best of a column and all that is not significantly worse are marked. Intervals are
    those for more tasks from the same images, unless --over-data or --over-classes asks for more. Results are recorded
    in results/ and reused.

    Example: [bold]fsbench compare --methods all --out table.tex[/bold]
    """
    form = format_of(output or ("json" if as_json else None), out)
    spec = Spec.from_words(
        methods=methods, baseline=baseline, shots=shots, settings=settings, alpha=alpha, ways=ways, queries=queries,
        protocol=protocol, present=present, split=split, tasks=tasks, seed=seed, tune=tune, preset=preset,
        published=published, blind=blind, budget=budget,
        over_data=over_data, over_classes=over_classes, prior_alpha=prior_alpha, skip_infeasible=skip_infeasible,
    )  # fmt: skip
    if fail_if_worse and fail_if_worse not in (labels := [choice.label for choice in spec.methods]):
        raise UsageError("fail-if-worse", f"expected one of {', '.join(labels)}, got {fail_if_worse!r}")
    if by and not fail_if_worse:
        raise UsageError("by", "has a meaning with --fail-if-worse METHOD only")
    other = FeatureFile.open(base) if base else None
    images = ImagePlaces(data_dir, weights_dir)
    with open_runner(
        device, batch, results_dir, out=out, force=force, predictions=save_predictions, quiet=quiet, images=images
    ) as runner:
        files = find_features(features, features_dir, runner.reporter, runner.ranks, images)
        theirs = read_others(others or [], runner.reporter)
        table = compare_files(spec, files, runner, other, others=theirs)
        show_table(table.by_accuracy() if sort else table, form, out, runner, timing=timing)
    if fail_if_worse == table.baseline:
        raise UsageError(
            "fail-if-worse", f"{fail_if_worse} is the baseline itself", "Name another one with --baseline."
        )
    if fail_if_worse and (worse := table.below_baseline(fail_if_worse, by)):
        raise FsbenchError(f"{fail_if_worse} is below {table.baseline}: {'; '.join(worse)}.")


def ablate(
    features: use.FeaturesArgument = None,
    settings: use.Settings = "unbalanced",
    alpha: use.Alpha = None,
    shots: use.Shots = "1,5",
    ways: use.Ways = None,
    queries: use.Queries = 75,
    tasks: use.Tasks = 10_000,
    seed: use.Seed = 0,
    split: use.SplitName = "novel",
    protocol: use.ProtocolName = "disjoint",
    present: use.Present = None,
    skip_infeasible: use.SkipInfeasible = False,
    preset: use.Preset = "",
    prior_alpha: use.PriorAlpha = None,
    output: use.TableFormat = None,
    out: use.TableFile = None,
    device: use.Device = "auto",
    batch: use.Batch = None,
    force: use.Force = False,
    features_dir: use.FeaturesRoot = Path("features"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Show what each element of BAVARDAGE adds: the article's Table 2.

    Soft-KMEANS, + VB, + PLDA, for both variants, all on the same tasks.

    Example: [bold]fsbench ablate --tasks 1000[/bold]
    """
    form = format_of(output, out)
    protocols = parse_protocols(
        settings=settings, alpha=alpha, shots=shots, ways=ways, queries=queries, protocol=protocol, present=present
    )
    spec = Spec(
        methods=tuple(with_prior(ABLATION, prior_alpha)),
        protocols=protocols,
        baseline="soft-kmeans",
        split=split,
        tasks=tasks,
        seed=seed,
        preset=preset,
        skip_infeasible=skip_infeasible,
    )
    with open_runner(device, batch, results_dir, out=out, force=force, quiet=quiet) as runner:
        files = find_features(features, features_dir, runner.reporter, runner.ranks)
        show_table(compare_files(spec, files, runner), form, out, runner)
