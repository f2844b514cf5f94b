"""The command line: `fsbench COMMAND`. A command is a model of its options and a function, imported when it runs."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import fsbench
from fsbench.errors import FsbenchError, UsageError, system_trouble

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from fsbench.options import Options

_REASONS = {"SIGINT": "Interrupted", "SIGTERM": "Terminated (SIGTERM)", "SIGHUP": "The terminal was closed"}


class Interrupt(BaseException):
    """A signal that ends the program in order: what is half written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number
        self.sentence = f"{_REASONS[signal.Signals(number).name]}. Run the same command again to resume."


_received: list[Interrupt] = []  # for libraries that turn an interrupt into an error of their own
_importing: list[str] = []  # modules that import torch or pydantic, which may swallow an exception


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Let signals raise an Interrupt within the block; those that the caller ignores, as nohup does, stay ignored.

    A second signal ends the program at once, and so does the first while torch is imported.
    """
    process = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        _received.append(Interrupt(number))
        if _importing:
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # hidden while the sign of life moves
            with suppress(OSError):
                os.write(2, f"{cursor}error: {_received[-1].sentence}\n".encode())
        if _importing or os.getpid() != process:  # a worker, forked before it had handlers of its own
            os._exit(_received[-1].status)
        signal.signal(number, signal.SIG_DFL)
        if hasattr(signal, "SIGCHLD"):  # torch raises when a worker dies: here they are meant to
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
        raise _received[-1]

    numbers = [getattr(signal, name) for name in _REASONS if hasattr(signal, name)]
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)


MAIN, STUDIES, EXCHANGE, SETUP = "From images to a table", "Studies", "Exchange", "Setup"
COMMANDS = {  # summaries, so that `fsbench --help` loads no options
    "extract": (MAIN, "Run a backbone over image folders: one feature file per data set."),
    "scatter": (MAIN, "Compute mean and within-class scatter S_w of the base features."),
    "solve": (MAIN, "Run one method, with Soft-KMEANS as the baseline."),
    "compare": (MAIN, "Compare methods on the same tasks, with paired statistics."),
    "label": (MAIN, "Label images, given a few labelled ones of each class."),
    "reproduce": (STUDIES, "Reproduce a table or figure of the article, next to its numbers."),
    "sweep": (STUDIES, "Show how accuracy depends on a parameter, as tables and a figure."),
    "tune": (STUDIES, "Tune parameters on the val classes, never on novel ones."),
    "plot": (STUDIES, "Plot results or features as PNG, PDF or SVG."),
    "report": (STUDIES, "Write all records into one self-contained HTML page."),
    "verify": (EXCHANGE, "Solve tasks of stored records again, and compare."),
    "import": (EXCHANGE, "Make a feature file from features of another program."),
    "tasks": (EXCHANGE, "Write a list of tasks for models that fsbench does not run."),
    "score": (EXCHANGE, "Make a record of predictions for a list of tasks."),
    "doctor": (SETUP, "Check data, weights and environment."),
    "methods": (SETUP, "List methods or protocols."),
    "train": (SETUP, "Train a backbone on the base classes."),
    "demo": (SETUP, "Run the full pipeline on the built-in data set, in a minute."),
}
_FIGURES = ("dots", "confusion", "calibration", "spectrum")
_MODULES = {  # of other names than their functions
    "solve": "compare", "scatter": "extract", "report": "plot",
    **dict.fromkeys(("import", "tasks", "score"), "exchange"),
    **dict.fromkeys(("sweep", "tune", "reproduce"), "studies"),
}  # fmt: skip
_SHARED = ("solve", "compare", "extract", "label")  # whose options Python functions share


class LazyGroup(TyperGroup):
    """Commands whose options are loaded when they are called; until then only their summaries are known."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (panel, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, loaded."""
        if args and args[0] in COMMANDS:
            command = self.commands[args[0]] = load_command(args[0])
            known = {flag for option in command.params for flag in option.opts}
            for one, other in (("--method", "--methods"), ("--methods", "--method")):
                if other in known and one not in known:  # either spelling will do
                    args = [re.sub(f"^{one}(?==|$)", other, word) for word in args]
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """The options of `fsbench` itself, none of which takes a value."""
        options = super().get_params(ctx)
        for option in options:
            option.metavar = ""
        return options


