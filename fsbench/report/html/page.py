"""SVG inside a page: identifiers of its own, letters and lines in the page's colour."""

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
from fsbench.report.html.tables import accuracy_table, environment_table, runs_table
from fsbench.report.plots.comparison import bars_figure, differences_figure, paired_runs
from fsbench.report.plots.style import INK, svg_text
from fsbench.report.render import LEGEND
from fsbench.results.published import ONLY_PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsbench.results.comparison import Comparison, Group


_DROPPED = ("metadata", "style")  # a style element inside a picture would hold for the whole page


def inline_svg(text: str, prefix: str, label: str) -> str:
    """An SVG's text, made fit to stand in a page beside others.

    Args:
        text: Of an SVG file, as matplotlib writes it.
        prefix: Its identifiers are this and a number, so that those of two pictures never meet.
        label: What the picture shows, for those who do not see it.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(str(child.tag)) in _DROPPED]:
            parent.remove(child)
    found = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    names = {name: f"{prefix}-{number}" for number, name in enumerate(found, start=1)}
    for element in root.iter():
        element.tag = _local(str(element.tag))
        changed = {_local(name): _changed(_local(name), value, names) for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(changed)
    width = root.attrib.pop("width", "").removesuffix("pt")
    root.attrib.pop("height", None)
    root.attrib.update(
        {"role": "img", "aria-label": label, "stroke-linejoin": "round", "style": f"--width: {width or 600}pt"}
    )
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


TITLE = "Few-shot benchmark"


def render_html(
    comparisons: Sequence[Comparison], figures: Sequence[tuple[str, str]] = (), *, title: str = TITLE
) -> str:
    """One self-contained page: no network, no fonts, nothing beside it. The same comparisons give the same text.

    Args:
        comparisons: At least one.
        figures: Further pictures, as titles and SVG texts.
        title: Heading of the page.
    """
    sections = [_section(comparison, f"c{number}") for number, comparison in enumerate(comparisons, start=1)]
    contents = [(f"c{number}", *_headings(comparison)) for number, comparison in enumerate(comparisons, start=1)]
    if figures:
        drawn = [
            _figure(svg, name, f"f{number}", f"<figcaption>{escape(name)}</figcaption>")
            for number, (name, svg) in enumerate(figures, start=1)
        ]
        sections.append(_landmark("figures", "<h2 id='figures-h'>Further pictures</h2>" + "".join(drawn)))
        contents.append(("figures", "Further pictures", ""))
    sections.append(
        _landmark(
            "environment", "<h2 id='environment-h'>Environment</h2>" + environment_table(comparisons, "environment-h")
        )
    )
    contents.append(("environment", "Environment", ""))
    body = [_header(comparisons, contents, title), "<main id='main'>", *sections, "</main>", _footer()]
    return _document(title, "\n".join(body))


def _document(title: str, body: str) -> str:
    style, script = _packaged("page.css"), _packaged("page.js")
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


def _packaged(name: str) -> str:
    return resources.files("fsbench.report.html").joinpath(name).read_text(encoding="utf-8")


def _header(comparisons: Sequence[Comparison], contents: Sequence[tuple[str, str, str]], title: str) -> str:
    records = [record for comparison in comparisons for record in comparison.records]
    methods = {label for comparison in comparisons for group in comparison.groups for label, _ in group.cells}
    features = {(record.key.features_sha256, record.key.base_sha256) for record in records}
    counts = [(len(records), "run"), (len(methods - {*ONLY_PUBLISHED}), "method"), (len(features), "feature file")]
    numbers = ", ".join(f"{count:,} {word}{'s' if count > 1 else ''}" for count, word in counts)
    items = "".join(
        f"<li><a href='#{anchor}'>{escape(name)}</a> <span>{escape(rest)}</span></li>"
        for anchor, name, rest in contents
    )
    return f"""<a class="skip" href="#main">Skip to the tables</a>
<header>
<p class="kicker">fsbench</p>
<h1>{escape(title)}</h1>
<p class="lede">{numbers}. All methods of a table ran on the very same tasks.</p>
<nav aria-label="Contents"><ol>{items}</ol></nav>
</header>"""


def _footer() -> str:
    return f"<footer><p>Made from run records by fsbench {escape(fsbench.__version__)}.</p></footer>"


def _headings(comparison: Comparison) -> tuple[str, str]:
    """What a comparison is over, and by which rules."""
    key = comparison.records[0].key
    protocol = key.protocol
    rules = f"{key.tasks:,} tasks, {protocol['queries']} queries, protocol {protocol['name']}, seed {key.seed}"
    return f"{protocol['ways']}-way tasks of {key.split} classes", rules


def _landmark(anchor: str, content: str) -> str:
    return f"<section id='{anchor}' aria-labelledby='{anchor}-h'>{content}</section>"


def _section(comparison: Comparison, anchor: str) -> str:
    """One comparison: a table and pictures per feature file, then every run."""
    heading, rules = _headings(comparison)
    parts = [
        f"<h2 id='{anchor}-h'>{escape(heading)}</h2><p class='rules'>{escape(rules)}</p>",
        f"<p class='signature'><code class='copy'>{escape(comparison.signature())}</code></p>",
        f"<p class='legend'>▲: {escape(LEGEND)}.</p>",
    ]
    for number, group in enumerate(comparison.groups, start=1):
        name = f"{anchor}-g{number}"
        parts.append(f"<h3 id='{name}'>{escape(group.title)}</h3>" + accuracy_table(comparison, group, name))
        parts += _pictures(dataclasses.replace(comparison, groups=[group]), group, name)
    if notes := comparison.notes():
        parts.append("<h3>On the published numbers</h3><ul class='notes'>")
        parts += [f"<li>{escape(note)}.</li>" for note in notes]
        parts.append("</ul>")
    parts.append(runs_table(comparison, f"{anchor}-runs"))
    return _landmark(anchor, "\n".join(parts))


def _pictures(alone: Comparison, group: Group, anchor: str) -> list[str]:
    """Bars of one feature file, and the differences of its leader to the baseline."""
    found = [
        _figure(svg_text(bars_figure(alone)), f"Accuracies on {group.title}, as in the table above", f"{anchor}-b")
    ]
    leader = _leader(alone, group)
    if pairs := paired_runs(alone, leader, alone.baseline):
        label = f"Histograms of the accuracy of {leader} minus that of {alone.baseline} per task, on {group.title}"
        found.append(_figure(svg_text(differences_figure(pairs, leader, alone.baseline)), label, f"{anchor}-d"))
    return found


def _leader(comparison: Comparison, group: Group) -> str:
    """The method that gains the most on the baseline over all settings; empty if there is none."""
    gains = dict.fromkeys((entry.label for entry in comparison.entries), 0.0)
    for (label, _), cell in group.cells.items():
        gains[label] += cell.difference.mean if cell.difference else 0.0
    return max(gains, key=lambda label: gains[label] if label != comparison.baseline else -math.inf)


def _figure(svg: str, label: str, prefix: str, caption: str = "") -> str:
    box = f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(label)}'>"
    return f"<figure>{box}{inline_svg(svg, prefix, label)}</div>{caption}</figure>"
