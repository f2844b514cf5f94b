"""One self-contained HTML page: sortable tables, figures, every run, environment."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import re
from html import escape
from importlib import resources
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import fsbench
from fsbench.report.plots.comparison import draw_bars, draw_differences, paired_runs
from fsbench.report.plots.style import INK, svg_text
from fsbench.report.render import LEGEND, accuracy_text, difference_text, published_text
from fsbench.results.published import ONLY_PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsbench.results.comparison import Cell, Comparison, Entry, Group
    from fsbench.results.record import RunRecord


Section = tuple[str, str, str, str]  # identifier, heading, what the contents say beside it, and HTML


def render_html(
    comparisons: Sequence[Comparison], figures: Sequence[tuple[str, str]] = (), *, title: str = "Few-shot benchmark"
) -> str:
    """One self-contained page: no network, no fonts, nothing beside it. The same comparisons give the same text.

    Further figures are given as titles and SVG texts.
    """
    sections = [_section(comparison, f"c{number}") for number, comparison in enumerate(comparisons, start=1)]
    if figures:
        drawn = [
            _figure(svg, name, f"f{number}", f"<figcaption>{escape(name)}</figcaption>")
            for number, (name, svg) in enumerate(figures, start=1)
        ]
        sections.append(("figures", "Further figures", "", "".join(drawn)))
    sections.append(("environment", "Environment", "", _environment_table(comparisons, "environment-h")))
    body = [_header(comparisons, sections, title), "<main id='main'>"]
    for anchor, heading, _, content in sections:
        head = f"<h2 id='{anchor}-h'>{escape(heading)}</h2>"
        body.append(f"<section id='{anchor}' aria-labelledby='{anchor}-h'>{head}{content}</section>")
    body += ["</main>", f"<footer><p>Made from run records by fsbench {escape(fsbench.__version__)}.</p></footer>"]
    return _document(title, "\n".join(body))


def _document(title: str, body: str) -> str:
    folder = resources.files("fsbench.report")
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The browser itself keeps the promise: nothing is fetched, and no script but this one runs.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def _header(comparisons: Sequence[Comparison], sections: Sequence[Section], title: str) -> str:
    records = [record for comparison in comparisons for record in comparison.records]
    methods = {label for comparison in comparisons for group in comparison.groups for label, _ in group.cells}
    features = len({record.source for record in records})
    counts = [(len(records), "run"), (len(methods - {*ONLY_PUBLISHED}), "method"), (features, "feature file")]
    numbers = ", ".join(f"{count:,} {word}{'s' if count > 1 else ''}" for count, word in counts)
    item = "<li><a href='#{}'>{}</a> <span>{}</span></li>"
    items = "".join(item.format(anchor, escape(name), escape(rest)) for anchor, name, rest, _ in sections)
    return f"""<a class="skip" href="#main">Skip to the tables</a>
