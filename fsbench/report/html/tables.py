"""The tables of the page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from fsbench.report.render import accuracy_text, difference_text, published_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsbench.results.comparison import Cell, Comparison, Entry, Group
    from fsbench.results.record import RunRecord


def accuracy_table(comparison: Comparison, group: Group, heading: str) -> str:
    """Methods by settings of one feature file: accuracy, difference to the baseline, published number.

    Args:
        comparison: The whole.
        group: The rows.
        heading: Identifier of the heading that names the table.
    """
    heads = ["method", "assumes", *("\n".join(column.title.rsplit(" ", 1)) for column in comparison.columns)]
    body = []
    for entry in comparison.entries:
        cells = [group.cells.get((entry.label, column)) for column in comparison.columns]
        if any(cells):
            name = f"<th scope='row'>{_named(comparison, entry)}</th><td>{escape(entry.assumes)}</td>"
            body.append(f"<tr>{name}{''.join(map(_cell, cells))}</tr>")
    return _table(heads, body, _caption(comparison, group), "accuracies", heading)


def _named(comparison: Comparison, entry: Entry) -> str:
    remark = " <small>baseline</small>" if entry.label == comparison.baseline else ""
    return escape(entry.label).replace(":", ":<wbr>") + remark


def _caption(comparison: Comparison, group: Group) -> str:
    cells = group.cells.values()
    parts = [f"Accuracy in % ± 95 % interval over {comparison.tasks:,} tasks"]
    if any(cell.difference for cell in cells):
        parts.append(f"below it the difference to {comparison.baseline}, in brackets where it is not significant")
    if any(cell.published for cell in cells):
        parts.append("then the published number and, in brackets, ours minus published")
    return "; ".join(parts) + "."


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return _number(None, "–")
    accuracy, mark = accuracy_text(cell).removesuffix(" *"), "▲" if cell.best else "*" if cell.tied else ""
    text = f"<b>{accuracy}</b>" if cell.best else accuracy
    lines = [f"<span class='accuracy'>{text}<i>{mark}</i></span>"]
    if cell.difference:
        faint = " faint" if difference_text(cell).startswith("(") else ""
        lines.append(f"<span class='difference{faint}'>{_minus(difference_text(cell))}</span>")
    if cell.published:
        source = escape(cell.published.source)
        lines.append(f"<span class='published' title='{source}'>{_minus(published_text(cell, interval=True))}</span>")
    return _number(cell.record.accuracy if cell.record else None, "".join(lines))


def _minus(text: str) -> str:
    """A minus sign as wide as a plus."""
    return text.replace("-", "−")


_RUN_HEADS = (
    *("features", "method", "setting", "accuracy", "p (Holm)", "tasks/s", "memory", "parameters", "from"),
    *("device", "made (UTC)", "signature"),
)


def runs_table(comparison: Comparison, heading: str) -> str:
    """Every run with its parameters, speed and signature, folded away; the heading's identifier is given."""
    rows = [
        _run(group, entry, column.title, cell, cell.record)
        for group in comparison.groups
        for entry in comparison.entries
        for column in comparison.columns
        if (cell := group.cells.get((entry.label, column))) and cell.record
    ]
    caption = f"Every run; p-values are of the difference to {comparison.baseline}, Holm-corrected over the table."
    table = _table(_RUN_HEADS, rows, caption, "runs", heading)
    summary = f"<summary id='{heading}'>Parameters, speed and signatures of all runs ({len(rows):,})</summary>"
    return f"<details>{summary}{table}</details>"


def _run(group: Group, entry: Entry, setting: str, cell: Cell, record: RunRecord) -> str:
    params = ", ".join(f"{name} {_plain(value)}" for name, value in record.key.params.items()) or "none"
    return "".join(
        [
            f"<tr><td>{escape(group.title)}</td><th scope='row'>{escape(entry.label)}</th><td>{escape(setting)}</td>",
            _number(record.accuracy, f"{record.accuracy:.2f}"),
            _number(cell.p_value, "–" if cell.p_value is None else f"{cell.p_value:.2g}"),
            _number(record.tasks_per_second, f"{record.tasks_per_second:,.0f}"),
            _number(record.peak_memory, f"{record.peak_memory / 2**20:,.0f} MB"),
            *(f"<td>{escape(text)}</td>" for text in (params, record.params_from, record.device)),
            f"<td class='date'>{escape(record.created.removesuffix('+00:00').replace('T', ' '))}</td>",
            f"<td><code class='copy'>{escape(record.signature)}</code></td></tr>",
        ]
    )


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _number(value: float | None, text: str) -> str:
    sorts_by = "" if value is None else f" data-value='{value}'"
    return f"<td class='number'{sorts_by}>{text}</td>"


def environment_table(comparisons: Sequence[Comparison], heading: str) -> str:
    """Which versions and devices the runs were made with, and when; the heading's identifier is given."""
    made: dict[tuple[str, ...], list[str]] = {}
    for record in (record for comparison in comparisons for record in comparison.records):
        versions = [record.versions.get(name, "unknown") for name in ("fsbench", "torch", "python")]
        made.setdefault((*versions, record.device), []).append(record.created)
    rows = []
    for names, dates in sorted(made.items()):
        days = dict.fromkeys([min(dates)[:10], max(dates)[:10]])
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*names, " to ".join(days)))
        rows.append(f"<tr>{cells}{_number(len(dates), f'{len(dates):,}')}</tr>")
    heads = ("fsbench", "torch", "Python", "device", "made (UTC)", "runs")
    return _table(heads, rows, "What the runs were made with.", "environment", heading)


def _table(heads: Iterable[str], rows: Sequence[str], caption: str, kind: str, heading: str) -> str:
    """A table in a box of its own, which scrolls where the page is narrow."""
    names = [escape(text).replace("\n", "<br>") for text in heads]
    head = "".join(f"<th scope='col'>{name}</th>" for name in names)
    body = "\n".join(rows)
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-labelledby='{heading}'>"
        f"<table class='{kind}'><caption><span>{escape(caption)}</span></caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
