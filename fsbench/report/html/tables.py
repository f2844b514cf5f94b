"""The tables of the report, with everything that the page's script filters and sorts by."""

from __future__ import annotations

import hashlib
import re
from html import escape
from typing import TYPE_CHECKING

from fsbench.report.plots.comparison import clipped_axis
from fsbench.report.render import accuracy_text, difference_text, published_text
from fsbench.report.tables import plus_minus, signed
from fsbench.results.command import command_of
from fsbench.results.published import ONLY_PUBLISHED
from fsbench.results.statistics import LEVEL
from fsbench.results.warnings import OF_FEATURES
from fsbench.tasks.protocol import setting_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsbench.results.comparison import Cell, Column, Comparison, Entry, Group
    from fsbench.results.leaderboard import Leaderboard, Place, Row, Standing
    from fsbench.results.record import RunRecord

_MANY = 6  # columns beyond which a leaderboard is set smaller
_ORIGINS = {"default": "default", "preset": "article’s preset", "tuned": "tuned", "given": "set by hand"}


def anchor_of(record: RunRecord) -> str:
    """The identifier of a run's row, which numbers link to."""
    return "r-" + _short_digest(record.key.digest(), *record.source)


def method_anchor(method: str) -> str:
    """The identifier of what the page says of a method."""
    return "m-" + _short_digest(method)


def _short_digest(*words: str) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()[:12]


def signature_code(signature: str) -> str:
    """A signature to copy, which breaks between its fields."""
    fields = "".join(f"<span class='field'>{escape(part)}</span>" for part in re.findall(r"[^|]+\|?", signature))
    return f"<code class='copy'>{fields}</code>"


def leaderboard_table(comparison: Comparison, board: Leaderboard, heading: str) -> str:
    """Methods by feature files and settings, with average and mean rank; the script chooses what cells show."""
    heads = [("method", ""), ("average", " class='number'"), ("mean\nrank", " class='number'")]
    heads += [(_place_name(place), f" class='number'{filtered(place.group, place.column)}") for place in board.places]
    rows = [_leaderboard_row(comparison, row) for row in board.rows]
    caption = (
        "Accuracy in %, below it the difference to the baseline on the same tasks. ▲ best of its column. Methods that "
        "share a letter do not differ significantly (paired test, 5 %, Holm-corrected over all pairs of a feature "
        "file). Average and mean rank are over the columns shown, for methods that ran in all of them."
    )
    kind = "leaderboard many" if len(board.places) > _MANY else "leaderboard"
    return table(heads, rows, caption, kind, heading)


def _place_name(place: Place) -> str:
    return f"{place.group.dataset} {place.group.backbone}\n" + "\n".join(place.column.title.rsplit(" ", 1))


def filtered(group: Group | None = None, column: Column | None = None) -> str:
    """The attributes that filters look at."""
    found = {"backbone": group.backbone, "dataset": group.dataset} if group else {}
    if column:
        found |= {"setting": setting_of(column), "shots": str(column.shots)}
    return "".join(f" data-{name}='{escape(value)}'" for name, value in found.items())


def setting_of(column: Column) -> str:
    """The class proportions of a column, as a filter names them."""
    return setting_title(column.alpha, column.present, column.pooled)


