"""`fsbench plot`: pictures, one sub-command each."""

from __future__ import annotations

import typer

from fsbench.cli import plot_records

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Draw pictures: PNG, PDF or SVG.")
app.command()(plot_records.bars)
app.command()(plot_records.differences)