def load_command(name: str) -> Any:
    """A command made from the model of its options; `plot` is a group of them."""
    app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=name == "plot")
    if name != "plot":
        _add(app, name, _MODULES.get(name, name))
    else:
        app.info.help = COMMANDS["plot"][1]
        for figure in _FIGURES:
            _add(app, figure, "plot")
    return _in_plain_words(get_command(app))


def options_of(name: str) -> type[Options]:
    """The model of a command or figure."""
    module = importlib.import_module("fsbench.evaluation.options" if name in _SHARED else "fsbench.cli.options")
    return getattr(module, name.capitalize())  # type: ignore[no-any-return]


def _add(app: typer.Typer, name: str, module: str) -> None:
    """Add a command that imports its function when it runs, as torch takes seconds to import."""
    model = options_of(name)

    def run(context: typer.Context, **values: Any) -> None:
        sources = {one: context.get_parameter_source(one) for one in values}
        options = model(**{one: value for one, value in values.items() if sources[one].name != "DEFAULT"})  # type: ignore[union-attr]
        from fsbench.reporter import SafeConsole  # noqa: PLC0415 - takes as long as the help of fsbench

        _importing.append(module)
        with SafeConsole(stderr=True, quiet=bool(values.get("quiet"))).status("Starting …"):  # torch takes seconds
            function = getattr(importlib.import_module(f"fsbench.cli.{module}"), name + "_" * (name == "import"))
        _importing.clear()
        function(options)

    run.__signature__ = typer_signature(model)  # type: ignore[attr-defined]
    app.command(name, help=help_of(model))(run)


def typer_signature(model: type[Options]) -> inspect.Signature:
    """The parameters of a command with the options of a model. Values are texts: the model reads and checks them."""
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

    def place(item: tuple[str, FieldInfo]) -> tuple[int, bool]:
        about: Any = item[1].json_schema_extra
        return -1 if about.get("argument") else _PANELS.index(about["panel"]), item[0] not in model.__annotations__

    shown = sorted(model.model_fields.items(), key=place)
    return inspect.Signature([context, *(_typer_parameter(name, field) for name, field in shown)])


_PANELS = ("", "Method", "Tasks", "Run", "Output", "Advanced")
_METAVARS = {int: "N", float: "X", Path: "PATH", str: "NAME"}


