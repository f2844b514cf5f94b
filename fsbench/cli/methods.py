"""`fsbench methods`."""

from __future__ import annotations

import json
import re
from typing import Any

from fsbench.cli.options import Methods
from fsbench.errors import UsageError
from fsbench.evaluation.spec import MethodChoice, parse_methods
from fsbench.methods.base import Context, Learnable, Method
from fsbench.methods.images.loader import FEATURES
from fsbench.methods.registry import method_class, working_methods
from fsbench.report.writers import Column, Table, cells, number, show, stdout_console
from fsbench.tasks.protocol import ALL, PRESETS

_SETTINGS = {
    f"{'balanced' if balanced else 'unbalanced'} {shots}-shot": Context(balanced=balanced, shots=shots, alpha=2.0)
    for balanced in (False, True)
    for shots in (1, 5)
}
_SPEED = {"fast": "fast", "slow": "slow", "network": "slowest"}  # by cost


def methods(options: Methods) -> None:
    """Print a list of what can be chosen, or a page on one method."""
    name = None if options.name == ALL else options.name
    if name and options.protocols:
        raise UsageError("protocols", "choose one: a method, or the list of protocols")
    facts: Any = _describe(name) if name else _protocols() if options.protocols else _methods()
    if options.as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
    elif name:
        _show_page(facts)
    else:
        title = "Protocols, for --protocol" if options.protocols else "Methods; fsbench methods NAME describes one"
        columns = [Column(name, whole=place == 0) for place, name in enumerate(facts[0])]
        rows = [cells(*(re.sub(', ".*"', "", text) for text in row.values())) for row in facts]  # no titles of papers
        show(Table(title, columns, rows))


def _describe(label: str) -> dict[str, Any]:
    """The facts of a method."""
    (choice,) = parse_methods([label])
    info, learned = choice.info, issubclass(method_class(choice.method), Learnable)
    which = (
        "network that made the features" if choice.network == FEATURES else f"weights {choice.network} of the data set"
    )
    configured = _configured(choice)
    return {
        "method": choice.label,
        "title": info.title,
        "source": info.reference,
        "link": info.url,
        "assumes": _assumes(choice),
        "works on": f"images, with the {which}" if choice.network else "features",
        "needs base classes": "yes" if info.needs_base_for(choice.options) else "no",
        **({"learned": "on val tasks by fsbench tune, and used with --tune; else start values"} if learned else {}),
        "speed": _SPEED[info.cost],
        "variants": [*info.variants.values] if info.variants else [],
        "parameters": [
            {
                "name": name,
                "default": {title: method.values()[name] for title, method in configured.items()},
                "tuning grid": "learned" if learned else [*info.grid.get(name, ())],
            }
            for name in next(iter(configured.values())).values()
        ],
        "published as": [*info.published],
    }


def _configured(choice: MethodChoice) -> dict[str, Method]:
    """The method with its defaults in every setting."""
    method = method_class(choice.method)
    return {title: method.configure(context, **choice.options) for title, context in _SETTINGS.items()}


def _assumes(choice: MethodChoice) -> str:
    """What a method assumes with its defaults, in all settings."""
    alphas = (None if context.balanced else context.alpha for context in _SETTINGS.values())
    pairs = zip(_configured(choice).values(), alphas, strict=True)
    priors = [choice.info.assumes(method.params(), alpha) for method, alpha in pairs]
    return " / ".join(dict.fromkeys(priors)).replace(" prior / ", " / ")


def _show_page(described: dict[str, Any]) -> None:
    """Print a line per fact, and the parameters as a table."""
    lines = [f"{described['title']} ({described['method']})"]
    for name, value in described.items():
        if value and name not in {"method", "title", "parameters"}:
            lines.append(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    stdout_console().print("\n".join([*lines, ""]), markup=False)
    columns = [Column(title.replace(" ", "\n"), whole=True) for title in ("name", *_SETTINGS)]
    rows = []
    for one in described["parameters"]:
        grid = one["tuning grid"]
        defaults = (number(value) if isinstance(value, float) else str(value) for value in one["default"].values())
        rows.append(cells(one["name"], *defaults, grid if grid == "learned" else ", ".join(map(number, grid))))
    if rows:
        show(Table("Parameters (fsbench solve --set NAME=VALUE)", [*columns, Column("tuning grid")], rows))


def _methods() -> list[dict[str, Any]]:
    return [
        {
            "method": choice.label,
            "assumes": _assumes(choice),
            "images": "needed" if choice.info.network else "",
            "base classes": "needed" if choice.info.needs_base else "",
            "text": choice.info.text,
            "speed": _SPEED[choice.info.cost],
            "variants": ", ".join(choice.info.variants.values) if choice.info.variants else "",
            "source": choice.info.reference,
        }
        for choice in parse_methods(working_methods())
    ]


def _protocols() -> list[dict[str, Any]]:
    return [
        {
            "protocol": name,
            "tasks": one.summary,
            "classes": str(one.ways),
            "queries": str(one.queries),
            "number": f"{one.tasks:,}",
            "source": one.reference,
        }
        for name, one in PRESETS.items()
    ]
