"""`fsbench methods`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fsbench.backbones.families import FAMILIES
from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.data.catalog import SPLITS, dataset_info, dataset_names
from fsbench.errors import UsageError
from fsbench.evaluation.image_source import FEATURES
from fsbench.evaluation.spec import parse_methods
from fsbench.methods.base import Context, Parameters
from fsbench.methods.registry import learns, method_class, method_names, told
from fsbench.report.tables import number, plain_table, stdout_console
from fsbench.tasks.protocol import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fsbench.methods.base import Method

_SETTINGS = {
    f"{'balanced' if balanced else 'unbalanced'} {shots}-shot": Context(balanced=balanced, shots=shots, alpha=2.0)
    for balanced in (False, True)
    for shots in (1, 5)
}


_SPEED = {"fast": "fast", "slow": "slow", "network": "slowest"}  # by cost


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Method to describe: NAME, NAME:VARIANT or file.py:CLASS. (default: list all)",
            autocompletion=complete.methods,
        ),
    ] = None,
    protocols: Annotated[bool, use.of_output("--protocols", help="List the protocols.")] = False,
    datasets: Annotated[bool, use.of_output("--datasets", help="List the data sets of the catalog.")] = False,
    backbones: Annotated[bool, use.of_output("--backbones", help="List the families of backbones.")] = False,
    as_json: use.AsJson = False,
) -> None:
    """List methods, protocols, data sets or backbones.

    NAME describes one method: what it assumes, needs and is told, its parameters with defaults and tuning grid, and its
    source.

    Example: [bold]fsbench methods bavardage[/bold]
    """
    lists = {"protocols": protocols, "datasets": datasets, "backbones": backbones}
    asked = [word for word, wanted in lists.items() if wanted]
    if len(asked) + (name is not None) > 1:
        raise UsageError(asked[-1], "choose one: a method, --protocols, --datasets or --backbones")
    if name is not None:
        described = _described(name)
        _print(described, _page(described), as_json)
        return
    rows = _LISTS[asked[0]]() if asked else _methods()
    _print(rows, _table(asked[0] if asked else "methods", rows), as_json)


def _print(data: Any, shown: RenderableType, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        stdout_console().print(shown)


def _methods() -> list[dict[str, Any]]:
    rows = []
    for name in method_names():
        info = method_class(name).info
        rows.append(
            {
                "method": name,
                "assumes": _assumes(name),
                "images": "needed" if info.network else "",
                "base classes": "needed" if info.needs_base else "",
                "speed": _SPEED[info.cost],
                "variants": ", ".join(info.variants.values) if info.variants else "",
                "source": info.reference,
            }
        )
    return rows


def _assumes(name: str, options: dict[str, Any] | None = None) -> str:
    """What a method assumes with its defaults, in all settings."""
    method = method_class(name)
    found = [
        method.info.assumes(_configured(name, context, options or {}), None if context.balanced else context.alpha)
        for context in _SETTINGS.values()
    ]
    return " / ".join(dict.fromkeys(found)).replace(" prior / ", " / ")


def _configured(name: str, context: Context, options: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a method in a setting, without any features."""
    method: Any = method_class(name)
    own = issubclass(method, Parameters)
    made: Method = method(**{**method.defaults(context), **options}) if own else method.configure(context, **options)
    return made.params()


def _described(label: str) -> dict[str, Any]:
    """All that is known of a method."""
    (choice,) = parse_methods([label])
    info, options = method_class(choice.method).info, dict(choice.options)
    facts, learned = told(choice.method if ".py:" in choice.method else choice.label), learns(choice.method)
    blind = facts.pop("with --blind", "")
    return {
        "method": choice.label,
        "title": info.title,
        "source": info.reference,
        "link": info.url,
        "assumes": _assumes(choice.method, options),
        "works on": _works_on(choice.network),
        "needs base classes": "yes" if choice.needs_base else "no",
        "told": facts or {"beside the task": "nothing"},
        **({"with --blind": blind} if blind else {}),
        **({"learned": "on val tasks by fsbench tune, and used with --tune; else start values"} if learned else {}),
        "speed": _SPEED[info.cost],
        "variants": [*info.variants.values] if info.variants else [],
        "parameters": [
            {"name": name, "default": value, "tuning grid": "learned" if learned else [*info.grid.get(name, ())]}
            for name, value in _defaults(choice.method, options).items()
        ],
        "published as": [*info.published],
    }


