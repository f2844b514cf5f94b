"""From the words of the command line to values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fsbench.evaluation.axes import Axis
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
    from fsbench.evaluation.axes import Axis

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
