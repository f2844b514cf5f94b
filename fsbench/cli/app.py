"""The command line: `fsbench COMMAND`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import fsbench
from fsbench.cli import (
    ablate,
    bench,
    compare,
    demo,
    doctor,
    export,
    extract,
    import_,
    plot,
    report,
    scatter,
    solve,
    sweep,
    train,
    tune,
)  # fmt: skip
from fsbench.cli.help import help_of
from fsbench.errors import FsbenchError
from fsbench.ranks import in_one_voice

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
    """Benchmark transductive few-shot classification: images → features → tasks → methods → honest tables.

    Begin with [bold]fsbench demo[/bold], which needs nothing, or with [bold]fsbench doctor[/bold].
    """


MAIN, STUDIES, EXCHANGE, UPKEEP = "From images to a table", "Studies", "Exchange of features", "Begin and keep up"
for panel, commands in (
    (MAIN, (extract.extract, scatter.scatter, solve.solve, compare.compare)),
    (STUDIES, (ablate.ablate, sweep.sweep, tune.tune, report.report)),
    (EXCHANGE, (import_.import_, export.export)),
    (UPKEEP, (demo.demo, doctor.doctor, train.train, bench.bench)),
):
    for command in commands:
        name = command.__name__.rstrip("_")
        app.command(name, help=help_of(command), rich_help_panel=panel)(command)
app.add_typer(plot.app, name="plot", rich_help_panel=STUDIES)


def _show(error: FsbenchError) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(error.message, markup=False)
    if error.hint:
        console.print(error.hint, markup=False, style="dim")


def main() -> None:
    """Run a command; an FsbenchError is shown without a traceback, and the exit status is 1."""
    try:
        app()
    except FsbenchError as error:
        with in_one_voice() as speaks:
            if speaks:
                _show(error)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
