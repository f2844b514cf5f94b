"""`fsbench plot PICTURE`."""

from __future__ import annotations

import typer

from fsbench.cli import plot_features, plot_records

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Draw a picture: PNG, PDF or SVG, by the ending of --out.",
)
app.command()(plot_records.bars)
app.command()(plot_records.differences)
app.command()(plot_records.curves)
app.command()(plot_features.simplex)
app.command()(plot_features.task)
app.command()(plot_features.spectrum)