def _leaderboard_row(comparison: Comparison, row: Row) -> str:
    records = [standing.cell.record for standing in row.standings if standing and standing.cell.record]
    badges = _badges(comparison, row.entry, records)
    cells = [
        f"<th scope='row'>{_named(row.entry)}<span class='badges'>{badges}</span></th>",
        number(row.average, "–" if row.average is None else f"{row.average:.2f}", "average"),
        number(row.mean_rank, "–" if row.mean_rank is None else f"{row.mean_rank:.1f}", "rank"),
        *map(_standing, row.standings),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _named(entry: Entry) -> str:
    label = escape(entry.label).replace(":", ":<wbr>")
    return f"<a href='#{method_anchor(entry.method)}'>{label}</a>"


def _badges(comparison: Comparison, entry: Entry, records: Sequence[RunRecord]) -> str:
    kind = ["transductive"] if entry.info and entry.info.transductive else []
    words = [*dict.fromkeys(map(_origin, records)), *(["baseline"] if entry.label == comparison.baseline else [])]
    before, after = ("".join(f"<small>{escape(word)}</small>" for word in part) for part in (kind, words))
    return f"{before}<small class='assumes'>{escape(entry.assumes)}</small>{after}"


def _origin(record: RunRecord) -> str:
    """Where parameters come from, in a word or two."""
    origin, _, given = record.params_from.partition(" + given:")
    word = _ORIGINS.get(origin.partition(":")[0], origin)
    return "set by hand" if given and given != "variant" and word == "default" else word


def _standing(standing: Standing | None) -> str:
    if standing is None or standing.cell.record is None:
        return number(None, "–")
    cell, record = standing.cell, standing.cell.record
    mark = f"<i>{'<b>▲</b>' if cell.best else ''}{standing.ties}</i>"
    accuracy = f"<b>{record.accuracy:.2f}</b>" if cell.best else f"{record.accuracy:.2f}"
    width = "" if record.ci95 is None else f" <small>± {record.ci95:.2f}</small>"
    accuracy = f"<a href='#{anchor_of(record)}'>{accuracy}</a>{width}"
    lines = [f"<span class='accuracy'>{accuracy}{mark}</span>"]
    if standing.to_best:
        lines.append(_change("best", minus(signed(standing.to_best)), standing.to_best.mean, not cell.tied))
    lines += [*_warned(cell), *_to_baseline(cell), *_to_published(cell, short=True)]
    return number(record.accuracy, "".join(lines))


def _warned(cell: Cell) -> list[str]:
    """A mark where a warning belongs to this method and setting; all are listed below the leaderboard."""
    texts = [warning.text for warning in cell.warnings if warning.code not in OF_FEATURES]
    return [f"<span class='warned' title='{escape('; '.join(texts))}'>warning</span>"] if texts else []


def _to_baseline(cell: Cell) -> list[str]:
    if not cell.difference:
        return []
    significant = cell.p_value is not None and cell.p_value < LEVEL
    return [_change("baseline", minus(difference_text(cell)), cell.difference.mean, significant)]


def _to_published(cell: Cell, *, short: bool = False) -> list[str]:
    if not cell.published:
        return []
    source = escape(cell.published.source)
    if not short or not cell.record:
        text = minus(published_text(cell, interval=True))
        return [f"<span class='published'>{text} <cite>{source}</cite></span>"]
    gap = cell.record.accuracy - cell.published.accuracy
    text = minus(f"{gap:+.2f} to {cell.published.accuracy:.2f}")
    return [_change("published", f"{text} <cite>{source}</cite>", gap, True)]


def _change(kind: str, text: str, value: float, significant: bool) -> str:
    """A difference in the colour of gains or losses; in none where it is not significant."""
    colour = ("gain" if value > 0 else "loss" if value < 0 else "") if significant else "faint"
    return f"<span class='{kind} {colour}'>{text}</span>"


def minus(text: str) -> str:
    """A text with minus signs that are as wide as a plus."""
    return text.replace("-", "−")


def dataset_table(comparison: Comparison, group: Group, board: Leaderboard, heading: str) -> str:
    """Methods by settings of one feature file: accuracy with its interval drawn, differences, published numbers."""
    columns = [place.column for place in board.places if place.group is group]
    heads = [("method", "")]
    heads += [
        ("\n".join(column.title.rsplit(" ", 1)), f" class='number'{filtered(None, column)}") for column in columns
    ]
    axis = clipped_axis([cell.record for cell in group.cells.values() if cell.record])
    entries = [row.entry for row in board.rows]
    entries += [entry for entry in comparison.entries if entry.label in ONLY_PUBLISHED]
    body = []
    for entry in entries:
        cells = [group.cells.get((entry.label, column)) for column in columns]
        if any(cells):
            baseline = "<small>baseline</small>" if entry.label == comparison.baseline else ""
            name = _named(entry) if entry.info else escape(entry.label)
            name += f"<span class='badges'><small>{escape(entry.assumes)}</small>{baseline}</span>"
            body.append(f"<tr><th scope='row'>{name}</th>{''.join(_cell(cell, axis) for cell in cells)}</tr>")
    caption = f"Accuracy in % ± 95 % interval over {comparison.tasks:,} tasks, drawn from {axis[0]:g} to {axis[1]:g} %"
    if any(cell.difference for cell in group.cells.values()):
        caption += f"; the difference to {comparison.baseline}, in brackets where it is not significant"
    if any(cell.published for cell in group.cells.values()):
        caption += "; the published number, in brackets ours minus published, and its source"
    return table(heads, body, f"{caption}. A number links to its run.", "accuracies", heading)


def _cell(cell: Cell | None, axis: tuple[float, float]) -> str:
    if cell is None:
        return number(None, "–")
    if cell.record is None:
        return number(None, "".join(_to_published(cell)))
    mark = "▲" if cell.best else "*" if cell.tied else ""
    text = accuracy_text(cell).removesuffix(" *")
    text = f"<a href='#{anchor_of(cell.record)}'>{f'<b>{text}</b>' if cell.best else text}</a>"
    lines = [f"<span class='accuracy'>{text}<i>{mark}</i></span>", _dot(cell.record, axis)]
    return number(cell.record.accuracy, "".join([*lines, *_warned(cell), *_to_baseline(cell), *_to_published(cell)]))


def _dot(record: RunRecord, axis: tuple[float, float]) -> str:
    """The mean and its interval on the axis that all cells of a table share; an arrow for what is outside it."""
    low, high = axis
    if record.accuracy < low:
        return "<span class='dot'><u>◂</u></span>"
    width = record.ci95 or 0.0
    ends = [max(record.accuracy - width, low), min(record.accuracy + width, high)]
    at, left, right = (100 * (value - low) / (high - low) for value in (record.accuracy, *ends))
    style = f"--at: {at:.2f}%; --left: {left:.2f}%; --width: {right - left:.2f}%"
    return f"<span class='dot' style='{style}'><s></s><em></em></span>"


def runs_table(comparisons: Sequence[Comparison], heading: str) -> str:
    """Every run once, with its command, parameters, speed and signature."""
    heads = ["features", "method", "setting", "tasks", "accuracy", "p (Holm)", "tasks/s", "memory", "parameters"]
    heads += ["from", "device", "made (UTC)", "command", "signature"]
    rows: dict[str, str] = {}
    for comparison in comparisons:
        for group in comparison.groups:
            for entry in comparison.entries:
                for column in comparison.columns:
                    cell = group.cells.get((entry.label, column))
                    if cell and cell.record:
                        rows.setdefault(anchor_of(cell.record), _run(group, entry, column, cell, cell.record))
    caption = "p-values are of the difference to the baseline, Holm-corrected over all of a feature file."
    return table([(head, "") for head in heads], [*rows.values()], caption, "runs", heading)


def _run(group: Group, entry: Entry, column: Column, cell: Cell, record: RunRecord) -> str:
    params = [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in record.key.params.items()
    ]
    cells = [
        f"<td>{escape(group.title)}</td><th scope='row'>{escape(entry.label)}</th><td>{escape(column.title)}</td>",
        number(record.key.tasks, f"{record.key.tasks:,}"),
        number(record.accuracy, plus_minus(record.accuracy, record.ci95)),
        number(
            cell.p_value, "–" if cell.p_value is None else f"{cell.p_value:.2g}" if cell.p_value else "below 1e-300"
        ),
        number(record.tasks_per_second, f"{record.tasks_per_second:,.0f}"),
        number(record.peak_memory, f"{record.peak_memory / 2**20:,.0f} MB"),
        *(f"<td>{escape(text)}</td>" for text in (", ".join(params) or "none", record.params_from, record.device)),
        f"<td class='date'>{escape(record.created.removesuffix('+00:00').replace('T', ' '))}</td>",
        f"<td class='wide'><code class='copy'>{escape(command_of(record))}</code></td>",
        f"<td class='wide'>{signature_code(record.signature)}</td>",
    ]
    return f"<tr id='{anchor_of(record)}'{filtered(group, column)}>{''.join(cells)}</tr>"


def environment_table(comparisons: Sequence[Comparison], heading: str) -> str:
    """Which versions and devices the runs were made with, and when."""
    made: dict[tuple[str, ...], list[str]] = {}
    for record in (record for comparison in comparisons for record in comparison.records):
        versions = [record.versions.get(name, "unknown") for name in ("fsbench", "torch", "python")]
        made.setdefault((*versions, record.device), []).append(record.created)
    rows = []
    for names, dates in sorted(made.items()):
        days = " to ".join(dict.fromkeys([min(dates)[:10], max(dates)[:10]]))
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*names, days))
        rows.append(f"<tr>{cells}{number(len(dates), f'{len(dates):,}')}</tr>")
    heads = [(head, "") for head in ("fsbench", "torch", "Python", "device", "made (UTC)", "runs")]
    return table(heads, rows, "What the runs were made with.", "environment", heading)


def number(value: float | None, text: str, kind: str = "") -> str:
    """A cell that sorts by its value; by none, at the end."""
    sorts_by = "" if value is None else f" data-value='{value}'"
    return f"<td class='{f'number {kind}'.strip()}'{sorts_by}>{text}</td>"


def table(heads: Iterable[tuple[str, str]], rows: Sequence[str], caption: str, kind: str, heading: str) -> str:
    """A table in a box of its own, which scrolls where the page is narrow; its name is the element `heading`.

    Heads are texts with the attributes of their cells.
    """
    head = "".join(f"<th scope='col'{more}>{escape(text)}</th>" for text, more in heads).replace("\n", "<br>")
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>" + "\n".join(rows) + "</tbody>"
    shown = f"<table class='{kind}'><caption><span>{escape(caption)}</span></caption>{body}</table>"
    return f"<div class='scroll' tabindex='0' role='region' aria-labelledby='{heading}'>{shown}</div>"
