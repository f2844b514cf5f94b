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
    """Benchmark transductive few-shot classification: images → features → tasks → methods → honest tables."""


app.command()(extract.extract)
app.command()(scatter.scatter)
app.command()(solve.solve)
app.command()(compare.compare)
app.command()(ablate.ablate)
app.command()(sweep.sweep)
app.command()(tune.tune)
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(train.train)
app.command()(report.report)
app.command("import")(import_.import_)
app.command()(export.export)
app.command()(bench.bench)
app.add_typer(plot.app, name="plot")


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
