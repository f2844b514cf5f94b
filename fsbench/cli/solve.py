"""`fsbench solve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer  # noqa: TC002 - typer itself reads the annotation

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.cli.parse import parameters, setting_of
from fsbench.cli.session import find_features, open_runner
from fsbench.evaluation.compare import compare
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.spec import Spec, SpecWords
from fsbench.features.store import FeatureFile
from fsbench.io.files import write_text
from fsbench.report.tables import Signature, solved_table, stdout_console

if TYPE_CHECKING:
    from fsbench.results.comparison import Comparison


def solve(
    context: typer.Context,
    features: use.FeaturesArgument = None,
    method: Annotated[
        str,
        use.of_method(
            help="bavardage, bavardage:released, soft-kmeans, … or file.py:CLASS.", autocompletion=complete.methods
        ),
    ] = "bavardage",
    variant: use.Variant = None,
    unbalanced: use.Unbalanced = True,
    alpha: use.Alpha = None,
    shots: use.Shots = "1,5",
    ways: use.Ways = None,
    queries: use.Queries = 75,
    tasks: use.Tasks = 10_000,
    seed: use.Seed = 0,
    split: use.SplitName = "novel",
    protocol: use.ProtocolName = "disjoint",
    preset: use.Preset = "",
    tune: use.Tune = False,
    blind: use.Blind = False,
    others: use.SetOption = None,
    device: use.Device = "auto",
    force: use.Force = False,
    features_dir: use.FeaturesRoot = Path("features"),
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
    out: Annotated[Path | None, use.of_output(metavar="FILE", help="Also write the rows to this JSON file.")] = None,
    as_json: use.AsJson = False,
    save_predictions: use.SavePredictions = False,
    t_km: use.Temperature = None,
    tau: use.Precision = None,
    sigma: use.Clamp = None,
    t_vb: use.ArticlePrecision = None,
    s_max: use.ArticleClamp = None,
    beta: Annotated[float | None, use.for_experts(help="Prior precision β_o of BAVARDAGE. (default: 10)")] = None,
    prior_alpha: use.PriorAlpha = None,
    mixing: Annotated[
        str | None,
        use.for_experts(
            metavar="learned|uniform",
            help="Mixing weights of BAVARDAGE. (default: by setting)",
            autocompletion=complete.words("learned", "uniform"),
        ),
    ] = None,
    stage: Annotated[
        str | None,
        use.for_experts(
            metavar="plda|vb", help="Where BAVARDAGE ends. (default: plda)", autocompletion=complete.words("plda", "vb")
        ),
    ] = None,
    steps: use.Steps = None,
    present: use.Present = None,
    skip_infeasible: use.SkipInfeasible = False,
    base: use.BaseFile = None,
    batch: use.Batch = None,
) -> None:
    """Run one method, with Soft-KMEANS as the baseline.

    Every run is recorded task by task in results/ and reused. BAVARDAGE has scale-free parameters, τ = T_vb/n̄ and
    σ = s_max·√n̄ with n̄ images per base class; `--preset article` uses those of the article for its own data sets.

    Example: [bold]fsbench solve --unbalanced --alpha 2[/bold]
    """
    spec = spec_of(context.params)
    other = FeatureFile.open(base) if base else None
    images = ImagePlaces(data_dir, weights_dir)
    with open_runner(
        device, batch, results_dir, out=out, force=force, predictions=save_predictions, quiet=quiet, images=images
    ) as runner:
        files = find_features(features, features_dir, runner.reporter, runner.ranks, images)
        table = compare(spec, files, runner, other)
        if runner.ranks.leads:
            _show(table, out, as_json)


def spec_of(said: dict[str, Any]) -> Spec:
    """What the values of a command line ask for."""
    names = (
        "variant", "t_km", "t_vb", "s_max", "tau", "sigma", "beta", "prior_alpha", "mixing", "stage", "steps",
    )  # fmt: skip
    options = parameters(said["others"], **{name: said[name] for name in names})
    words: dict[str, Any] = {name: said[name] for name in SpecWords.__annotations__ if name in said}
    del words["prior_alpha"]
    return Spec.from_words(
        **words,
        methods=[said["method"]],
        options=options,
        settings=setting_of(said["unbalanced"]),
        published=False,
    )


def _show(table: Comparison, out: Path | None, as_json: bool) -> None:
    """Print the table with its signatures, or the rows as JSON."""
    text = json.dumps([row.as_dict() for row in table.paired_rows()], indent=1)
    if out:
        write_text(out, text + "\n")
    if as_json:
        print(text)
        return
    console = stdout_console()
    console.print(solved_table(table))
    for line in table.warnings():
        console.print(f"! {line}", style="yellow", soft_wrap=True)
    for row in table.paired_rows():
        console.print(Signature(row.record.signature), crop=False)
