"""A comparison as a table, in the formats people need: terminal, Markdown, LaTeX, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Group as RichGroup
from rich.text import Text

from fsbench.errors import unknown_name
from fsbench.io.files import write_text
from fsbench.report.tables import FirstThatFits, Signature, plain_table, plus_minus, signed, stdout_console
from fsbench.reporter import SafeConsole, printable
from fsbench.results.statistics import LEVEL
from fsbench.results.warnings import OF_FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType
    from rich.table import Table as RichTable

    from fsbench.results.comparison import Cell, Column, Comparison, Entry, Group
    from fsbench.results.record import RunRecord

FORMATS = ("rich", "markdown", "latex", "csv", "json")
_LONG_NAME = 40  # characters of a method's name that are never broken into lines

_BEYOND = {
    "over_data": "new images of these classes, from {tasks} tasks that share no image",
    "over_classes": "new classes, from the jackknife over the classes",
}


@dataclass(frozen=True)
class Table:
    """A comparison that can be printed, shown in a notebook, and written to a file."""

    comparison: Comparison

    def __str__(self) -> str:
        return as_text(render_rich(self.comparison)).rstrip()

    def _repr_markdown_(self) -> str:
        """The table in a notebook."""
        return render_markdown(self.comparison)

    @property
    def records(self) -> list[RunRecord]:
        """All runs."""
        return self.comparison.records

    def signature(self) -> str:
        """What all runs have in common, in one line."""
        return self.comparison.signature()

    def show(self, form: str = "rich", out: str | Path | None = None, *, timing: bool = False) -> None:
        """Print the table as `rich`, `markdown`, `latex`, `csv` or `json`, or write it to a file."""
        if form not in FORMATS:
            raise unknown_name("format", form, FORMATS)
        if form == "rich" and out is None:
            stdout_console().print(render_rich(self.comparison, timing), crop=False)
            return
        text = {
            "rich": lambda: as_text(render_rich(self.comparison, timing)),
            "markdown": lambda: render_markdown(self.comparison, timing),
            "latex": lambda: render_latex(self.comparison, timing),
            "csv": lambda: render_csv(self.comparison),
            "json": lambda: render_json(self.comparison),
        }[form]()
        if out is None:
            print(text, end="")
        else:
            write_text(Path(out), text)


def as_text(table: RenderableType) -> str:
    """What the terminal would show, without colours."""
    stream = io.StringIO()
    SafeConsole(file=stream, width=100).print(table, crop=False)
    return stream.getvalue()


def accuracy_text(cell: Cell) -> str:
    """Mean and interval, with a star where the cell ties with the best."""
    if cell.record is None:
        return "–"
    return plus_minus(cell.record.accuracy, cell.record.ci95) + (" *" if cell.tied else "")


def _warned_accuracy(cell: Cell) -> str:
    """The same, with an exclamation mark where a warning belongs to this method and setting."""
    value, star, _ = accuracy_text(cell).partition(" *")
    return value + ("!" if any(one.code not in OF_FEATURES for one in cell.warnings) else "") + star


def difference_text(cell: Cell) -> str:
    """Difference to the baseline, with its interval; in brackets where it is not significant."""
    if cell.difference is None:
        return "–"
    text = signed(cell.difference)
    return text if "±" not in text or (cell.p_value is not None and cell.p_value < LEVEL) else f"({text})"


def published_text(cell: Cell, *, interval: bool = False) -> str:
    """The published number, and how far ours is from it; with its interval where there is room."""
    if cell.published is None:
        return "–"
    text = plus_minus(cell.published.accuracy, cell.published.ci95 if interval else None)
    return f"{text} ({cell.record.accuracy - cell.published.accuracy:+.1f})" if cell.record else text


def _interval_text(name: str) -> Callable[[Cell], str]:
    """A function from a cell to one of its intervals: an accuracy, or a difference, in brackets if 0 is within."""

    def text(cell: Cell) -> str:
        found = getattr(cell, name)
        if not found or not name.endswith("difference"):
            return plus_minus(found.mean, found.half_width) if found else "–"
        return f"({signed(found)})" if abs(found.mean) <= found.half_width else signed(found)

    return text


def timing_text(cell: Cell) -> str:
    """Tasks per second and peak memory."""
    run = cell.record
    if run is None:
        return "–"
    digits = ",.0f" if run.tasks_per_second >= 10 else ".2g"  # a network that is adapted to a task takes seconds
    return f"{run.tasks_per_second:{digits}}/s {run.peak_memory / 2**30:.1f} GB"


def _views(comparison: Comparison, group: Group, timing: bool) -> Iterator[tuple[str, Callable[[Cell], str]]]:
    """The tables of a group that have something to show: a title and a function from cell to text."""
    cells = group.cells.values()
    yield f"accuracy in %, {comparison.tasks:,} tasks ± 95 % interval", _warned_accuracy
    if any(cell.difference for cell in cells):
        yield f"difference to {comparison.baseline} on the same tasks", difference_text
    if any(cell.published for cell in cells):
        yield "published (ours minus published)", published_text
    for name, words in _BEYOND.items():
        covered = words.format(tasks=_range([cell.over_data_tasks for cell in cells if cell.over_data_tasks]))
        if any(getattr(cell, name) for cell in cells):
            yield f"accuracy ± 95 % interval for {covered}", _interval_text(name)
        if any(getattr(cell, f"{name}_difference") for cell in cells):
            yield f"difference to {comparison.baseline}, for {covered}", _interval_text(f"{name}_difference")
    if timing:
        yield "tasks per second, peak memory", timing_text


def _range(counts: list[int]) -> str:
    """`12`, or `4 to 12` where settings differ."""
    ends = dict.fromkeys((min(counts, default=0), max(counts, default=0)))
    return " to ".join(f"{count:,}" for count in ends)


def _legend(comparison: Comparison, best: str) -> list[str]:
    """What the marks mean, a line for each; the word or sign for the best depends on the format."""
    cells = [cell for group in comparison.groups for cell in group.cells.values()]
    lines = [
        f"{best}: best of its column; *: not significantly worse than the best (paired test, 5 %, Holm-corrected over "
        "all pairs of the table)"
    ]
    if any(difference_text(cell).startswith("(") for cell in cells):
        lines.append(
            f"(…): not significantly different from {comparison.baseline} (the same test, Holm-corrected over all "
            "differences to it)"
        )
    if any(getattr(cell, f"{name}_difference") for cell in cells for name in _BEYOND):
        lines.append("(…) in differences for new images or new classes: the interval includes 0")
    if any(comparison.is_tuned(entry.label) for entry in comparison.entries):
        lines.append("†: parameters tuned on the val classes")
    return lines


def _leads(comparison: Comparison) -> Iterator[str]:
    """How far the best of a column is above the next best, for new images and new classes if that was asked for."""
    for group in comparison.groups:
        for column in comparison.columns:
            for (label, at), cell in group.cells.items():
                leads = {"new images": cell.over_data_lead, "new classes": cell.over_classes_lead}
                found = [f"{signed(lead)} for {words}" for words, lead in leads.items() if lead]
                if at == column and found:
                    where = f"{group.title}, {column.title}" if len(comparison.groups) > 1 else column.title
                    yield f"{where}: {label} minus the next best, {cell.next_best}: {', '.join(found)}"


Row = tuple[str, str, list[tuple[str, bool]]]


def _tables(comparison: Comparison, timing: bool) -> Iterator[tuple[str, list[Row]]]:
    """Headings, and rows of label, assumption and cells: their text, and whether it is the best accuracy."""
    for group in comparison.groups:
        for title, text in _views(comparison, group, timing):
            rows: list[Row] = []
            for entry in comparison.entries:
                cells = [group.cells.get((entry.label, column)) for column in comparison.columns]
                texts = [
                    (text(cell), text is _warned_accuracy and cell.best) if cell else ("–", False) for cell in cells
                ]
                if any(value != "–" for value, _ in texts):
                    label = f"{entry.label} †" if comparison.is_tuned(entry.label) else entry.label
                    rows.append((label, entry.assumes, texts))
            yield f"{group.title}: {title}", rows


def render_rich(comparison: Comparison, timing: bool = False) -> RenderableType:
    """For the terminal: four settings fit into 80 columns, where what methods assume is left out."""
    parts: list[RenderableType] = []
    for heading, rows in _tables(comparison, timing):
        layouts = [(True, " ± "), (True, "±"), (False, "±")]
        parts.append(FirstThatFits(*(_rich_table(comparison, heading, rows, *layout) for layout in layouts)))
    parts += [Text(line, style="dim") for line in (*_legend(comparison, "▲"), *_leads(comparison))]
    parts.append(Signature(comparison.signature()))
    parts += [Text(f"! {line}", style="yellow") for line in comparison.warnings()]
    parts += [Text(f"published: {note}", style="dim") for note in comparison.notes()]
    return RichGroup(*parts)


def _rich_table(comparison: Comparison, heading: str, rows: list[Row], assumptions: bool, sign: str) -> RichTable:
    """One table for the terminal, with or without what methods assume, and the signs between means and intervals."""
    table = plain_table(heading)
    table.add_column("method", overflow="fold", width=min(_LONG_NAME, max(cell_len(label) for label, *_ in rows)))
    if assumptions:
        table.add_column("assumes", no_wrap=True)
    for column in comparison.columns:
        table.add_column(column.title.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for label, assumes, cells in rows:
        styled = [
            Text(_marks_first(value.replace(" ± ", sign), best), style="bold" if best else "") for value, best in cells
        ]
        table.add_row(label, *([assumes] if assumptions else []), *styled)
    return table


def _marks_first(value: str, best: bool) -> str:
    """A cell with its marks in front, so that the digits of a column stay below each other."""
    plain = value.removesuffix(" *").removesuffix("!")
    marks = ("▲" if best else "*" if value.endswith(" *") else "") + ("!" if "!" in value else "")
    return f"{marks:2}{plain}" if marks else plain


def render_markdown(comparison: Comparison, timing: bool = False) -> str:
    """GitHub's Markdown."""
    lines: list[str] = []
    for heading, rows in _tables(comparison, timing):
        lines += [f"**{markdown(heading)}**", ""]
        lines.append("| method | assumes | " + " | ".join(column.title for column in comparison.columns) + " |")
        lines.append("|---|---|" + "--:|" * len(comparison.columns))
        for label, assumes, cells in rows:
            marked = [f"**{value}**" if best else value.replace(" *", r" \*") for value, best in cells]
            lines.append("| " + " | ".join([markdown(label), markdown(assumes), *marked]) + " |")
        lines.append("")
    signature = comparison.signature()
    fence = "`" * (1 + max(map(len, re.findall("`+", signature)), default=0))  # more than the text has in a row
    for line in _legend(comparison, "Bold"):
        lines += [f"{markdown(line)}.", ""]
    lines += [f"{fence}{_one_line(signature)}{fence}", ""]
    lines += [f"- {markdown(line)}." for line in _leads(comparison)]
    lines += [f"- ! {markdown(line)}." for line in comparison.warnings()]
    lines += [f"Published: {markdown(note)}." for note in comparison.notes()]
    return "\n".join(lines).rstrip() + "\n"


