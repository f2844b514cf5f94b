"""From the words of the command line to values; words that contradict each other are refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsbench.errors import UsageError
from fsbench.evaluation.spec import Axis

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import typer


def setting_of(unbalanced: bool) -> str:
    """The word for the class proportions of the queries."""
    return "unbalanced" if unbalanced else "balanced"


def value(text: str) -> Any:
    """A number, true, false, or the word itself."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def assignments(texts: Sequence[str] | None, option: str = "set") -> dict[str, str]:
    """`rate=0.1` as a name and a text; dashes of the name may stand for underscores."""
    named: dict[str, str] = {}
    for text in texts or []:
        name, sign, right = text.partition("=")
        if not sign or not name or not right:
            raise UsageError(option, f"expected NAME=VALUE, got {text!r}")
        name = name.strip().replace("-", "_")
        if name in named:
            raise UsageError(option, f"{name} is given twice: {named[name]} and {right}")
        named[name] = right
    return named


def parameters(texts: Sequence[str] | None, **named: Any) -> dict[str, Any]:
    """Parameters of a method from `--set NAME=VALUE`, and from options of their own, where those were given."""
    others = {name: value(text) for name, text in assignments(texts).items()}
    own = {name: option for name, option in named.items() if option is not None}
    for name in own.keys() & others.keys():
        raise UsageError("set", f"{name} is also given by --{name.replace('_', '-')}; choose one")
    return own | others


def axes(texts: Sequence[str] | None) -> list[Axis]:
    """`--over NAME=VALUE,VALUE` as axes."""
    named = assignments(texts, "over").items()
    return [Axis(name, tuple(value(part.strip()) for part in text.split(","))) for name, text in named]


def typed(context: typer.Context, names: Iterable[str]) -> list[str]:
    """Of the named arguments, the options that stand on the command line."""
    known = {option.name: option for option in context.command.params}
    options = []
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            spellings = known[name].opts if context.params[name] is not False else known[name].secondary_opts
            options.append(spellings[0])
    return options


def refuse_swept_and_given(context: typer.Context, swept: Sequence[str], unbalanced: bool) -> None:
    """Refuse a property of the tasks that is both given and swept, and α for balanced tasks."""
    for name in ("shots", "ways", "queries", "alpha"):
        if name in swept and (options := typed(context, [name])):
            raise UsageError("over", f"{name} is swept and also given by {options[0]}; choose one")
    if "alpha" in swept and not unbalanced:
        raise UsageError("over", "α has no meaning for balanced tasks; leave out --balanced")


def refuse_common(first: Iterable[str], first_option: str, second: Collection[str], second_option: str) -> None:
    """Refuse parameters that two options give."""
    for name in first:
        if name in second:
            raise UsageError(second_option, f"{name} is also given by {first_option}; choose one")
