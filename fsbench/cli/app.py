"""The command line: `fsbench COMMAND`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import fsbench
from fsbench.cli import compare, demo, doctor, export, extract, import_, scatter, solve, train
from fsbench.errors import FsbenchError

app = typer.Typer(
    name="fsbench",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fsbench {fsbench.__version__}")
        raise typer.Exit


@app.callback()
def fsbench_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Benchmark transductive few-shot classification: images → features → tasks → methods → honest tables."""


app.command()(extract.extract)
app.command()(scatter.scatter)
app.command()(solve.solve)
app.command()(compare.compare)
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(train.train)
app.command("import")(import_.import_)
app.command()(export.export)


def main() -> None:
    """Run a command; an FsbenchError is shown without a traceback, and the exit status is 1."""
    try:
        app()
    except FsbenchError as error:
        from rich.console import Console

        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("error:", style="bold red", end=" ")
        console.print(error.message, markup=False)
        if error.hint:
            console.print(error.hint, markup=False, style="dim")
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
