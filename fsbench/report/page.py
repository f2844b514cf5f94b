"""The report: one self-contained HTML page, the answer first."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from types import SimpleNamespace
from xml.etree import ElementTree

from markupsafe import Markup

import fsbench
from fsbench.features.store import digest
from fsbench.report import comparison as texts
from fsbench.report.answer import Answer, answers, headline, in_short, setting_words, unranked
from fsbench.report.plots.comparison import clipped_axis
from fsbench.report.plots.style import INK
from fsbench.report.writers import interval_text, render_template
from fsbench.results.collect import titles
from fsbench.results.comparison import Column as Setting
from fsbench.results.comparison import Comparison, Group
from fsbench.results.leaderboard import Row, leaderboard
from fsbench.results.metrics import ACCURACY, Metric
from fsbench.results.record import Record
from fsbench.results.statistics import Interval

_ORIGINS = {"preset": "article’s preset", "tuned": "tuned", "given": "set by hand", "blind": "blind"}


def render_html(
    comparisons: Sequence[Comparison],
    ablations: Sequence[Comparison] = (),
    sweeps: Sequence[tuple[str, str, str]] = (),
    *,
    title: str = "",
) -> str:
    """One self-contained page: no network, no fonts, no other files. The same records give the same text.

    Args:
        comparisons: In the order of the page.
        ablations: Comparisons of parameters set by hand.
        sweeps: Figures: what each shows, its SVG text, and its caption.
        title: Heading of the page; by default, the data sets and what to use there.
    """
    comparisons = [one for comparison in comparisons for one in comparison.in_all_metrics]
    every = [*comparisons, *ablations]
    folder = resources.files("fsbench.report") / "html"
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    functions = (
        run_anchor, method_anchor, origins, parameters, tone, on_axis, interval_text,
        texts.difference_text, texts.published_text,
    )  # fmt: skip
    each = ((group, *key, cell) for one in every for group in one.groups for key, cell in group.cells.items())
    runs = {run_anchor(item[-1].record): item for item in reversed([*each])}  # every run once
    records = [record for comparison in every for record in comparison.records]
    versions = [f"{name} {one.versions.get(name, '?')}" for name in ("fsbench", "torch", "python") for one in records]
    days = sorted(record.created[:10] for record in records)
    first, *others = [
        _part(one, f"{kind}{number}", f"{name}: {words}{'' if one.metric is ACCURACY else f', {one.metric.title}'}")
        for kind, name, parts in (("c", "Further runs", comparisons), ("a", "Parameters set by hand", ablations))
        for number, (one, words) in enumerate(zip(parts, titles(parts), strict=True), start=1)
    ]
    return render_template(
        "page.html",
        **{function.__name__: function for function in functions},
        title=title or headline(every[0]),
        version=fsbench.__version__,
        style=Markup(style),
        script=Markup(script),
        # The browser itself keeps the promise: nothing is fetched, and no script but this one runs.
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        settings=dict.fromkeys(setting_words(column) for one in every for column in one.columns),
        metric=every[0].metric.title,
        first=first,
        others=others,
        sweeps=[
            SimpleNamespace(svg=inline_svg(svg, f"sweep{number}", label), label=label, caption=caption)
            for number, (label, svg, caption) in enumerate(sweeps)
        ],
        entries={entry.method: entry for one in every for entry in one.entries}.values(),
        runs=runs,
        made_with=dict.fromkeys([*versions, *(record.device for record in records), days[0], days[-1]]),
    )


def _part(comparison: Comparison, anchor: str, heading: str) -> SimpleNamespace:
    """A comparison on the page: a ranking per feature file and setting; of several files also their averages."""
    averaged = comparison.groups[1:] and not any(group.same_name for group in comparison.groups)
    blocks = [
        SimpleNamespace(
            anchor=f"{anchor}-g{number}",
            group=group,
            answers=overall,
            short=in_short(comparison, group) if group else "",
            panels=[_panel(comparison, group, column, overall) for column in _common_columns(comparison, group)],
        )
        for number, group in enumerate([*comparison.groups, *([None] if averaged else [])], start=1)
        for overall in [answers(comparison, group) if group else []]
    ]
    return SimpleNamespace(
        anchor=anchor, heading=heading, comparison=comparison, blocks=blocks, unranked=unranked(comparison)
    )


def _common_columns(comparison: Comparison, group: Group | None) -> list[Setting]:
    """The settings that a feature file has runs of, or all of them have."""
    ran = [{at for _, at in one.cells} for one in ([group] if group else comparison.groups)]
    return [column for column in comparison.columns if all(column in columns for columns in ran)]


def _panel(comparison: Comparison, group: Group | None, column: Setting, overall: Sequence[Answer]) -> SimpleNamespace:
    """The ranking in one setting: of one feature file, or over all of them; what to use is as in the answer to all."""
    prefer = next((one.method for one in overall if column in one.columns), "")
    board = leaderboard(comparison, [group] if group else None, [column])
    results = [row.standings[0].cell for row in board.rows if group and row.standings[0]]
    return SimpleNamespace(
        setting=setting_words(column), column=column, board=board,
        axis=clipped_axis([cell.value for cell in results]) if results else None,
        published=any(cell.published for cell in results),
        marked=bool(group and column not in group.undecided),
        answers=answers(comparison, group, [column], prefer) if group else [],
        absent=sorted(comparison.rows.keys() - {row.title for row in board.rows}),
    )  # fmt: skip


def run_anchor(record: Record) -> str:
    """The identifier of a run's row, which numbers link to."""
    return f"r-{digest([record.run.digest, *record.source])[:12]}"


