"""The command line: `fsbench COMMAND`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

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
)
from fsbench.cli.parse import help_of
from fsbench.errors import FsbenchError, system_trouble
from fsbench.ranks import in_one_voice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


_REASONS = {"SIGINT": "Interrupted", "SIGTERM": "Ended from outside (SIGTERM)", "SIGHUP": "The terminal was closed"}


class Interrupt(BaseException):
    """A signal that ends the program in order: what is half written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number
        reason = _REASONS[signal.Signals(number).name]
        self.sentence = f"{reason}. What is finished is kept: the same command goes on from there."


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Let signals raise an Interrupt within the block; those that the caller ignores, as nohup does, stay ignored."""
    process = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a worker, forked before it had handlers of its own
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends at once
        if hasattr(signal, "SIGCHLD"):  # torch raises when a worker dies: here they are meant to
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
        raise Interrupt(number)

    known = [getattr(signal, name) for name in _REASONS if hasattr(signal, name)]
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: found for number in known if (found := signal.getsignal(number)) in usual}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, found in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, found)


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


def _require_utf8() -> None:
    """Start again in Python's UTF-8 mode where it would take names of files and what it prints for ASCII.

    Python does so by itself in a C locale, unless PYTHONUTF8=0 forbids it.
    """
    if sys.getfilesystemencoding() == "ascii" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def main() -> None:
    """Run a command. Whatever ends it is one sentence on stderr and an exit status, never a traceback."""
    _require_utf8()
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
    from fsbench.reporter import SafeConsole

    console = SafeConsole(stderr=True, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(error.message)
    if error.hint:
        console.print(error.hint, style="dim")


def _give_up_stdout() -> None:
    """Keep Python from trying once more, on its way out, to write what could not be written."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
