"""Tables as plain data, and their formats: terminal, Markdown, LaTeX, CSV and JSON; templates of HTML pages."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fsbench.errors import unknown_name
from fsbench.reporter import SafeConsole, printable
from fsbench.results.statistics import Interval

Value = str | float | bool | None | dict[str, Any]  # of rows of plain data
Mark = Literal["", "best", "tied", "good", "doubtful", "bad"]
NOTHING = "–"
FORMATS = ("rich", "markdown", "latex", "csv", "json")
_LONG_NAME = 40  # characters of the first column that are never broken into lines where numbers need the space
_NARROW = 6  # characters that a column of text has at least
_STYLES = {"": "", "tied": "", "best": "bold", "good": "green", "doubtful": "yellow", "bad": "bold red"}


@dataclass(frozen=True)
class Column:
    """A column and how it is printed."""

    title: str  # with a line break where a terminal should break it
    numeric: bool = False  # aligned to the right, never broken into lines
    whole: bool = False  # text that is never broken into lines
    optional: bool = False  # left out of a terminal that is too narrow for all columns


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = ""  # for people
    mark: Mark = ""  # what it is among others: the best of its column, tied with it; or how well a state is
    warned: bool = False  # whether a warning belongs to it


@dataclass(frozen=True)
class Note:
    """A line below a table; `best` explains the mark of the best, which every format has its own sign for."""

    text: str
    kind: Literal["text", "item", "best", "warning", "signature"] = "text"


@dataclass(frozen=True)
class Table:
    """Sentences above, title, columns, rows of cells, and notes below."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[Note] = ()
    answers: Sequence[str] = ()


def numbers(*titles: str) -> list[Column]:
    """Numeric columns."""
    return [Column(title, numeric=True) for title in titles]


def cells(*texts: str) -> list[Cell]:
    """Cells without marks."""
    return [Cell(text) for text in texts]


def interval_text(value: Interval | None, *, signed: bool = False) -> str:
    """A mean or difference with its interval, which a single task does not have; nothing for None."""
    if value is None:
        return ""
    mean = f"{value.mean:{'+' if signed else ''}.2f}"
    return mean if math.isnan(value.half_width) else f"{mean} ± {value.half_width:.2f}"


def number(value: float | str) -> str:
    """Short, without needless digits."""
    return value if isinstance(value, str) else f"{value:g}"


def stdout_console() -> Console:
    """The console for tables: as wide as the terminal, or 100 columns where there is none."""
    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=100)


def show(*tables: Table, console: Console | None = None) -> None:
    """Print tables on the terminal, or on another console.

    Numbers are never cut. Where columns do not fit, intervals are set tight, then optional columns are left out;
    columns of numbers that still do not fit continue below, with the columns of text repeated.
    """
    console = console or stdout_console()
    for table in tables:
        for line in table.answers:
            console.print(Text(line + "\n"))
        if table.title:
            console.print(Text(table.title, style="bold"))
        for part in _rich_tables(table, console.width):
            console.print(part, crop=False)
        for note in table.notes:
            start = {"best": "▲: ", "warning": "! "}.get(note.kind, "")
            text = Text(start + note.text, style="yellow" if note.kind == "warning" else "dim")
            console.print(text, soft_wrap=note.kind == "signature")  # in one piece, to be copied


def as_text(tables: Sequence[Table]) -> str:
    """What a terminal of 100 columns would show, without colours."""
    stream = io.StringIO()
    show(*tables, console=SafeConsole(file=stream, width=100))
    return stream.getvalue()


def _rich_tables(table: Table, width: int) -> Iterator[RichTable]:
    every = range(len(table.columns))
    required = [place for place in every if not table.columns[place].optional]
    for places, tight in ((every, False), (every, True), (required, True)):
        widths = {place: _width(table, place, tight) for place in places}
        if 1 + sum(widths.values()) <= width:
            break
    texts = [place for place in places if place == 0 or not table.columns[place].numeric]
    rest = [place for place in places if place not in texts]
    space = width - 1 - sum(widths[place] for place in texts)
    while texts:
        count = max(1, sum(used <= space for used in itertools.accumulate(widths[place] for place in rest)))
        yield _rich_table(table, sorted(texts + rest[:count]), tight)
        rest = rest[count:]
        if not rest:
            break


def _width(table: Table, place: int, tight: bool) -> int:
    """Width of a column in characters, with its gap, when text is broken into lines and numbers are not."""
    column = table.columns[place]
    texts = [column.title, *(_with_marks(row[place], tight) for row in table.rows)]
    if column.numeric or column.whole or place == 0:
        longest = max(cell_len(line) for text in texts for line in text.split("\n"))
        return 2 + (longest if column.numeric or column.whole else min(longest, _LONG_NAME))
    return 2 + max(_NARROW, *(cell_len(word) for text in texts for word in text.split()))


def _rich_table(table: Table, places: Sequence[int], tight: bool) -> RichTable:
    made = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in (table.columns[place] for place in places):
        if column.numeric:
            made.add_column(column.title, justify="right", no_wrap=True)
        else:
            least = 0 if column.whole else _NARROW
            made.add_column(column.title, no_wrap=column.whole, overflow="fold", min_width=least)
    for row in table.rows:
        made.add_row(*(Text(_with_marks(row[place], tight), style=_STYLES[row[place].mark]) for place in places))
    return made