def method_anchor(method: str) -> str:
    """The identifier of what the page says of a method."""
    return f"m-{digest(method)[:12]}"


def origins(row: Row) -> list[str]:
    """Where the parameters of a method come from, in a word or two."""
    origins = [standing.cell.record.origins for standing in row.standings if standing]
    kinds = dict.fromkeys(kind for one in origins for kind in (one.kind, *(["given"] if one.by_hand else [])))
    return [_ORIGINS[kind] for kind in kinds if kind in _ORIGINS]


def parameters(record: Record) -> str:
    """The parameters of a run, in short."""
    values = record.run.params.items()
    words = [f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values]
    return ", ".join(words) or "none"


def tone(metric: Metric, value: float, significant: bool) -> str:
    """The class of a difference: gain or loss; faint where it is not significant."""
    if not significant:
        return "faint"
    return "" if value == 0 else "gain" if (value > 0) == metric.higher_is_better else "loss"


def on_axis(value: Interval, axis: tuple[float, float]) -> tuple[float, float, float] | None:
    """Mean, lower end and width in percent of an axis; None below it."""
    low, high = axis
    if value.mean < low:
        return None
    half = 0.0 if math.isnan(value.half_width) else value.half_width
    ends = max(value.mean - half, low), min(value.mean + half, high)
    at, left, right = (100 * (place - low) / (high - low) for place in (value.mean, *ends))
    return at, left, right - left


def inline_svg(text: str, prefix: str, label: str) -> Markup:
    """An SVG written by matplotlib, prepared for a page with several of them.

    Its identifiers become the prefix and a number, so that no two figures share one. The label says what the figure
    shows, for screen readers.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):  # a style element inside a figure would hold for the whole page
        for child in [child for child in parent if _local(str(child.tag)) in ("metadata", "style")]:
            parent.remove(child)
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    names = {name: f"{prefix}-{number}" for number, name in enumerate(ids, start=1)}
    for element in root.iter():
        element.tag = _local(str(element.tag))
        element.attrib = {_local(name): _changed(_local(name), value, names) for name, value in element.attrib.items()}
    width = root.attrib.pop("width", "").removesuffix("pt") or 600
    root.attrib.pop("height", None)
    root.attrib |= {"role": "img", "aria-label": label, "stroke-linejoin": "round", "style": f"--width: {width}pt"}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    """The name without its namespace, which HTML does not need."""
    return name.rpartition("}")[2]


def _changed(name: str, value: str, names: Mapping[str, str]) -> str:
    if name in ("id", "href") and not value.startswith("data:"):  # an embedded image
        return names[value] if name == "id" else "#" + names[value.removeprefix("#")]
    return re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{names[match[1]]})", value).replace(INK, "currentColor")
