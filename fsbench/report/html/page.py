"""The page as a whole: header, navigation, filters, and its sections in order."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

import fsbench
from fsbench.report.html.svg import figure
from fsbench.report.html.tables import (
    dataset_table,
    environment_table,
    filtered,
    leaderboard_table,
    method_anchor,
    runs_table,
    setting_of,
    signature_code,
)
from fsbench.report.plots.comparison import draw_differences, draw_speed, paired_runs
from fsbench.report.plots.style import svg_text
from fsbench.reporter import printable
from fsbench.results.collect import titles
from fsbench.results.leaderboard import leaderboard
from fsbench.results.published import ONLY_PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsbench.results.comparison import Comparison, Entry, Group

STUDY = "study.toml"  # the run file in a folder of results


@dataclass(frozen=True)
class Section:
    """A part of the page, and the entries of the navigation that it has: identifiers, words and attributes."""

    anchor: str
    heading: str
    content: str
    links: Sequence[tuple[str, str, str]] = ()


def render_html(
    comparisons: Sequence[Comparison],
    ablations: Sequence[Comparison] = (),
    studies: Mapping[str, Sequence[tuple[str, str, str]]] | None = None,
    *,
    title: str = "Few-shot benchmark",
    study: str = "",
) -> str:
    """One self-contained page: no network, no fonts, no other files. The same records give the same text.

    Args:
        comparisons: In the order of the page.
        ablations: Comparisons of parameters set by hand.
        studies: Further sections by name, of figures: what each shows, its SVG text, and its caption.
        title: Heading of the page.
        study: Text of the run file that repeats the page.
    """
    tables = [*comparisons, *ablations]
    sections = [
        _comparison(one, f"{kind}{number}", f"{name}: {words}")
        for kind, name, found in (("c", "Leaderboard", comparisons), ("a", "Ablation", ablations))
        for number, (one, words) in enumerate(zip(found, titles(found), strict=True), start=1)
    ]
    for name, figures in (studies or {}).items():
        anchor = name.lower()
        drawn = [
            figure(svg, words, f"{anchor}{number}", caption)
            for number, (words, svg, caption) in enumerate(figures, start=1)
        ]
        if drawn:
            sections.append(Section(anchor, name, "".join(drawn), [(anchor, name, "")]))
    sections.append(Section("methods", "Methods", _methods(tables), [("methods", "Methods", "")]))
    folded = f"<details><summary>Commands, parameters, speed and signatures</summary>{runs_table(tables, 'runs-h')}"
    sections.append(Section("runs", "All runs", f"{folded}</details>", [("runs", "All runs", "")]))
    environment = environment_table(tables, "environment-h")
    sections.append(Section("environment", "Environment", environment, [("environment", "Environment", "")]))
    if study:
        heading = "How to repeat this page"
        words = f"<p>Save as <code>{STUDY}</code>, then run <code class='copy'>fsbench run {STUDY}</code>.</p>"
        content = f"{words}<pre tabindex='0'><code class='copy'>{escape(printable(study))}</code></pre>"
        sections.append(Section("repeat", heading, content, [("repeat", "Repeat", "")]))
    body = [_header(tables, title), _bar(tables, sections), "<main id='main'>"]
    for section in sections:
        head = f"<h2 id='{section.anchor}-h'>{escape(section.heading)}</h2>"
        body.append(
            f"<section id='{section.anchor}' aria-labelledby='{section.anchor}-h'>{head}{section.content}</section>"
        )
    body += ["</main>", f"<footer><p>Made from run records by fsbench {escape(fsbench.__version__)}.</p></footer>"]
    return _document(title, "\n".join(body))


def _document(title: str, body: str) -> str:
    folder = resources.files("fsbench.report.html")
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


def _header(comparisons: Sequence[Comparison], title: str) -> str:
    records = {(record.key.digest(), record.source) for comparison in comparisons for record in comparison.records}
    methods = {label for one in comparisons for group in one.groups for (label, _), cell in group.cells.items()
               if cell.record}  # fmt: skip
    features = len({source for _, source in records})
    counts = [(len(records), "run"), (len(methods), "method"), (features, "feature file")]
    numbers = ", ".join(f"{count:,} {word}{'s' if count > 1 else ''}" for count, word in counts)
    return f"""<a class="skip" href="#main">Skip to the tables</a>
<header>
<p class="kicker">fsbench</p>
<h1>{escape(title)}</h1>
<p class="lede">{numbers}. All methods of a table ran on the same tasks.</p>
</header>"""


def _bar(comparisons: Sequence[Comparison], sections: Sequence[Section]) -> str:
    """Navigation and filters, which stay in view."""
    links = (link for section in sections for link in section.links)
    items = "".join(f"<li{more}><a href='#{anchor}'>{escape(words)}</a></li>" for anchor, words, more in links)
    columns = [column for one in comparisons for column in one.columns]
    groups = [group for one in comparisons for group in one.groups]
    choices = {
        "setting": dict.fromkeys(map(setting_of, columns)),
        "shots": dict.fromkeys(str(shots) for shots in sorted({column.shots for column in columns})),
        "backbone": dict.fromkeys(group.backbone for group in groups),
    }
    selects = [_select(f"data-filter='{name}'", name, ["all", *values]) for name, values in choices.items()]
    shown = {"accuracy": "accuracy", "best": "difference to the best", "baseline": "difference to the baseline"}
    if any(cell.published for group in groups for cell in group.cells.values()):
        shown["published"] = "gap to published"
    selects.append(_select("id='show'", "show", shown.values(), shown))
    return f"""<div class="bar">
