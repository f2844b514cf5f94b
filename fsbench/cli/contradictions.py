"""Wishes that exclude each other are refused, so that none is ignored in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsbench.evaluation.axes import Axis
    from fsbench.evaluation.compare import Contestant


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


def refuse_same_methods(contestants: Sequence[Contestant], baseline: str | None = None) -> None:
    """Refuse methods that differ by name alone, as `bavardage` and `bavardage:article` do."""
    from fsbench.methods import plain_label

    seen: dict[str, str] = {}
    for label in dict.fromkeys([*(contestant.label for contestant in contestants), *([baseline] if baseline else [])]):
        other = seen.setdefault(plain_label(label), label)
        if other != label:
            raise typer.BadParameter(f"{other} and {label} are the same method: name it once", param_hint="--methods")
