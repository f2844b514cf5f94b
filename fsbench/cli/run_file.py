"""Run files: TOML tables that each mean one command line.

The keys of a table are the arguments and options of its command, as the command itself states them.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from fsbench.cli.app import load_command
from fsbench.errors import FsbenchError, UsageError, missing_file, system_trouble, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STEPS = ("import", "extract", "scatter", "tune", "solve", "compare", "reproduce", "sweep", "plot", "report")

_Scalar = str | int | float
_Text = _Scalar | list[_Scalar]  # lists become words separated by commas
_KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int | float, "a whole number"),
    float: (float, "a number"),
    str: (_Text, "a text, a number, or a list of them"),
    Path: (str, "a path"),
}
_PATHS = (str | list[str], "a path or a list of paths")
_ASSIGNMENTS = (str | list[str] | dict[str, _Text], "a table such as { tau = [0.1, 0.3] }")


@dataclass(frozen=True)
class Key:
    """A key of a table, and the argument or option that it stands for.

    Attributes:
        name: As run files spell it.
        parameter: Of the command.
        option: What a command line has for it; empty for arguments, which have no name there.
        opposite: The option for `false`, if there is one.
    """

    name: str
    parameter: Any
    option: str = ""
    opposite: str = ""

    @property
    def kind(self) -> tuple[Any, str]:
        """The type of its value, and the words for it."""
        stated = getattr(self.parameter.type_descriptor, "annotation", str)
        if self.parameter.multiple:
            return _ASSIGNMENTS
        return _PATHS if self.parameter.nargs == -1 else _KINDS.get(stated, _KINDS[str])

    def words(self, value: Any) -> list[str]:
        """The words of a command line that give it this value."""
        if isinstance(value, bool):
            return [word for word in [self.option if value else self.opposite] if word]
        if isinstance(value, dict):
            values = [f"{name}={_joined(one)}" for name, one in value.items()]
        elif self.parameter.multiple or self.parameter.nargs == -1:
            values = value if isinstance(value, list) else [value]
        else:
            values = [_joined(value)]
        return [word for one in values for word in ([self.option, one] if self.option else [one])]


def _joined(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def keys_of(command: Any) -> dict[str, Key]:
    """The keys that a table for a command can have, arguments first, then options in the order of its help."""
    found = []
    for one in sorted(command.params, key=lambda parameter: parameter.param_type_name != "argument"):
        if one.param_type_name == "argument":
            found.append(Key(one.name, one))
            continue
        option, opposite = one.opts[0], (one.secondary_opts or [""])[0]
        found.append(Key(_spelled(option), one, option, opposite))
        if opposite and not opposite.startswith("--no-"):
            found.append(Key(_spelled(opposite), one, opposite, option))
    return {key.name: key for key in found}


def _spelled(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


@cache
def _schema(title: str) -> type[BaseModel]:
    """What a table for a command must look like."""
    fields: dict[str, Any] = {
        f"key_{number}": (key.kind[0], Field(default=None, alias=key.name))
        for number, key in enumerate(keys_of(_command(title)).values())
    }
    return create_model(title, __config__=ConfigDict(extra="forbid", strict=True), **fields)


@cache
def _command(title: str) -> Any:
    name, _, below = title.partition(" ")
    command = load_command(name)
    return command.commands[below] if below else command


@dataclass(frozen=True)
class Step:
    """One command of a study.

    Attributes:
        title: The command: `compare`, `plot dots`.
        words: What follows it on the command line.
    """

    title: str
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command line that it means."""
        return shlex.join(["fsbench", *self.title.split(), *self.words])

    def context(self) -> Any:
        """The values that the command would get; what it cannot make sense of is an error."""
        try:
            return _command(self.title).make_context(f"fsbench {self.title}", [*self.words])
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            raise FsbenchError(
                f"[{self.title}]: {error.format_message()}", f"See fsbench {self.title} --help."
            ) from None

    def run(self, quiet: bool = False) -> Any:
        """Run the command in this process. Gives its exit status, if it has one."""
        words = [*self.words, "--quiet"] if quiet else [*self.words]
        with self.named_in_errors():
            return _command(self.title).main(words, f"fsbench {self.title}", standalone_mode=False)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Let errors within the block name the step."""
        try:
            yield
        except FsbenchError as error:
            shown = error.as_option() if isinstance(error, UsageError) else error
            raise FsbenchError(f"[{self.title}]: {shown.message}", shown.hint) from error


def read_study(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a run file, and its tables."""
    if not path.exists():
        raise missing_file(path, "Write one: fsbench run --example > study.toml")
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise system_trouble(f"Could not read {path}", error) from error
    except (ValueError, RecursionError) as error:  # of UTF-8 or of TOML
        raise FsbenchError(f"{path} is not a TOML file: {error}.", "See fsbench run --example.") from error