<nav aria-label="Contents"><ol>{items}</ol></nav>
<form class="filters" aria-label="Filters" hidden>{"".join(selects)}</form>
</div>"""


def _select(attribute: str, name: str, words: Iterable[str], values: Iterable[str] | None = None) -> str:
    options = [
        f"<option value='{escape('' if value == 'all' else value)}'>{escape(word)}</option>"
        for word, value in (zip(words, values, strict=True) if values else ((word, word) for word in words))
    ]
    return f"<label>{name} <select {attribute}>{''.join(options)}</select></label>"


def _comparison(comparison: Comparison, anchor: str, heading: str) -> Section:
    """The ranking of one list of tasks, then a table per feature file, folded on all but the first."""
    first = anchor == "c1"
    key, protocol = comparison.records[0].key, comparison.records[0].key.protocol
    board = leaderboard(comparison)
    words = [f"{protocol['ways']}-way", f"{protocol['queries']} queries", f"{key.split} classes"]
    words += [f"protocol {protocol['name']}", f"seed {key.seed}"]
    badges = "".join(f"<small>{escape(word)}</small>" for word in words)
    parts = [
        f"<p class='badges'><small class='strong'>{key.tasks:,} tasks</small>{badges}</p>",
        leaderboard_table(comparison, board, f"{anchor}-h"),
        f"<p class='signature'>{signature_code(comparison.signature())}</p>",
    ]
    if warnings := [f"<li>{escape(line)}.</li>" for line in comparison.warnings()]:
        summary = f"<summary>{len(warnings)} warning{'s' if len(warnings) > 1 else ''}</summary>"
        parts.append(f"<details>{summary}<ul class='notes'>{''.join(warnings)}</ul></details>")
    if first and sum(row.average is not None for row in board.rows) > 1:
        label = "Accuracy against tasks per second, one panel per setting"
        parts.append(figure(svg_text(draw_speed(comparison)), label, f"{anchor}-s", f"{label}."))
    links = [(anchor, heading, "")]
    tables = []
    for number, group in enumerate(comparison.groups, start=1):
        place = f"{anchor}-g{number}"
        shown = dataset_table(comparison, group, board, place)
        drawn = _task_by_task(dataclasses.replace(comparison, groups=[group]), group, place)
        head = f"<h3 id='{place}'>{escape(group.title)}</h3>"
        tables.append(f"<div class='dataset'{filtered(group)}>{head}{shown}{drawn}</div>")
        if first:
            links.append((place, f"{group.dataset} {group.backbone}", f" class='dataset'{filtered(group)}"))
    parts += tables if first else ["<details><summary>A table per feature file</summary>", *tables, "</details>"]
    if notes := [f"<li>{escape(note)}.</li>" for note in comparison.notes()]:
        parts += ["<h3>On the published numbers</h3><ul class='notes'>", *notes, "</ul>"]
    return Section(anchor, heading, "\n".join(parts), links)


def _task_by_task(alone: Comparison, group: Group, anchor: str) -> str:
    """Folded: the differences to the baseline of the method that gains the most on a feature file."""
    gains = dict.fromkeys((entry.label for entry in alone.entries), 0.0)  # over all settings
    for (label, _), cell in group.cells.items():
        gains[label] += cell.difference.mean if cell.difference else 0.0
    leader = max(gains, key=lambda label: gains[label] if label != alone.baseline else -math.inf)
    pairs = paired_runs(alone, leader, alone.baseline)
    if not pairs:
        return ""
    label = f"Histograms of the accuracy of {leader} minus that of {alone.baseline} per task, on {group.title}"
    drawn = figure(svg_text(draw_differences(pairs, leader, alone.baseline)), label, f"{anchor}-d")
    summary = f"Task by task: {escape(leader)} minus {escape(alone.baseline)}"
    return f"<details><summary>{summary}</summary>{drawn}</details>"


def _methods(comparisons: Sequence[Comparison]) -> str:
    """What is known of every method, where its name links to."""
    entries = {entry.method: entry for one in comparisons for entry in one.entries}
    parts = []
    for method, entry in entries.items():
        name = entry.info.title if entry.info else method
        head = f"<dt id='{method_anchor(method)}'>{escape(name)} <code>{escape(method)}</code></dt>"
        parts.append(f"{head}<dd>{_about(entry)}</dd>")
    return f"<dl>{''.join(parts)}</dl>"


def _about(entry: Entry) -> str:
    """A method in a few words, with a link to the article."""
    info = entry.info
    if info is None and entry.method in ONLY_PUBLISHED:
        return "Adapts or trains the network itself, so there are published numbers only."
    if info is None:
        return "A method of your own, or of a package that is not installed here. Its records do not describe it."
    kind = "transductive" if info.transductive else "inductive"
    needs = "uses statistics of the base classes" if info.needs_base else "uses no base classes"
    priors = {"none": "no class prior", "uniform": "uniform class prior", "free": "class prior estimated"}
    link = f"<a href='{escape(info.url)}'>{escape(info.url.partition('://')[2])}</a>. " if _is_page(info.url) else ""
    words = [kind.capitalize(), *([priors[info.prior]] if info.transductive else []), needs]
    return f"{escape(info.reference)}. {link}{', '.join(words)}; version {info.version}."


def _is_page(url: str) -> bool:
    """Whether a link leads to a web page; in a method of a user's, it could be anything."""
    return url.startswith(("https://", "http://"))
