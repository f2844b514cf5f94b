"""A table of the article with our numbers beside its own: for the terminal, Markdown, LaTeX, HTML and JSON."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from fsbench.errors import FsbenchError
from fsbench.report.render import as_text, latex, markdown
from fsbench.report.tables import plain_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import RenderableType

    from fsbench.results.reproduction import Cell, Reproduction

_MEANING = "Cells: ours/published, and ours minus published before rounding."
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .7rem;text-align:right;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}thead{border-bottom:1px solid}"
)


def cell_text(cell: Cell) -> str:
    """`75.2/74.1 +1.1`, with a dash for what is not known."""
    ours = f"{cell.ours.accuracy:.1f}" if cell.ours else "–"
    published = "–" if cell.published is None else f"{cell.published + 1e-9:.1f}"  # 71.35 is 71.4, as in the article
    if ours == published == "–":
        return "–"
    return f"{ours}/{published}" + (f" {cell.gap:+.1f}" if cell.gap is not None else "")


def _blocks(table: Reproduction) -> list[tuple[str, list[list[str]]]]:
    """Data sets with their rows as texts."""
    return [
        (dataset, [[row.method, row.backbone, *map(cell_text, row.cells)] for row in rows])
        for dataset, rows in table.blocks
    ]


def _heads(table: Reproduction, dataset: str) -> list[str]:
    return [dataset, "network", *(column.title for column in table.columns)]


def render_rich(table: Reproduction) -> RenderableType:
    """For the terminal."""
    parts: list[RenderableType] = []
    for dataset, rows in _blocks(table):
        shown = plain_table(f"{table.caption}: {dataset}")
        shown.add_column("method", no_wrap=True)
        shown.add_column("network", no_wrap=True)
        for column in table.columns:
            shown.add_column(column.title.replace(" ", "\n", 1), justify="right", no_wrap=True)
        for row in rows:
            shown.add_row(*row)
        parts.append(shown)
    return Group(*parts, *(Text(line, style="dim") for line in (_MEANING, *table.notes)))


def render_markdown(table: Reproduction) -> str:
    """GitHub's Markdown."""
    lines = [f"**{markdown(table.caption)}**", ""]
    for dataset, rows in _blocks(table):
        lines.append("| " + " | ".join(map(markdown, _heads(table, dataset))) + " |")
        lines.append("|---|---|" + "--:|" * len(table.columns))
        lines += ["| " + " | ".join(map(markdown, row)) + " |" for row in rows]
        lines.append("")
    return "\n".join([*lines, _MEANING, "", *(f"- {markdown(note)}" for note in table.notes)]) + "\n"


def render_latex(table: Reproduction) -> str:
    """One `tabular` with a block per data set, for `booktabs`."""
    lines = ["% needs \\usepackage{booktabs}", f"% {latex(table.caption)}. {_MEANING}"]
    lines.append("\\begin{tabular}{ll" + "r" * len(table.columns) + "}")
    for dataset, rows in _blocks(table):
        heads = _heads(table, dataset)
        lines += ["\\toprule", f"\\textbf{{{latex(heads[0])}}} & " + " & ".join(map(latex, heads[1:])) + " \\\\"]
        lines += ["\\midrule", *(" & ".join(map(latex, row)) + " \\\\" for row in rows), "\\bottomrule"]
    lines += ["\\end{tabular}", *(f"% {latex(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def render_html(table: Reproduction) -> str:
    """A page of its own."""
    parts = [f"<h1>{escape(table.caption)}</h1>"]
    for dataset, rows in _blocks(table):
        heads = "".join(f"<th>{escape(head)}</th>" for head in _heads(table, dataset))
        body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    parts.append(f"<p>{_MEANING}</p><ul>{notes}</ul>")
    head = f'<meta charset="utf-8"><title>{escape(table.caption)}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def render_json(table: Reproduction) -> str:
    """A list of cells: ours, the published number, and ours minus published; null for what is not known."""
    cells = [
        {
            "dataset": dataset, "backbone": row.backbone, "method": row.method,
            "setting": "balanced" if column.balanced else "unbalanced", "alpha": column.alpha, "shots": column.shots,
            "ours": cell.ours.accuracy if cell.ours else None, "ci95": cell.ours.ci95 if cell.ours else None,
            "published": cell.published, "gap": cell.gap, "signature": cell.ours.signature if cell.ours else None,
        }
        for dataset, rows in table.blocks
        for row in rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    ]  # fmt: skip
    return json.dumps({"table": table.caption, "cells": cells, "notes": table.notes}, indent=1) + "\n"


_FORMATS: dict[str, Callable[[Reproduction], str]] = {
    ".tex": render_latex, ".md": render_markdown, ".html": render_html, ".json": render_json,
    ".txt": lambda table: as_text(render_rich(table)),
}  # fmt: skip


def writer_for(out: Path) -> Callable[[Reproduction], str]:
    """The function that makes the text of a file, by its ending."""
    if out.suffix.lower() not in _FORMATS:
        raise FsbenchError(f"A table cannot be written as {out.name}.", f"Endings: {', '.join(_FORMATS)}.")
    return _FORMATS[out.suffix.lower()]
