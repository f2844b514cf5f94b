"""`fsbench plot PICTURE`."""

from __future__ import annotations

import typer

from fsbench.cli import plot_features, plot_records
from fsbench.cli.help import help_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Draw a picture: PNG, PDF or SVG, by the ending of --out.",
)
for panel, pictures in (
    ("From records", (plot_records.bars, plot_records.differences, plot_records.curves)),
    ("From features", (plot_features.simplex, plot_features.task, plot_features.spectrum)),
):
    for picture in pictures:
        app.command(picture.__name__, help=help_of(picture), rich_help_panel=panel)(picture)
