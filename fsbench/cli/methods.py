"""`fsbench methods`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fsbench.backbones.families import FAMILIES
from fsbench.cli.options import Methods
from fsbench.data.catalog import SPLITS, dataset_info, dataset_names
from fsbench.errors import UsageError
from fsbench.evaluation.spec import ALL, parse_methods
from fsbench.methods.base import Context
from fsbench.methods.images.loader import FEATURES
from fsbench.methods.registry import method_class, told, working_methods
from fsbench.report.table import Column, Table, cells, number
from fsbench.report.writers import show, stdout_console
from fsbench.tasks.protocol import RULES

_SETTINGS = {
    f"{'balanced' if balanced else 'unbalanced'} {shots}-shot": Context(balanced=balanced, shots=shots, alpha=2.0)
    for balanced in (False, True)
    for shots in (1, 5)
}


_SPEED = {"fast": "fast", "slow": "slow", "network": "slowest"}  # by cost


def methods(options: Methods) -> None:
    """Print a list of what can be chosen, or a page on one method."""
    lists = [name for name in _LISTS if getattr(options, name, False)]
    name = None if options.name == ALL else options.name
    if len(lists) + (name is not None) > 1:
        raise UsageError(lists[-1], "choose one: a method, --protocols, --datasets or --backbones")
    if name is not None:
        described = _described(name)
        _print(described, _page(described), options.as_json)
        return
    what = (lists or ["methods"])[0]
    rows = _LISTS[what]()
    _print(rows, _table(what, rows), options.as_json)


def _print(data: Any, shown: Table | str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(data, indent=1, ensure_ascii=False))
    elif isinstance(shown, str):
        stdout_console().print(shown)
    else:
        show(shown)


def _methods() -> list[dict[str, Any]]:
    rows = []
    for name in working_methods():
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
    priors = [
        method.info.assumes(_configured(name, context, options or {}), None if context.balanced else context.alpha)
        for context in _SETTINGS.values()
    ]
    return " / ".join(dict.fromkeys(priors)).replace(" prior / ", " / ")


def _configured(name: str, context: Context, options: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a method in a setting, without any features."""
    return method_class(name).configure(context, **options).params()


def _described(label: str) -> dict[str, Any]:
    """The facts of a method."""
    (choice,) = parse_methods([label])
    method, options = method_class(choice.method), dict(choice.options)
    info, learned = method.info, method.learns()
    facts = told(choice.method if ".py:" in choice.method else choice.label)
    return {
        "method": choice.label,
        "title": info.title,
        "source": info.reference,
        "link": info.url,
        "assumes": _assumes(choice.method, options),
        "works on": _works_on(choice.network),
        "needs base classes": "yes" if choice.needs_base else "no",
        "told": facts or {"beside the task": "nothing"},
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
    by_setting = {title: _configured(name, context, options) for title, context in _SETTINGS.items()}
    defaults: dict[str, Any] = {}
    for parameter in next(iter(by_setting.values())):
        values = {title: params[parameter] for title, params in by_setting.items()}
        alike = len({repr(value) for value in values.values()}) == 1
        defaults[parameter] = next(iter(values.values())) if alike else values
    return defaults


def _page(described: dict[str, Any]) -> Table | str:
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
        return f"{heading}\nIt has no parameters."
    rows = []
    for one in described["parameters"]:
        grid = one["tuning grid"]
        shown = grid if grid == "learned" else ", ".join(map(number, grid))
        rows.append(cells(one["name"], _value(one["default"]), shown))
    columns = [Column("name", whole=True), Column("default"), Column("tuning grid")]
    return Table(f"{heading}\n\nParameters (fsbench solve --set NAME=VALUE)", columns, rows)


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


_LISTS = {"methods": _methods, "protocols": _protocols, "datasets": _datasets, "backbones": _backbones}
_HEADINGS = {
    "methods": "Methods; fsbench methods NAME describes one",
    "protocols": "Protocols, for --protocol",
    "datasets": "Data sets, for --dataset: classes / images of each split",
    "backbones": "Families of backbones, recognised by their checkpoints; --backbone timm/NAME takes any other",
}


def _table(what: str, rows: Sequence[dict[str, Any]]) -> Table:
    columns = [Column(name, whole=place == 0) for place, name in enumerate(rows[0])]
    shown = [cells(*(re.sub(', ".*"', "", text) for text in row.values())) for row in rows]  # sources without titles
    return Table(_HEADINGS[what], columns, shown)
