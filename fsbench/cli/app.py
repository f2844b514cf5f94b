"""The command line: `fsbench COMMAND`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Annotated, NoReturn

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
from fsbench.cli.interrupts import Interrupt, interrupts_raise
from fsbench.errors import FsbenchError, system_trouble
from fsbench.ranks import in_one_voice

MAIN, STUDIES, EXCHANGE, UPKEEP = "From images to a table", "Studies", "Exchange of features", "Begin and keep up"
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    MAIN: (extract.extract, scatter.scatter, solve.solve, compare.compare),
    STUDIES: (ablate.ablate, sweep.sweep, tune.tune, report.report),
    EXCHANGE: (import_.import_, export.export),
    UPKEEP: (demo.demo, doctor.doctor, train.train, bench.bench),
}


def make_app(only: str | None = None) -> typer.Typer:
    """All commands; of those not named by `only` just the summaries, as reading their options takes time."""
    found = typer.Typer(
        name="fsbench",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    found.callback()(fsbench_command)
    for panel, commands in COMMANDS.items():
        for command in commands:
            name = command.__name__.rstrip("_")
            action = command if only in {None, name} else _summary
            found.command(name, help=help_of(command), rich_help_panel=panel)(action)
    if only in {None, "plot"}:
        found.add_typer(plot.app, name="plot", rich_help_panel=STUDIES)
    else:
        found.command("plot", help=plot.app.info.help, rich_help_panel=STUDIES)(_summary)
    return found


def _summary() -> None:
    """Stands for a command that is not called."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fsbench {fsbench.__version__}")
        raise typer.Exit


def fsbench_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Benchmark transductive few-shot classification: images → features → tasks → methods → honest tables.

    Begin with [bold]fsbench demo[/bold], which needs nothing, or with [bold]fsbench doctor[/bold].
    """


app = make_app()


def _app_for_this_call() -> typer.Typer:
    if "_FSBENCH_COMPLETE" in os.environ:  # set by a shell that completes a line
        return app
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    return make_app(words[0] if words else "")


def main() -> None:
    """Run a command. Whatever ends it is one sentence on stderr and an exit status, never a traceback."""
    try:
        with interrupts_raise():
            try:
                _app_for_this_call()()
            finally:
                sys.stdout.flush()  # here, where a full disk behind it can still be named
    except FsbenchError as error:
        _fail(error)
    except Interrupt as interrupt:
        _fail(FsbenchError(interrupt.sentence), interrupt.status)
    except MemoryError:
        _fail(FsbenchError("There is not enough memory.", "Use a smaller --batch, fewer --tasks, or another machine."))
    except OSError as error:
        _give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            _fail(system_trouble(f"Could not go on with {error.filename or 'the output'}", error))
        sys.exit(1)


def _fail(error: FsbenchError, status: int = 1) -> NoReturn:
    with in_one_voice() as speaks, contextlib.suppress(OSError):  # stderr may be on the full disk too
        if speaks:
            _show(error)
    _exit(status)


def _exit(status: int) -> NoReturn:
    """End; at once, if threads are in the midst of a long computation that nobody will read."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
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