def _typer_parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    from fsbench.options import kinds, spelling, text_of  # noqa: PLC0415 - imports pydantic

    about: Any = field.json_schema_extra
    types = [*kinds(field.annotation)]
    several = get_origin(types[0]) in (list, dict)
    kind: Any = bool if types[0] is bool else list[str] if several else str
    default = field.default
    if field.is_required():
        default = inspect.Parameter.empty
    elif several or default in (None, ""):
        kind, default = kind | None, None
    elif kind is str:
        default = text_of(default)
    literals = [one for one in types if isinstance(one, str)]
    metavar = about.get("metavar") or "|".join([*(_METAVARS[one] for one in types if one in _METAVARS), *literals])
    info: dict[str, Any] = {"help": field.description, "metavar": "" if kind is bool else metavar or "NAME"}
    if words := about.get("completion") or literals:
        info["autocompletion"] = (
            complete_methods if words == "methods" else lambda incomplete: _in_a_list(words, incomplete)
        )
    if about.get("argument"):
        annotation: Any = Annotated[kind, typer.Argument(**info)]
    else:
        info |= {"rich_help_panel": about["panel"] or None, "envvar": about["envvar"] or None}
        flag = about["flag"] or spelling(name, field)
        names = flag.split("/") if "/-" in flag and "/--" not in flag else [flag]
        annotation = Annotated[kind, typer.Option(*names, **info)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def complete_methods(incomplete: str) -> list[str]:
    """Methods, one or several with commas between them; their variants once there is a colon."""
    from fsbench.methods.registry import installed_info, method_names  # noqa: PLC0415

    name, colon, _ = incomplete.rpartition(",")[2].partition(":")
    info = installed_info(name) if colon else None
    if info and info.variants:
        return _in_a_list([f"{name}:{word}" for word in info.variants.values], incomplete)
    return _in_a_list([*method_names(), "all"], incomplete)


def _in_a_list(names: Iterable[str], incomplete: str) -> list[str]:
    """Names that continue the last part of a list; those before the last comma are not offered again."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [before + comma + name for name in names if name.startswith(last) and name not in taken]


def _in_plain_words(command: Any) -> Any:
    """A command whose arguments show no types, with `--help` in the panel of the options of a run."""
    for inner in getattr(command, "commands", {}).values():
        _in_plain_words(inner)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # its name says it
    make = command.get_help_option

    def help_option(context: Any) -> Any:
        option = make(context)
        option.metavar, option.rich_help_panel = "", "Run"
        return option

    command.get_help_option = help_option
    return command


def help_of(model: type[Options]) -> str:
    """The docstring of a model with one line per paragraph, so that the terminal's width breaks lines."""
    paragraphs = (inspect.getdoc(model) or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def _version(wanted: bool) -> None:
    if wanted:
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


def _prepare_streams() -> None:
    """Make printing safe: a closed stream is /dev/null, and characters that a stream cannot show are replaced."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Run a command. Whatever ends it is one sentence on stderr and an exit status, never a traceback."""
    _prepare_streams()
    try:
        with interrupts_raise():
            _importing.append("options")  # until a command runs there is nothing to put in order
            try:
                status = app(standalone_mode=False, prog_name="fsbench")
            finally:
                _importing.clear()
                sys.stdout.flush()  # here, where a full disk behind it can still be named
        if isinstance(status, int):  # that of typer.Exit
            sys.exit(status)
    except UsageError as error:
        _fail(FsbenchError(f"--{error.argument.replace('_', '-')}: {error.complaint}.", error.hint), 2)
    except FsbenchError as error:
        _fail(error)
    except Interrupt as interrupt:
        _fail(FsbenchError(interrupt.sentence), interrupt.status)
    except MemoryError:
        _fail(FsbenchError("There is not enough memory.", "Use a smaller --batch, fewer --tasks, or another machine."))
    except OSError as error:
        with suppress(OSError):  # keep Python from trying once more, on its way out, to write the rest
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            _fail(system_trouble(f"Could not go on with {error.filename or 'the output'}", error))
        sys.exit(1)
    except Exception as error:
        if not hasattr(error, "format_message") and not _received:
            raise
        _fail(*_misread(error))


def _misread(error: Any) -> tuple[FsbenchError, int]:
    """What typer could not make sense of, in the form of all other errors, and the status; or the signal behind it."""
    if _received:
        return FsbenchError(_received[-1].sentence), _received[-1].status
    message = "" if type(error).__name__ == "NoArgsIsHelpError" else error.format_message()
    context = getattr(error, "ctx", None)
    hint = f"See {context.command_path} --help." if context and message else ""
    return FsbenchError(message, hint), getattr(error, "exit_code", 2)


def _fail(error: FsbenchError, status: int = 1) -> NoReturn:
    """Show an error and end; at once, if threads are in the midst of a long computation that nobody will read."""
    from fsbench.ranks import first_to_report  # noqa: PLC0415 - for `fsbench --help`, which has no use for it

    with first_to_report() as first, suppress(OSError):  # stderr may be on the full disk too
        if first:
            _show(error)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        with suppress(OSError):
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
