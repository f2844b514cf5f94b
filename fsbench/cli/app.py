"""The command line: `fsbench COMMAND`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated, NoReturn

import typer

import fsbench
from fsbench.cli import (
    ablate,
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
from fsbench.cli.interrupts import Interrupt, interrupts_raise
from fsbench.errors import FsbenchError, system_trouble
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
app.add_typer(plot.app, name="plot")


def main() -> None:
    """Run a command. Whatever ends it is one sentence on stderr and an exit status, never a traceback."""
    try:
        with interrupts_raise():
            try:
                app()
            finally:
                sys.stdout.flush()  # here, where a full disk behind it can still be named
    except FsbenchError as error:
        _fail(error)
    except Interrupt as interrupt:
        _fail(FsbenchError(interrupt.sentence), interrupt.status)
    except MemoryError:
        _fail(FsbenchError("There is not enough memory.", "Use a smaller --batch, or a machine with more memory."))
    except OSError as error:
        _give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            _fail(system_trouble(f"Could not go on with {error.filename or 'the output'}", error))
        sys.exit(1)


def _fail(error: FsbenchError, status: int = 1) -> NoReturn:
    with in_one_voice() as speaks, contextlib.suppress(OSError):  # stderr may be on the full disk too
        if speaks:
            _show(error)
    sys.exit(status)


def _show(error: FsbenchError) -> None:
    from fsbench.report.console import SafeConsole

    console = SafeConsole(stderr=True, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(error.message)
    if error.hint:
        console.print(error.hint, style="dim")


def _give_up_stdout() -> None:
    """Keep Python from trying once more, on its way out, to write what could not be written."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
