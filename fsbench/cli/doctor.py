"""The command ``doctor``: what is here, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    data: Annotated[Path, typer.Option(envvar="FSBENCH_DATA", help="Folder with the data sets.")] = Path(
        "data"
    ),
    weights: Annotated[Path, typer.Option(envvar="FSBENCH_WEIGHTS", help="Folder with weights.")] = Path(
        "weights"
    ),
    features: Annotated[
        Path, typer.Option(envvar="FSBENCH_FEATURES", help="Folder with feature files.")
    ] = Path("features"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Say what is here: data sets, weights, features, libraries and devices."""
    import json

    from rich.console import Console

    from fsbench.data.doctor import diagnose

    with Console(stderr=True).status("Looking at data sets, trying out libraries and devices …"):
        report = diagnose(data, weights, features)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
        return

    from fsbench.cli.doctor_tables import show

    show(report)