<header>
<p class="kicker">fsbench</p>
<h1>{escape(title)}</h1>
<p class="lede">{numbers}. All methods of a table ran on the very same tasks.</p>
<nav aria-label="Contents"><ol>{items}</ol></nav>
</header>"""


def _section(comparison: Comparison, anchor: str) -> Section:
    """One comparison: a table and figures per feature file, then every run."""
    key, protocol = comparison.records[0].key, comparison.records[0].key.protocol
    rules = f"{key.tasks:,} tasks, {protocol['queries']} queries, protocol {protocol['name']}, seed {key.seed}"
    parts = [
        f"<p class='rules'>{escape(rules)}</p>",
        f"<p class='signature'><code class='copy'>{escape(comparison.signature())}</code></p>",
        f"<p class='legend'>▲: {escape(LEGEND)}.</p>",
    ]
    for number, group in enumerate(comparison.groups, start=1):
        name = f"{anchor}-g{number}"
        parts.append(f"<h3 id='{name}'>{escape(group.title)}</h3>" + _accuracy_table(comparison, group, name))
        parts += _figures(dataclasses.replace(comparison, groups=[group]), group, name)
    if notes := [f"<li>{escape(note)}.</li>" for note in comparison.notes()]:
        parts += ["<h3>On the published numbers</h3><ul class='notes'>", *notes, "</ul>"]
    parts.append(_runs_table(comparison, f"{anchor}-runs"))
    return anchor, f"{protocol['ways']}-way tasks of {key.split} classes", rules, "\n".join(parts)


def _figures(alone: Comparison, group: Group, anchor: str) -> list[str]:
    """Bars of one feature file, and the differences to the baseline of the method that gains the most on it."""
    found = [_figure(svg_text(draw_bars(alone)), f"Accuracies on {group.title}, as in the table above", f"{anchor}-b")]
    gains = dict.fromkeys((entry.label for entry in alone.entries), 0.0)  # over all settings
    for (label, _), cell in group.cells.items():
        gains[label] += cell.difference.mean if cell.difference else 0.0
    leader = max(gains, key=lambda label: gains[label] if label != alone.baseline else -math.inf)
    if pairs := paired_runs(alone, leader, alone.baseline):
        label = f"Histograms of the accuracy of {leader} minus that of {alone.baseline} per task, on {group.title}"
        found.append(_figure(svg_text(draw_differences(pairs, leader, alone.baseline)), label, f"{anchor}-d"))
    return found


def _figure(svg: str, label: str, prefix: str, caption: str = "") -> str:
    box = f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(label)}'>"
    return f"<figure>{box}{inline_svg(svg, prefix, label)}</div>{caption}</figure>"


def _accuracy_table(comparison: Comparison, group: Group, heading: str) -> str:
    """Methods by settings of one feature file: accuracy, difference to the baseline, published number."""
    heads = ["method", "assumes", *("\n".join(column.title.rsplit(" ", 1)) for column in comparison.columns)]
    body = []
    for entry in comparison.entries:
        cells = [group.cells.get((entry.label, column)) for column in comparison.columns]
        if any(cells):
            remark = " <small>baseline</small>" if entry.label == comparison.baseline else ""
            name = escape(entry.label).replace(":", ":<wbr>") + remark
            row = f"<th scope='row'>{name}</th><td>{escape(entry.assumes)}</td>{''.join(map(_cell, cells))}"
            body.append(f"<tr>{row}</tr>")
    caption = f"Accuracy in % ± 95 % interval over {comparison.tasks:,} tasks"
    if any(cell.difference for cell in group.cells.values()):
        caption += f"; below it the difference to {comparison.baseline}, in brackets where it is not significant"
    if any(cell.published for cell in group.cells.values()):
        caption += "; then the published number and, in brackets, ours minus published"
    return _table(heads, body, f"{caption}.", "accuracies", heading)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return _number(None, "–")
    accuracy, mark = accuracy_text(cell).removesuffix(" *"), "▲" if cell.best else "*" if cell.tied else ""
    text = f"<b>{accuracy}</b>" if cell.best else accuracy
    lines = [f"<span class='accuracy'>{text}<i>{mark}</i></span>"]
    if cell.difference:
        difference = difference_text(cell).replace("-", "−")  # a minus sign as wide as a plus
        faint = " faint" if difference.startswith("(") else ""
        lines.append(f"<span class='difference{faint}'>{difference}</span>")
    if cell.published:
        source, number = escape(cell.published.source), published_text(cell, interval=True).replace("-", "−")
        lines.append(f"<span class='published' title='{source}'>{number}</span>")
    return _number(cell.record.accuracy if cell.record else None, "".join(lines))


def _runs_table(comparison: Comparison, heading: str) -> str:
    """Every run with its parameters, speed and signature, folded away."""
    rows = [
        _run(group, entry, column.title, cell, cell.record)
        for group in comparison.groups
        for entry in comparison.entries
        for column in comparison.columns
        if (cell := group.cells.get((entry.label, column))) and cell.record
    ]
    heads = ["features", "method", "setting", "accuracy", "p (Holm)", "tasks/s", "memory", "parameters", "from"]
    heads += ["device", "made (UTC)", "signature"]
    caption = f"Every run; p-values are of the difference to {comparison.baseline}, Holm-corrected over all of them."
    table = _table(heads, rows, caption, "runs", heading)
    summary = f"<summary id='{heading}'>Parameters, speed and signatures of all runs ({len(rows):,})</summary>"
    return f"<details>{summary}{table}</details>"


def _run(group: Group, entry: Entry, setting: str, cell: Cell, record: RunRecord) -> str:
    params = [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in record.key.params.items()
    ]
    cells = [
        f"<td>{escape(group.title)}</td><th scope='row'>{escape(entry.label)}</th><td>{escape(setting)}</td>",
        _number(record.accuracy, f"{record.accuracy:.2f}"),
        _number(cell.p_value, "–" if cell.p_value is None else f"{cell.p_value:.2g}"),
        _number(record.tasks_per_second, f"{record.tasks_per_second:,.0f}"),
        _number(record.peak_memory, f"{record.peak_memory / 2**20:,.0f} MB"),
        *(f"<td>{escape(text)}</td>" for text in (", ".join(params) or "none", record.params_from, record.device)),
        f"<td class='date'>{escape(record.created.removesuffix('+00:00').replace('T', ' '))}</td>",
        f"<td><code class='copy'>{escape(record.signature)}</code></td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _number(value: float | None, text: str) -> str:
    sorts_by = "" if value is None else f" data-value='{value}'"
    return f"<td class='number'{sorts_by}>{text}</td>"


def _environment_table(comparisons: Sequence[Comparison], heading: str) -> str:
    """Which versions and devices the runs were made with, and when."""
    made: dict[tuple[str, ...], list[str]] = {}
    for record in (record for comparison in comparisons for record in comparison.records):
        versions = [record.versions.get(name, "unknown") for name in ("fsbench", "torch", "python")]
        made.setdefault((*versions, record.device), []).append(record.created)
    rows = []
    for names, dates in sorted(made.items()):
        days = " to ".join(dict.fromkeys([min(dates)[:10], max(dates)[:10]]))
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*names, days))
        rows.append(f"<tr>{cells}{_number(len(dates), f'{len(dates):,}')}</tr>")
    heads = ("fsbench", "torch", "Python", "device", "made (UTC)", "runs")
    return _table(heads, rows, "What the runs were made with.", "environment", heading)


def _table(heads: Iterable[str], rows: Sequence[str], caption: str, kind: str, heading: str) -> str:
    """A table in a box of its own, which scrolls where the page is narrow; its name is the element `heading`."""
    head = "".join(f"<th scope='col'>{escape(text)}</th>" for text in heads).replace("\n", "<br>")
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>" + "\n".join(rows) + "</tbody>"
    table = f"<table class='{kind}'><caption><span>{escape(caption)}</span></caption>{body}</table>"
    return f"<div class='scroll' tabindex='0' role='region' aria-labelledby='{heading}'>{table}</div>"


_DROPPED = ("metadata", "style")  # a style element inside a figure would hold for the whole page


def inline_svg(text: str, prefix: str, label: str) -> str:
    """An SVG's text, as matplotlib writes it, made fit to stand in a page beside others.

    Its identifiers become the prefix and a number, so that no two figures share one. The label says what the figure
    shows, for screen readers.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(str(child.tag)) in _DROPPED]:
            parent.remove(child)
    found = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    names = {name: f"{prefix}-{number}" for number, name in enumerate(found, start=1)}
    for element in root.iter():
        element.tag = _local(str(element.tag))
        element.attrib = {_local(name): _changed(_local(name), value, names) for name, value in element.attrib.items()}
    width = root.attrib.pop("width", "").removesuffix("pt") or 600
    root.attrib.pop("height", None)
    root.attrib |= {"role": "img", "aria-label": label, "stroke-linejoin": "round", "style": f"--width: {width}pt"}
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """The name without its namespace: HTML knows by itself what belongs to SVG."""
    return name.rpartition("}")[2]


def _changed(name: str, value: str, names: Mapping[str, str]) -> str:
    if name == "id":
        return names[value]
    if name == "href":
        return "#" + names[value.removeprefix("#")]
    return re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{names[match[1]]})", value).replace(INK, "currentColor")
