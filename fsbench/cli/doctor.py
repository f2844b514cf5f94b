"""The command ``doctor``: what is here, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli.options import AsJson, DataRoot, FeaturesRoot, WeightsRoot


def doctor(
    data_dir: DataRoot = Path("data"),
    weights_dir: WeightsRoot = Path("weights"),
    features_dir: FeaturesRoot = Path("features"),
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read everything: pictures that occur twice, damaged feature files.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is here, and what is wrong with it.

    Data sets against the benchmark, split by split; weights, features, libraries and devices.

    Example: [bold]fsbench doctor --data-dir /mnt/data[/bold]
    """
    import json

    from rich.console import Console

    from fsbench.data.doctor import diagnose

    with Console(stderr=True).status("Looking at data sets, trying out libraries and devices …"):
        report = diagnose(data_dir, weights_dir, features_dir)
    if deep:
        from fsbench.data.deep import look_deeper
        from fsbench.report.progress import Reporter

        report = look_deeper(report, data_dir, features_dir, Reporter())
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
        return

    from fsbench.cli.doctor_tables import show

    show(report)
