"""`make reference`: the page `docs/reference.md`, written from the models of all options."""

import re
from pathlib import Path
from typing import Any

from fsbench.cli.app import _FIGURES, COMMANDS, help_of, options_of, typer_signature
from fsbench.options import described, spelling

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
HEAD = """# Reference

All commands with their arguments and options; `make reference` writes this page from their declarations. The Python
functions `fsbench.evaluate`, `fsbench.compare`, `fsbench.label` and `fsbench.extract` take the options of `solve`,
`compare`, `label` and `extract` as keyword arguments, without dashes: `help(fsbench.compare)` lists them.
"""


def reference() -> str:
    """The text of the page."""
    names = [name for name in COMMANDS if name != "plot"]
    names += [f"plot {figure}" for figure in _FIGURES]
    return "\n".join([HEAD, *(_section(name) for name in names)])


def _section(name: str) -> str:
    model = options_of(name.split()[-1])
    text = re.sub(r"Example: \[bold\](.*)\[/bold\]", r"Example: `\1`", _in_code(help_of(model)))
    lines = [f"## {name}", "", text, "", "| option | meaning |", "|---|---|"]
    for field_name in list(typer_signature(model).parameters)[1:]:  # in the order of `--help`
        field = model.model_fields[field_name]
        about: dict[str, Any] = field.json_schema_extra  # type: ignore[assignment]
        shown = about["metavar"] if about.get("argument") else about["flag"] or spelling(field_name, field)
        meaning = _in_code(described(field)).replace("(default: true)", f"(default: `{shown.partition('/')[0]}`)")
        lines.append(f"| `{shown}` | {meaning.replace('|', '&#124;')} |")
    return "\n".join([*lines, ""])


def _in_code(text: str) -> str:
    """Text with options as code, except in the examples and in what is code already."""
    lines = [
        line if "[bold]" in line else re.sub(r"(?<![\w`-])--[a-z][a-z-]*(?!`)\b", r"`\g<0>`", line)
        for line in text.split("\n")
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