def _works_on(network: str) -> str:
    """Features, or images with a network."""
    if not network:
        return "features"
    which = "the network that made the features" if network == FEATURES else f"the weights {network} of the data set"
    return f"images, with {which}"


def _defaults(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Parameters with their defaults; by setting where these differ."""
    found = {title: _configured(name, context, options) for title, context in _SETTINGS.items()}
    defaults: dict[str, Any] = {}
    for parameter in next(iter(found.values())):
        values = {title: params[parameter] for title, params in found.items()}
        alike = len({repr(value) for value in values.values()}) == 1
        defaults[parameter] = next(iter(values.values())) if alike else values
    return defaults


def _page(described: dict[str, Any]) -> RenderableType:
    """A method as a page: a line per fact, and its parameters as a table."""
    facts = {
        name: value for name, value in described.items() if name not in ("method", "title", "parameters") and value
    }
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {what}: {effect}" for what, effect in value.items())]
        else:
            lines.append(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    heading = "\n".join([f"{described['title']} ({described['method']})", *lines])
    if not described["parameters"]:
        return Text(f"{heading}\nIt has no parameters.")
    table = plain_table(f"{heading}\n\nParameters (fsbench solve --set NAME=VALUE)")
    table.add_column("name", no_wrap=True)
    for column in ("default", "tuning grid"):
        table.add_column(column, overflow="fold")
    for one in described["parameters"]:
        grid = one["tuning grid"]
        table.add_row(one["name"], _value(one["default"]), grid if grid == "learned" else ", ".join(map(number, grid)))
    return table


def _value(value: Any) -> str:
    """A default: `0.3`, or `50 unbalanced, 10 balanced`."""
    if not isinstance(value, dict):
        return number(value) if isinstance(value, float) else str(value)
    by_setting, by_shots = ({title.split()[place]: one for title, one in value.items()} for place in (0, 1))
    for short, place in ((by_setting, 0), (by_shots, 1)):
        if all(short[title.split()[place]] == one for title, one in value.items()):
            value = short
            break
    return ", ".join(f"{_value(one)} {title}" for title, one in value.items())


def _protocols() -> list[dict[str, Any]]:
    heads = ("support and queries", "images of a class", "a class is too small")
    return [{"protocol": name, **dict(zip(heads, rules, strict=True))} for name, rules in RULES.items()]


def _datasets() -> list[dict[str, Any]]:
    rows = []
    for name in dataset_names():
        info = dataset_info(name)
        counts = {split: f"{len(info.classes(split))} / {info.images(split):,}" for split in SPLITS}
        rows.append({"data set": name, "title": info.title, "classes of": info.split_title, **counts})
    return rows


def _backbones() -> list[dict[str, Any]]:
    return [
        {
            "family": family.name,
            "backbone": family.backbone,
            "title": family.title,
            "transform": family.transform,
            "published as": family.published,
        }
        for family in FAMILIES.values()
    ]


_LISTS = {"protocols": _protocols, "datasets": _datasets, "backbones": _backbones}
_HEADINGS = {
    "methods": "Methods; fsbench methods NAME describes one",
    "protocols": "Protocols, for --protocol",
    "datasets": "Data sets, for --dataset: classes / images of each split",
    "backbones": "Families of backbones, recognised by their checkpoints; --backbone timm/NAME takes any other",
}


def _table(what: str, rows: Sequence[dict[str, Any]]) -> RenderableType:
    table = plain_table(_HEADINGS[what])
    for place, name in enumerate(rows[0]):
        table.add_column(name, overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(re.sub(', ".*"', "", text) for text in row.values()))  # sources without titles
    return table
