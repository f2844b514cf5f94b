"""`fsbench solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fsbench.cli.options import (
    AsJson,
    BaseFile,
    Device,
    FeaturesArgument,
    FeaturesRoot,
    Quiet,
    ResultsRoot,
    find_base,
    find_features,
    numbers,
)  # fmt: skip


def solve(
    features: FeaturesArgument = None,
    method: Annotated[str, typer.Option(help="bavardage, soft-kmeans, pt-map, … or file.py:CLASS.")] = "bavardage",
    variant: Annotated[str | None, typer.Option(help="Of BAVARDAGE: article or released.")] = None,
    unbalanced: Annotated[
        bool, typer.Option("--unbalanced/--balanced", help="Class proportions of the queries.")
    ] = True,
    alpha: Annotated[float | None, typer.Option(help="Dirichlet α of unbalanced queries.  [default: 2]")] = None,
    shots: Annotated[str, typer.Option(help="Labelled images per class, separated by commas.")] = "1,5",
    ways: Annotated[int, typer.Option(help="Classes per task.")] = 5,
    queries: Annotated[int, typer.Option(help="Unlabelled images per task.")] = 75,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of the task list.")] = 0,
    split: Annotated[str, typer.Option(help="novel, val or base.")] = "novel",
    protocol: Annotated[str, typer.Option(help="disjoint, released or veilleux.")] = "disjoint",
    device: Device = "auto",
    batch: Annotated[int | None, typer.Option(min=1, help="Tasks per block.  [default: chosen]")] = None,
    t_km: Annotated[float | None, typer.Option(help="Temperature of Soft-KMEANS.")] = None,
    t_vb: Annotated[float | None, typer.Option(help="Precision, in the article's units.")] = None,
    s_max: Annotated[float | None, typer.Option(help="Largest scaling, in the article's units.")] = None,
    tau: Annotated[str | None, typer.Option(help="Scale-free precision, or `learned`.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Scale-free largest scaling.")] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Choose T_km, τ and σ on the val classes.")] = False,
    beta: Annotated[float | None, typer.Option(help="β_o.  [default: 10]")] = None,
    prior_alpha: Annotated[float | None, typer.Option(help="α_o.  [default: that of --alpha]")] = None,
    mixing: Annotated[str | None, typer.Option(help="learned or uniform.  [default: by setting]")] = None,
    stage: Annotated[str | None, typer.Option(help="plda, or vb for the ablation.")] = None,
    steps: Annotated[int | None, typer.Option(help="Iterations of the method.  [default: its own]")] = None,
    others: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other parameter of the method.")
    ] = None,
    base: BaseFile = None,
    out: Annotated[Path | None, typer.Option(help="Also write the rows to this JSON file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what has a record.")] = False,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run one method over sampled tasks, with Soft-KMEANS on the same tasks beside it.

    Example: [bold]fsbench solve --unbalanced --alpha 2[/bold]
    """
    if alpha is not None and not unbalanced:
        raise typer.BadParameter("α has no meaning for balanced tasks", param_hint="--alpha")
    options = given(
        variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=precision(tau), sigma=sigma, beta=beta,
        prior_alpha=prior_alpha, mixing=mixing, stage=stage, steps=steps, **parsed(others or []),
    )  # fmt: skip

    from fsbench.devices import choose_device
    from fsbench.evaluate.run import Machine
    from fsbench.evaluate.solve import Request
    from fsbench.evaluate.solve import solve as solve_file
    from fsbench.report.progress import Reporter
    from fsbench.tasks.protocol import TaskProtocol

    level = (alpha or 2.0) if unbalanced else None
    protocols = [
        TaskProtocol(protocol, ways, shot, queries, level)  # type: ignore[arg-type]
        for shot in numbers(shots, "--shots")
    ]
    request = Request(method, options, split, tasks, seed, tune, results_dir, force, find_base(base))
    reporter, machine = Reporter(quiet), Machine(choose_device(device), batch)
    rows = []
    for file in find_features(features, features_dir, reporter):
        rows += solve_file(request, file, protocols, machine, reporter)
    show(rows, out, as_json, reporter)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def parsed(others: list[str]) -> dict[str, Any]:
    """`rate=0.1` as a parameter; values are numbers, true, false or words."""
    found: dict[str, Any] = {}
    for text in others:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="--set")
        found[name.replace("-", "_")] = _value(value)
    return found


def _value(text: str) -> Any:
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def precision(text: str | None) -> float | str | None:
    """τ as a number, or the word `learned`."""
    if text is None or text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number or `learned`, got {text!r}", param_hint="--tau") from None


def show(rows: list[Any], out: Path | None, as_json: bool, reporter: Any) -> None:
    """Print the table or the JSON list, then signatures and warnings."""
    import json

    from fsbench.files import write_text
    from fsbench.report.tables import solved_table, stdout_console

    text = json.dumps([solved.row() for solved in rows], indent=1)
    if out:
        write_text(out, text + "\n")
    if as_json:
        print(text)
    else:
        console = stdout_console()
        console.print(solved_table(rows))
        for solved in rows:
            console.print(solved.record.signature, style="dim", markup=False, soft_wrap=True)
    for solved in rows:
        if warning := solved.warning():
            reporter.warn(warning)