def render_latex(comparison: Comparison, timing: bool = False) -> str:
    """A `tabular` per feature file and view, for `booktabs`."""
    lines = ["% needs \\usepackage{booktabs}"]
    heads = ["method", "assumes", *(column.title for column in comparison.columns)]
    for heading, rows in _tables(comparison, timing):
        lines.append(f"% {latex(heading)}")
        lines.append("\\begin{tabular}{ll" + "r" * len(comparison.columns) + "}")
        lines += ["\\toprule", " & ".join(map(latex, heads)) + " \\\\", "\\midrule"]
        for label, assumes, cells in rows:
            marked = [f"\\textbf{{{latex(value)}}}" if best else latex(value) for value, best in cells]
            lines.append(" & ".join([latex(label), latex(assumes), *marked]) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}", ""]
    lines += [f"% {latex(line)}" for line in (*_legend(comparison, "bold"), *_leads(comparison))]
    lines.append(f"% {_one_line(comparison.signature())}")
    lines += [f"% ! {latex(line)}" for line in comparison.warnings()]
    lines += [f"% published: {latex(note)}" for note in comparison.notes()]
    return "\n".join(lines).rstrip() + "\n"


def render_csv(comparison: Comparison) -> str:
    """One line per method and setting."""
    stream = io.StringIO()
    rows = _flat_rows(comparison)
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _csv_cell(value: Any) -> Any:
    """Text on one line, which a spreadsheet does not take for a formula."""
    if not isinstance(value, str):
        return value
    line = _one_line(value)
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line


