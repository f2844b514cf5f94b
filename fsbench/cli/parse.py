"""From the words of the command line to values."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fsbench.evaluation.spec import Axis, MethodChoice
    from fsbench.tasks.protocol import TaskProtocol


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def numbers(text: str, option: str) -> list[int]:
    """`1,5` as whole numbers, each once."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"expected whole numbers separated by commas, got {text!r}", param_hint=option
        ) from None
    return list(dict.fromkeys(values))


def value(text: str) -> Any:
    """A number, true, false, or the word itself."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def assignments(texts: list[str] | None, option: str = "--set") -> dict[str, str]:
    """`rate=0.1` as a name and a text; dashes of the name may stand for underscores."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, sign, right = text.partition("=")
        if not sign or not name or not right:
            raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint=option)
        name = name.strip().replace("-", "_")
        if name in found:
            raise typer.BadParameter(f"{name} is given twice: {found[name]} and {right}", param_hint=option)
        found[name] = right
    return found


def parameters(texts: list[str] | None) -> dict[str, Any]:
    """`--set NAME=VALUE` as parameters of a method."""
    return {name: value(text) for name, text in assignments(texts).items()}


def axes(texts: list[str] | None) -> list[Axis]:
    """`--over NAME=VALUE,VALUE` as axes."""
    from fsbench.evaluation.spec import Axis

    return [
        Axis(name, tuple(value(part.strip()) for part in text.split(",")))
        for name, text in assignments(texts, "--over").items()
    ]


def precision(text: str | None) -> float | str | None:
    """τ as a number, or the word `learned`."""
    if text is None or text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number or `learned`, got {text!r}", param_hint="--tau") from None


def level_of(unbalanced: bool, alpha: float | None) -> float | None:
    """The Dirichlet α of the queries; None for balanced ones, which have none."""
    if alpha is not None and not unbalanced:
        raise typer.BadParameter("α has no meaning for balanced tasks", param_hint="--alpha")
    return (2.0 if alpha is None else alpha) if unbalanced else None


def protocols(
    name: str, ways: int, shots: str, queries: int, unbalanced: bool, alpha: float | None
) -> list[TaskProtocol]:
    """One protocol per number of shots."""
    from fsbench.tasks.protocol import TaskProtocol

    level = level_of(unbalanced, alpha)
    return [
        TaskProtocol(name, ways, shot, queries, level)  # type: ignore[arg-type]
        for shot in numbers(shots, "--shots")
    ]


def typed(context: typer.Context, names: Iterable[str]) -> list[str]:
    """The options, of those that fill the named arguments, that stand on the command line."""
    known = {option.name: option for option in context.command.params}
    found = []
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = known[name]
            spellings = option.opts if context.params[name] is not False else option.secondary_opts
            found.append(spellings[0])
    return found


def refuse_beside(context: typer.Context, option: str, names: Iterable[str], reason: str) -> None:
    """Refuse options that would have no effect beside another one."""
    if idle := typed(context, names):
        raise typer.BadParameter(f"{reason}: leave out {', '.join(idle)}", param_hint=option)


def refuse_swept_and_given(context: typer.Context, axes: Sequence[Axis], unbalanced: bool) -> None:
    """Refuse a number of the tasks that is both given and swept, and α for balanced tasks."""
    swept = {axis.name for axis in axes}
    for name in ("shots", "ways", "queries", "alpha"):
        if name in swept and (given := typed(context, [name])):
            raise typer.BadParameter(f"{name} is swept, and also given by {given[0]}: choose one", param_hint="--over")
    if "alpha" in swept and not unbalanced:
        raise typer.BadParameter("α has no meaning for balanced tasks: leave out --balanced", param_hint="--over")


def refuse_common(first: Iterable[str], first_option: str, second: Iterable[str], second_option: str) -> None:
    """Refuse parameters that two options give."""
    others = set(second)
    for name in first:
        if name in others:
            raise typer.BadParameter(f"{name} is also given by {first_option}: choose one", param_hint=second_option)


def together(named: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters from options of their own and from `--set`, which must not be the same ones."""
    for name in named:
        refuse_common([name], f"--{name.replace('_', '-')}", others, "--set")
    return {**named, **others}


def refuse_doubles(words: Sequence[str], option: str) -> None:
    """Refuse a word that a list has twice."""
    for word in words:
        if words.count(word) > 1:
            raise typer.BadParameter(f"{word} is given twice", param_hint=option)


def refuse_same_methods(contestants: Sequence[MethodChoice], baseline: str | None = None) -> None:
    """Refuse methods that differ by name alone, as `bavardage` and `bavardage:article` do."""
    from fsbench.methods.registry import plain_label

    seen: dict[str, str] = {}
    for label in dict.fromkeys([*(contestant.label for contestant in contestants), *([baseline] if baseline else [])]):
        other = seen.setdefault(plain_label(label), label)
        if other != label:
            raise typer.BadParameter(f"{other} and {label} are the same method: name it once", param_hint="--methods")


def help_of(command: Callable[..., None]) -> str:
    """The docstring of a command with one line per paragraph, so that the terminal's width breaks lines."""
    paragraphs = inspect.getdoc(command) or ""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs.split("\n\n"))