def _with_marks(cell: Cell, tight: bool) -> str:
    """A cell with its marks in front, so that the digits of a column stay below each other."""
    marks = {"best": "▲", "tied": "*"}.get(cell.mark, "") + ("!" if cell.warned else "")
    text = cell.text.replace(" ± ", "±") if tight else cell.text
    return f"{marks:2}{text}" if marks else text


def markdown(tables: Sequence[Table]) -> str:
    """GitHub's Markdown."""
    lines: list[str] = []
    for table in tables:
        lines += [part for line in table.answers for part in (in_markdown(line), "")]
        lines += [f"**{in_markdown(table.title)}**", "", _row(in_markdown(column.title) for column in table.columns)]
        lines.append("|" + "".join("--:|" if column.numeric else "---|" for column in table.columns))
        for row in table.rows:
            texts = ((cell, in_markdown(_with_signs(cell))) for cell in row)
            lines.append(_row(f"**{text}**" if cell.mark == "best" else text for cell, text in texts))
        lines += ["", *(line for note in table.notes for line in _markdown_note(note))]
    return "\n".join(lines).rstrip() + "\n"


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _with_signs(cell: Cell) -> str:
    """A cell with the signs of what is tied with the best, and of warnings."""
    return cell.text + ("!" if cell.warned else "") + (" *" if cell.mark == "tied" else "")


def _markdown_note(note: Note) -> list[str]:
    if note.kind == "signature":
        fence = "`" * (1 + max(map(len, re.findall("`+", note.text)), default=0))  # more than the text has in a row
        return [f"{fence}{one_line(note.text)}{fence}", ""]
    sentence = in_markdown(note.text.removesuffix(".")) + "."
    if note.kind in {"text", "best"}:
        return [f"Bold: {sentence}" if note.kind == "best" else sentence[:1].upper() + sentence[1:], ""]
    return [f"- {'! ' if note.kind == 'warning' else ''}{sentence}"]


def latex(tables: Sequence[Table]) -> str:
    """A `tabular` per table, for `booktabs`."""
    lines = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        kinds = "".join("r" if column.numeric else "l" for column in table.columns)
        heads = " & ".join(in_latex(column.title) for column in table.columns)
        lines += [f"% {in_latex(line)}" for line in table.answers]
        lines += [f"% {in_latex(table.title)}", f"\\begin{{tabular}}{{{kinds}}}", "\\toprule", f"{heads} \\\\"]
        lines.append("\\midrule")
        for row in table.rows:
            texts = ((cell, in_latex(_with_signs(cell))) for cell in row)
            marked = (f"\\textbf{{{text}}}" if cell.mark == "best" else text for cell, text in texts)
            lines.append(" & ".join(marked) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}", ""]
        for note in table.notes:
            text = one_line(note.text) if note.kind == "signature" else in_latex(note.text)
            lines.append(f"% {dict(best='bold: ', warning='! ').get(note.kind, '')}{text}")
    return "\n".join(lines).rstrip() + "\n"


def render(form: str, tables: Callable[[], Sequence[Table]], rows: Callable[[], Sequence[Mapping[str, Value]]]) -> str:
    """A result in one of the formats: its tables for people, its rows of plain data as csv or json."""
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    if form in {"csv", "json"}:
        return (as_csv if form == "csv" else as_json)(rows())
    return {"rich": as_text, "markdown": markdown, "latex": latex}[form](tables())


def as_csv(rows: Sequence[Mapping[str, Value]]) -> str:
    """One line per row of plain data, which all have the same columns."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([rows[0], *(map(_csv_cell, row.values()) for row in rows)])
    return stream.getvalue()


def _csv_cell(value: Value) -> Value:
    """Text on one line, which a spreadsheet does not take for a formula."""
    if not isinstance(value, str | dict):
        return value
    line = one_line(value if isinstance(value, str) else json.dumps(value))
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line


def as_json(rows: Sequence[Mapping[str, Value]]) -> str:
    """A list of rows of plain data."""
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"


def render_template(name: str, **content: Any) -> str:
    """A page in which every text is escaped that is not marked as safe, without control characters."""
    return printable(_templates().get_template(name).render(**content))


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("fsbench.report", "html"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    made.filters["fields"] = partial(re.findall, r"[^|]+\|?")
    made.filters["minus"] = lambda text: text.replace("-", "−")  # as wide as a plus
    made.filters["setting_lines"] = lambda text: "\n".join(text.rsplit(" ", 1))
    return made


def in_markdown(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", one_line(text))


def one_line(text: str) -> str:
    """A text without line breaks, after which a comment or a cell would have ended."""
    return printable(re.sub(r"\s", " ", text))


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "α": r"$\alpha$", "–": "--", "…": r"\ldots{}",
    "*": r"$^{*}$", "†": r"\dag{}", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def in_latex(text: str) -> str:
    """A text that LaTeX shows as it is, with a minus sign, not a hyphen, in front of a number."""
    shown = "".join(_LATEX.get(character, character) for character in one_line(text))
    return re.sub(r"(?<!\S)(\(?)-(?=\d)", r"\1$-$", shown)