def render_json(comparison: Comparison) -> str:
    """A list of rows, one per method and setting."""
    return json.dumps(_flat_rows(comparison), indent=1, allow_nan=False) + "\n"


def _flat_rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        _flat_row(comparison, group, entry, column, cell)
        for group in comparison.groups
        for entry in comparison.entries
        for column in comparison.columns
        if (cell := group.cells.get((entry.label, column))) is not None
    ]


def _flat_row(comparison: Comparison, group: Group, entry: Entry, column: Column, cell: Cell) -> dict[str, Any]:
    record, number, difference = cell.record, cell.published, cell.difference
    of_group = next(other.record for other in group.cells.values() if other.record)
    return {
        "dataset": group.dataset,
        "backbone": group.backbone,
        "method": entry.label,
        "assumes": cell.assumes or entry.assumes,
        "setting": "balanced" if column.balanced else "unbalanced",
        "alpha": column.alpha,
        "shots": column.shots,
        "tasks": record.key.tasks if record else None,
        "accuracy": record.accuracy if record else None,
        "ci95": record.ci95 if record else None,
        "best": cell.best,
        "tied_with_best": cell.tied,
        "baseline": comparison.baseline,
        "difference": difference.mean if difference else None,
        "difference_ci95": _finite(difference.half_width) if difference else None,
        "p_value_holm": cell.p_value,
        "published": number.accuracy if number else None,
        "published_ci95": number.ci95 if number else None,
        "published_source": number.source if number else None,
        **_beyond(cell),
        "tasks_per_second": record.tasks_per_second if record else None,
        "peak_memory": record.peak_memory if record else None,
        "family": of_group.family,
        "weights": of_group.weights,
        "crops": of_group.crops,
        "features_sha256": of_group.key.features_sha256,
        "base_sha256": of_group.key.base_sha256 or None,
        "signature": record.signature if record else None,
        "params_from": record.params_from if record else None,
        "warnings": " ".join(one.code for one in cell.warnings),
    }


def _beyond(cell: Cell) -> dict[str, float | str | None]:
    """Means and half-widths of the intervals beyond the sampled tasks."""
    row: dict[str, float | str | None] = {
        "over_data_tasks": cell.over_data_tasks or None,
        "next_best": cell.next_best or None,
    }
    for name in (f"{kind}{part}" for kind in _BEYOND for part in ("", "_difference", "_lead")):
        found = getattr(cell, name)
        row |= {name: found.mean if found else None, f"{name}_ci95": _finite(found.half_width) if found else None}
    return row


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def markdown(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    """Names may hold line breaks, after which a comment or a cell would have ended."""
    return printable(re.sub(r"\s", " ", text))


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "α": r"$\alpha$", "–": "--", "…": r"\ldots{}",
    "*": r"$^{*}$", "†": r"\dag{}", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def latex(text: str) -> str:
    """A text that LaTeX shows as it is, with a minus sign, not a hyphen, in front of a number."""
    shown = "".join(_LATEX.get(character, character) for character in _one_line(text))
    return re.sub(r"(?<!\S)(\(?)-(?=\d)", r"\1$-$", shown)
