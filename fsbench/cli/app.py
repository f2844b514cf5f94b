"""The command line: `fsbench COMMAND`."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import fsbench
from fsbench.cli.fast_completion import completing
from fsbench.errors import FsbenchError, UsageError, system_trouble
from fsbench.ranks import in_one_voice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_REASONS = {"SIGINT": "Interrupted", "SIGTERM": "Terminated (SIGTERM)", "SIGHUP": "The terminal was closed"}


class Interrupt(BaseException):
    """A signal that ends the program in order: what is half written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.status = 128 + number
        reason = _REASONS[signal.Signals(number).name]
        self.sentence = f"{reason}. Run the same command again to resume."


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

    def raise_again(ignored: sys.UnraisableHookArgs) -> None:
        """Send the signal once more, where Python ignores exceptions: collecting garbage, say, or in `__del__`."""
        if isinstance(ignored.exc_value, Interrupt):
            signal.signal(ignored.exc_value.number, handle)
            later = threading.Timer(0.01, os.kill, (process, ignored.exc_value.number))
            later.daemon = True
            later.start()
        else:
            previous_hook(ignored)

    known = [getattr(signal, name) for name in _REASONS if hasattr(signal, name)]
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: found for number in known if (found := signal.getsignal(number)) in usual}
    for number in before:
        signal.signal(number, handle)
    previous_hook, sys.unraisablehook = sys.unraisablehook, raise_again
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        for number, found in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, found)


@contextmanager
def interrupts_end() -> Iterator[None]:
    """Let signals that raise end the program at once within the block, where nothing is half done.

    While torch is imported: it may swallow an exception, or be left in parts that raise others.
    """

    def end(number: int, frame: FrameType | None) -> None:
        cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # hidden while the sign of life moves
        with contextlib.suppress(OSError):
            os.write(2, f"{cursor}error: {Interrupt(number).sentence}\n".encode())
        os._exit(Interrupt(number).status)

    known = [getattr(signal, name) for name in _REASONS if hasattr(signal, name)]
    unlike = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)
    raising = {number: found for number in known if (found := signal.getsignal(number)) not in unlike}
    for number in raising:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, found in raising.items():
            signal.signal(number, found)


MAIN, STUDIES, EXCHANGE, SETUP = "From images to a table", "Studies", "Exchange", "Setup"
COMMANDS = {  # each is loaded from the module of its name when it is called, as torch takes seconds to import
    "extract": (MAIN, "Run a backbone over image folders: one feature file per data set."),
    "scatter": (MAIN, "Compute mean and within-class scatter S_w of the base features."),
    "solve": (MAIN, "Run one method, with Soft-KMEANS as the baseline."),
    "compare": (MAIN, "Compare methods on the same tasks, with paired statistics."),
    "reproduce": (STUDIES, "Reproduce a table or figure of the article, next to its numbers."),
    "sweep": (STUDIES, "Show how accuracy depends on a parameter, as tables and a figure."),
    "tune": (STUDIES, "Tune parameters on the val classes, never on novel ones."),
    "plot": (STUDIES, "Plot results, features or a task as PNG, PDF or SVG."),
    "run": (STUDIES, "Run the commands of a TOML file, from images to the report."),
    "report": (STUDIES, "Write all records into one self-contained HTML page."),
    "verify": (EXCHANGE, "Solve tasks of stored records again, and compare."),
    "import": (EXCHANGE, "Make a feature file from features of another program."),
    "export": (EXCHANGE, "Write a feature file in a format that other programs read."),
    "doctor": (SETUP, "Check data, weights and environment."),
    "methods": (SETUP, "List methods, protocols, data sets or backbones."),
    "train": (SETUP, "Train a backbone on the base classes."),
    "demo": (SETUP, "Run the full pipeline on the built-in data set, in a minute."),
    "bench": (SETUP, "Measure speed on this CPU, as ratios within one run."),
}
_ALIASES = {"ablate": "Show what each element of BAVARDAGE adds: the article's Table 2."}  # works, but is not listed
_HOMES = {"ablate": "compare", "import": "exchange", "export": "exchange"}  # modules of other names
_METAVARS = {"int": "N", "float": "X", "Path": "PATH", "str": "NAME"}


class LazyGroup(TyperGroup):
    """Commands whose modules are imported when they are called; until then only their summaries are known."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (panel, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary, rich_help_panel=panel))
        for name, summary in _ALIASES.items():
            self.add_command(TyperCommand(name, help=summary, hidden=True))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, loaded."""
        if args and args[0] in {*COMMANDS, *_ALIASES}:
            with _sign_of_life(args), interrupts_end():
                self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, _with_seeds(args))

    def get_params(self, ctx: Any) -> Any:
        """The options of `fsbench` itself, none of which takes a value."""
        options = super().get_params(ctx)
        for option in options:
            option.metavar = ""
        return options


