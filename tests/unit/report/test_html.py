from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from fsbench.report.html import render_html
from fsbench.report.html.svg import inline_svg
from fsbench.report.plots.comparison import draw_dots
from fsbench.report.plots.style import INK, svg_text
from fsbench.report.render import render_json
from fsbench.results.collect import collect, split_ablations
from fsbench.results.record import OwnMethod
from tests.records import four_settings, make_record

if TYPE_CHECKING:
    from fsbench.results.comparison import Comparison

VOID = {"meta", "link", "wbr", "br", "hr", "img", "input"}
WIDTHS = (14, 6, 8, 5, 4, 2)  # runs, environment, leaderboards, feature files
HOSTILE = "<script>alert(1)</script>'\"&"


class Page(HTMLParser):
    """Reads a page, and refuses one whose tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert len({name for name, _ in attrs}) == len(attrs)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "aria-labelledby", "clip-path"} or "url(" in (value or ""):
                self.links.append(value or "")


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    """Three lists of tasks, two feature files, published numbers, gaps, and a name that bites."""
    records = [record for method in ("ncm", "soft-kmeans", "bavardage") for record in four_settings(method, 0.6)]
    records += [
        make_record(method, features="e" * 64, dataset="mini", backbone="wrn") for method in ("ncm", "bavardage")
    ]
    records += [make_record("ncm", tasks=1), make_record(HOSTILE, seed=3, features="c" * 64, dataset=HOSTILE)]
    return collect(records)


@pytest.fixture(scope="module")
def text(comparisons: list[Comparison]) -> str:
    drawn = [("Sweep of <τ>", svg_text(draw_dots(comparisons[0])), "fsbench:0.1.0|<τ>")] * 2
    return render_html(comparisons, [], {"Sweeps": drawn, "Tuning": []}, title="A & B", study=f"# {HOSTILE}")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_is_sound(page: Page) -> None:
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    assert (page.tags["h1"], page.tags["main"], page.tags["header"], page.tags["footer"]) == (1, 1, 1, 1)
    assert page.tags["h2"] == 3 + 5  # comparisons, sweeps, methods, runs, environment, study; none without figures
    assert page.tags["table"] == page.tags["caption"] == 3 + 4 + 2
    assert len({len(row) for row in page.rows if row[0] == "method"}) > 1
    assert {*WIDTHS} >= {len(row) for row in page.rows}


def test_every_reference_stays_within_the_page_except_those_to_articles(page: Page) -> None:
    assert len(page.links) > 50
    articles = [link for link in page.links if link.startswith("https:")]
    assert articles == [
        *(f"https://arxiv.org/abs/{number}" for number in ("1703.05175", "1302.1552", "2209.08527")),
    ]  # ncm, soft-kmeans, bavardage
    for link in (link for link in page.links if link not in articles):
        targets = re.findall(r"url\(#([^)]+)\)", link) or [link.removeprefix("#")]
        assert link == "data:," or {*targets} <= {*page.ids}, link


def test_nothing_is_fetched(text: str) -> None:
    body = re.sub(r"<a href='https://[^']+'>", "", text.replace("</", "").partition("<script>")[0])  # only when clicked
    assert not re.search(r"https?:|//\w|@import|url\((?!#)", body)
    assert "default-src 'none'" in text


def test_all_numbers_of_the_json_rendering_are_there(comparisons: list[Comparison], page: Page) -> None:
    cells = Counter(cell for row in page.rows for cell in row)
    told = [" ".join(row) for row in page.rows]
    rows: list[dict[str, Any]] = [row for comparison in comparisons for row in json.loads(render_json(comparison))]
    assert len(rows) == 12 + 2 + 1 + 1 + 0
    for row in rows:
        for name in ("accuracy", "ci95", "difference", "difference_ci95", "published", "published_ci95"):
            if row[name] is not None:
                number = f"{abs(row[name]):.2f}"
                assert any(row["method"] in line and number in line for line in told), (name, number)
        if row["signature"]:
            assert cells[row["signature"]] >= 1
            assert any(f"{row['tasks_per_second']:,.0f}" in line and row["signature"] in line for line in told)
        if row["p_value_holm"] is not None:
            assert any(f"{row['p_value_holm']:.2g}" in line and row["signature"] in line for line in told)


def test_the_best_and_what_ties_with_it_are_marked_as_in_compare(comparisons: list[Comparison], page: Page) -> None:
    first = comparisons[0]
    cells = [cell for group in first.groups for cell in group.cells.values()]
    assert any(cell.tied for cell in cells)
    names = [entry.label for entry in first.entries]
    main = [row for row in page.rows if len(row) == 5 and row[0] != "method"]
    assert {next(name for name in names if row[0].startswith(name)) for row in main} == {*names}
    text = "".join("".join(row[1:]) for row in page.rows if len(row) in {2, 5} and row[0].startswith(tuple(names)))
    marks = [cell for one in comparisons for group in one.groups for cell in group.cells.values()]
    assert text.count("▲") == sum(cell.best for cell in marks) - 1  # the hostile name is in a table of its own
    assert text.count("*") == sum(cell.tied for cell in cells)


def test_signs_of_differences_and_what_is_not_significant(comparisons: list[Comparison], page: Page) -> None:
    first = comparisons[0]
    cell = first.groups[0].cells["ncm", first.columns[0]]
    assert cell.difference is not None
    shown = next(row for row in page.rows if row[0].startswith("ncm") and len(row) == 5)[1]
    sign = "−" if cell.difference.mean < 0 else "+"
    assert f"{sign}{abs(cell.difference.mean):.2f} ± {cell.difference.half_width:.2f}" in shown
    assert ("(" in shown) == (cell.p_value is not None and cell.p_value >= 0.05)


def test_names_that_bite_are_escaped(text: str, page: Page) -> None:
    assert page.tags["script"] == 1
    assert "<script>alert" not in text
    assert any(HOSTILE in cell for row in page.rows for cell in row)
    assert "<h1>A &amp; B</h1>" in text
    assert "<figcaption>fsbench:0.1.0|&lt;τ&gt;</figcaption>" in text


def test_the_same_records_give_the_same_page() -> None:
    records = [make_record("ncm"), make_record("soft-kmeans")]
    assert render_html(collect(records)) == render_html(collect(records[::-1]))


def test_figures_take_the_colours_of_the_page(text: str, page: Page) -> None:
    assert page.tags["svg"] == 1 + 1 + 2  # speed, one of differences, two of sweeps
    assert INK not in text.partition("<main")[2]
    assert "currentColor" in text
    assert page.tags["style"] == 1


def test_the_method_drawn_against_the_baseline_is_the_one_that_gains_most() -> None:
    records = [
        *(
            record
            for name, right in (("ncm", 0.8), ("pt-map", 0.7), ("soft-kmeans", 0.6))
            for record in four_settings(name, right)
        ),
        make_record("tim-gd", 0.95),
    ]
    assert "ncm minus soft-kmeans, task by task" in render_html(collect(records))


def test_a_figure_gets_identifiers_of_its_own() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt" height="9pt">'
        f'<style>*{{x:y}}</style><path id="a" style="fill: {INK}"/><use xlink:href="#a" clip-path="url(#b)"/>'
        '<text>id="a" url(#b)</text><clipPath id="b"/></svg>'
    )
    found = inline_svg(svg, "p", 'a "label"')
    assert 'id="p-1" style="fill: currentColor"' in found
    assert 'href="#p-1" clip-path="url(#p-2)"' in found
    assert '<clipPath id="p-2" />' in found
    assert '<text>id="a" url(#b)</text>' in found
    assert "<style" not in found
    assert "xlink" not in found
    assert 'aria-label="a &quot;label&quot;"' in found


@pytest.mark.parametrize("name", ["page.css", "page.js"])
def test_the_files_of_the_page_are_package_data(name: str, text: str) -> None:
    assert resources.files("fsbench.report.html").joinpath(name).read_text(encoding="utf-8") in text


def test_every_number_links_to_its_run_and_every_name_to_its_method(page: Page, comparisons: list[Comparison]) -> None:
    runs = [link for link in page.links if link.startswith("#r-")]
    records = [record for comparison in comparisons for record in comparison.records]
    assert len(runs) == 2 * len(records)  # in the leaderboard and in the table of the feature file
    assert len({*runs}) == len(records) == sum(name.startswith("r-") for name in page.ids)
    assert {link[1:] for link in page.links if link.startswith("#m-")} <= {*page.ids}
    commands = {cell for row in page.rows for cell in row if cell.startswith("fsbench solve ")}
    assert len(commands) == len(records)


def test_no_record_is_dropped_or_renamed_where_ablations_are_apart() -> None:
    records = [make_record("ncm"), make_record("soft-kmeans"), make_record("bavardage")]
    records.append(make_record("bavardage", 0.6, params={"stage": "vb"}, params_from="default + given:stage"))
    ranking, studied = split_ablations(records)
    read = Page(render_html(collect(ranking), collect(studied)))
    listed = [row for row in read.rows if len(row) == 14 and row[0] != "features"]
    assert sorted(row[-1] for row in listed) == sorted(record.signature for record in records)
    assert [row[1] for row in listed] == ["ncm", "soft-kmeans", "bavardage", "bavardage stage=vb"]
    (head,) = [row for row in read.rows if len(row) == 4 and row[0].startswith("bavardage stage=vb")]
    assert "set by hand" in head[0]


def test_a_method_of_your_own_is_described_by_its_records() -> None:
    own = OwnMethod("My <b>", "me, 2026", True, "free", False, "free prior", "javascript:alert(1)")
    records = [make_record("mine.py:Mine@0123abcd", own_method=own), make_record("old.py:Old@0123abcd")]
    text = render_html(collect(records))
    assert "My &lt;b&gt; <code>mine.py:Mine@0123abcd</code>" in text
    assert "me, 2026. Transductive, class prior estimated, uses no base classes; version 1." in text
    assert "Its records do not describe it." in text
    assert "javascript:" not in text
    linked = dataclasses.replace(own, url="https://example.org/mine")
    assert "href='https://example.org/mine'" in render_html(collect([make_record("mine.py:Mine@1", own_method=linked)]))


def test_badges_and_warnings() -> None:
    origins = {"ncm": "default", "pt-map": "tuned:val:grid:9x50", "soft-kmeans": "default", "bavardage": "preset:mini"}
    rights = {"ncm": 0.8, "pt-map": 0.22, "soft-kmeans": 0.8, "bavardage": 0.8}
    records = [make_record(name, rights[name], params_from=origin) for name, origin in origins.items()]
    text = render_html(collect(records))
    rows = {row[0].partition("<")[0]: row for row in Page(text).rows if len(row) == 4}
    names = {name: next(first for first in rows if first.startswith(name)) for name in origins}
    assert names == {
        "ncm": "ncminductivedefault",
        "pt-map": "pt-maptransductiveuniform priortuned",
        "soft-kmeans": "soft-kmeanstransductiveno priordefaultbaseline",
        "bavardage": "bavardagetransductivefree priorarticle’s preset",
    }
    assert "near chance" in text
    assert "warning" in rows[names["pt-map"]][3]
    assert "−" in rows[names["pt-map"]][3]
    assert "class='baseline loss'" in text