def override(study: dict[str, Any], texts: Sequence[str]) -> None:
    """Set values by `compare.tasks=300`; a table that stands several times is numbered from 1: `sweep.2.tasks=100`."""
    for text in texts:
        place, sign, right = text.partition("=")
        *parts, last = place.strip().replace("-", "_").split(".")
        if not sign or not parts or not right:
            raise UsageError("set", f"expected STEP.KEY=VALUE, got {text!r}")
        tables: list[Any] = [study]
        for part in parts:
            tables = [inner for table in tables for inner in _below(table, part)]
        for table in (one for found in tables for one in (found if isinstance(found, list) else [found])):
            table[last] = _value(right)


def _below(table: Any, part: str) -> list[Any]:
    """The tables of a name, or the one of a number."""
    if isinstance(table, list):
        if part.isdecimal() and 0 < int(part) <= len(table):
            return [table[int(part) - 1]]
        return [inner for one in table for inner in _below(one, part)]
    if not isinstance(table.get(part), dict | list):
        raise unknown_name(
            "table in --set", part, [name for name, one in table.items() if isinstance(one, dict | list)]
        )
    return [table[part]]


def _value(text: str) -> Any:
    """A value as TOML spells it, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def steps_of(study: Mapping[str, Any], path: Path) -> list[Step]:
    """The steps of a study in the order of `STEPS`; every table is checked before the first step runs."""
    for name in study:
        if name not in STEPS:
            raise unknown_name(f"step in {path}", name, STEPS)
    steps = [step for name in STEPS if name in study for step in _steps(name, study[name], path)]
    if not steps:
        raise FsbenchError(f"{path} has no steps.", "See fsbench run --example.")
    for step in steps:
        step.context()
    return steps


def _steps(title: str, tables: Any, path: Path) -> Iterator[Step]:
    """The steps of one name: a table, or several of them; for a command with subcommands, tables within a table."""
    inner = getattr(_command(title), "commands", None)
    for table in tables if isinstance(tables, list) else [tables]:
        if not isinstance(table, dict):
            raise FsbenchError(f"{path}: {title} is not a table.", f"Write [{title.replace(' ', '.')}] above its keys.")
        if inner is None:
            yield _step(title, table, path)
            continue
        for name, below in table.items():
            if name not in inner:
                raise unknown_name(f"{title} in {path}", name, [one for one in inner if not inner[one].hidden])
            yield from _steps(f"{title} {name}", below, path)


def _step(title: str, table: Mapping[str, Any], path: Path) -> Step:
    keys, where = keys_of(_command(title)), f"[{title.replace(' ', '.')}] of {path}"
    spelled = {name.replace("-", "_"): value for name, value in table.items()}
    try:
        checked = _schema(title).model_validate(spelled)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        if name not in keys:
            raise unknown_name(f"key in {where}", name, keys) from None
        expected = f"Give {keys[name].kind[1]}."
        raise FsbenchError(f"{where}: {name} cannot be {_toml(spelled[name])}.", expected) from None
    given = checked.model_dump(by_alias=True, exclude_unset=True)
    arguments = [key for key in keys.values() if not key.option]
    last = max((place for place, key in enumerate(arguments) if key.name in given), default=-1)
    words: list[str] = []
    for place, key in enumerate(arguments[: last + 1]):
        if key.name in given or key.parameter.default is not None:  # an argument before others cannot be left out
            words += key.words(given.get(key.name, key.parameter.default))
        elif place < last:
            raise FsbenchError(f"{where}: {arguments[last].name} needs {key.name} too.", f"Add {key.name}.")
    for name, value in given.items():
        words += keys[name].words(value) if keys[name].option else []
    return Step(title, tuple(words))


def text_of(study: Mapping[str, Any]) -> str:
    """A run file with these tables."""
    return "\n".join(_tables(study, ""))


def _tables(tables: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, found in tables.items():
        several, place = isinstance(found, list), f"{above}{_name(name)}"
        for table in found if several else [found]:
            if not above and name == "plot":
                yield from _tables(table, "plot.")
                continue
            head = f"[[{place}]]" if several else f"[{place}]"
            yield "\n".join([head, *(f"{_name(key)} = {_toml(value)}" for key, value in table.items()), ""])


def _name(key: str) -> str:
    return key if key.replace("-", "_").isidentifier() and key.isascii() else json.dumps(key)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_name(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