@contextmanager
def _sign_of_life(args: list[str]) -> Iterator[None]:
    """Show on a terminal that something happens while torch is imported."""
    if "_FSBENCH_COMPLETE" in os.environ or not sys.stderr.isatty() or {"-q", "--quiet"} & {*args}:
        yield
        return
    from fsbench.reporter import SafeConsole  # noqa: PLC0415 - takes as long as the help of fsbench

    with SafeConsole(stderr=True).status("Starting …"):
        yield


def _with_seeds(args: list[str]) -> list[str]:
    """The words of the command line, with a 0 after `--random-weights` where no seed follows."""
    bare = [
        a == "--random-weights" and not b.isdecimal() for a, b in itertools.zip_longest(args, args[1:], fillvalue="")
    ]
    return [word for arg, lacks in zip(args, bare, strict=True) for word in ([arg, "0"] if lacks else [arg])]


def load_command(name: str) -> Any:
    """Import the module of a command, and make the command of its function, or of its `app` if it has subcommands."""
    module = importlib.import_module(f"fsbench.cli.{_HOMES.get(name, name)}")
    if hasattr(module, "app"):
        return _in_plain_words(get_command(module.app))
    function = getattr(module, "import_" if name == "import" else name)
    single = typer.Typer(rich_markup_mode="rich", add_completion=False)
    single.command(name, help=help_of(function))(function)
    return _in_plain_words(get_command(single))


def _in_plain_words(command: Any) -> Any:
    """A command whose help has words in place of types, and `--help` in the last panel that other options are in."""
    for inner in getattr(command, "commands", {}).values():
        _in_plain_words(inner)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # its name says it
        elif parameter.metavar is None:
            kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", str)
            parameter.metavar = "" if parameter.is_flag else _METAVARS.get(getattr(kind, "__name__", ""), "VALUE")
    command.params.sort(key=lambda parameter: getattr(parameter, "rich_help_panel", "") == "Advanced")
    panels = [panel for one in command.params if (panel := getattr(one, "rich_help_panel", None))]
    make = command.get_help_option

    def help_option(context: Any) -> Any:
        option = make(context)
        option.metavar, option.rich_help_panel = "", "Run" if "Run" in panels else (panels or [None])[-1]
        option.hidden = not command.params  # no panel for `--help` alone
        return option

    command.get_help_option = help_option
    return command


def help_of(function: Callable[..., None]) -> str:
    """The docstring of a command with one line per paragraph, so that the terminal's width breaks lines."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fsbench {fsbench.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="fsbench",
    cls=LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def fsbench_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Benchmark transductive few-shot classification: images → features → tasks → methods → tables.

    Start with [bold]fsbench demo[/bold], which needs nothing, or with [bold]fsbench doctor[/bold].
    """


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
                with completing():
                    status = app(standalone_mode=False, prog_name="fsbench")
            finally:
                sys.stdout.flush()  # here, where a full disk behind it can still be named
        if isinstance(status, int):  # that of typer.Exit
            sys.exit(status)
    except UsageError as error:
        _fail(error.as_option(), 2)
    except FsbenchError as error:
        _fail(error)
    except Interrupt as interrupt:
        _fail(FsbenchError(interrupt.sentence), interrupt.status)
    except MemoryError:
        _fail(FsbenchError("There is not enough memory.", "Use a smaller --batch, fewer --tasks, or another machine."))
    except OSError as error:
        with contextlib.suppress(OSError):  # keep Python from trying once more, on its way out, to write the rest
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            _fail(system_trouble(f"Could not go on with {error.filename or 'the output'}", error))
        sys.exit(1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _fail(_misread(error), getattr(error, "exit_code", 2))


def _misread(error: Any) -> FsbenchError:
    """What typer could not make sense of, in the form of all other errors; none where it has shown the help."""
    message = "" if type(error).__name__ == "NoArgsIsHelpError" else error.format_message()
    context = getattr(error, "ctx", None)
    return FsbenchError(message, f"See {context.command_path} --help." if context and message else "")


def _fail(error: FsbenchError, status: int = 1) -> NoReturn:
    """Show an error and end; at once, if threads are in the midst of a long computation that nobody will read."""
    with in_one_voice() as speaks, contextlib.suppress(OSError):  # stderr may be on the full disk too
        if speaks:
            _show(error)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _show(error: FsbenchError) -> None:
    if not error.message:
        return
    from fsbench.reporter import SafeConsole  # noqa: PLC0415

    console = SafeConsole(stderr=True, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(error.message)
    if error.hint:
        console.print(error.hint, style="dim")
