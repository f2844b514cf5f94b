"""`fsbench bench`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fsbench.bench import CASES
from fsbench.cli import options as use
from fsbench.errors import FsbenchError, unknown_name
from fsbench.io.files import write_text
from fsbench.report.plots.studies import draw_growth
from fsbench.report.plots.style import check_ending, save
from fsbench.report.tables import measures_table, stdout_console
from fsbench.reporter import Reporter


def bench(
    cases: Annotated[
        str, typer.Option(help="solver, growth, methods, scatter, extract, train, start, memory, or all.")
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to check that it works.")] = False,
    out: Annotated[Path | None, use.of_output(help="Also write the rows to this JSON file.")] = None,
    figure: Annotated[Path | None, use.of_output(help="Draw the growth of cost to this PNG, PDF or SVG file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Fail where a bound is missed by more than noise.")] = False,
    as_json: use.AsJson = False,
    quiet: use.Quiet = False,
) -> None:
    """Measure speed on this CPU, as ratios within one run.

    Takes some minutes. Close other programs first.

    Example: [bold]fsbench bench --cases solver,scatter --out bench.json[/bold]
    """
    names = list(CASES) if cases == "all" else cases.split(",")
    for name in names:
        if name not in CASES:
            raise unknown_name("case", name, CASES)
    if figure:
        check_ending(figure)
        names = list(dict.fromkeys([*names, "growth"]))
    measures = []
    with Reporter(quiet).bar("measuring", len(names)) as advance:
        for name in names:
            measures += CASES[name](quick)
            advance(1)
    text = json.dumps([asdict(measure) for measure in measures], indent=1, ensure_ascii=False)
    if out:
        write_text(out, text + "\n")
    if figure:
        save(draw_growth(measures), figure)
    if as_json:
        print(text)
    else:
        stdout_console().print(measures_table(measures))
    if check and (missed := [measure.case for measure in measures if measure.missed]):
        raise FsbenchError(
            f"Slower than allowed: {', '.join(missed)}.",
            "Measure again on a quiet machine, or find what is slow.",
        )
