import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from fsbench.report.comparison import render
from fsbench.report.page import render_html
from fsbench.report.plots.comparison import draw_dots
from fsbench.report.plots.style import INK, svg_text
from fsbench.results.collect import collect
from fsbench.results.comparison import Comparison
from tests.records import TUNED, four_settings, make_record

VOID = {"meta", "link", "wbr", "br", "hr", "img", "input"}
URLS = {
    name: f"https://arxiv.org/abs/{number}"
    for name, number in (("ncm", "1703.05175"), ("soft-kmeans", "1302.1552"), ("bavardage", "2209.08527"))
}
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
    records = [record for method, url in URLS.items() for record in four_settings(method, 0.6, reference="x", url=url)]
    mini: dict[str, Any] = {"features": "e" * 64, "dataset": "mini", "backbone": "wrn"}
    records += [make_record(method, **mini) for method in ("ncm", "bavardage")]
    records.append(make_record("ncm", tasks=1, seed=1, reference="x", url=URLS["ncm"]))
    records.append(make_record(HOSTILE, seed=3, features="c" * 64, dataset=HOSTILE))
    return collect(records)


@pytest.fixture(scope="module")
def text(comparisons: list[Comparison]) -> str:
    drawn = [("Sweep of <τ>", svg_text(draw_dots(comparisons[0])), "fsbench:0.1.0|<τ>")] * 2
    return render_html(comparisons, [], drawn, title="A & B")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_is_sound(page: Page, text: str) -> None:
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    assert (page.tags["h1"], page.tags["main"], page.tags["header"], page.tags["footer"]) == (1, 1, 1, 1)
    assert page.tags["table"] == page.tags["caption"] > 4
    assert page.tags["svg"] == 2  # of sweeps
    assert INK not in text.partition("<main")[2]  # figures take the colours of the page
    assert "currentColor" in text
    for name in ("page.css", "page.js"):
        assert (resources.files("fsbench.report") / "html" / name).read_text(encoding="utf-8") in text
    assert "<script>alert" not in text
    assert any(HOSTILE in cell for row in page.rows for cell in row)
    assert "<h1>A &amp; B</h1>" in text
    assert "<figcaption>fsbench:0.1.0|&lt;τ&gt;</figcaption>" in text


def test_every_reference_stays_within_the_page_except_those_to_articles(page: Page, text: str) -> None:
    assert len(page.links) > 50
    articles = [link for link in page.links if link.startswith("https:")]
    assert articles == [*URLS.values()]
    for link in (link for link in page.links if link not in articles):
        targets = re.findall(r"url\(#([^)]+)\)", link) or [link.removeprefix("#")]
        assert link == "data:," or {*targets} <= {*page.ids}, link
    unlinked = re.sub(r'<a href="https://[^"]+">', "", text.replace("</", "").partition("<script>")[0])
    assert not re.search(r"https?:|//\w|@import|url\((?!#)", unlinked)  # nothing is fetched
    assert "default-src 'none'" in text


def test_all_numbers_of_the_json_rendering_are_there(comparisons: list[Comparison], page: Page) -> None:
    lines = [" ".join(row) for row in page.rows]
    rows: list[dict[str, Any]] = [row for comparison in comparisons for row in json.loads(render(comparison, "json"))]
    assert len(rows) == 12 + 2 + 1 + 1 + 0
    for row in rows:
        for name in ("accuracy", "ci95", "difference", "difference_ci95", "published", "published_ci95"):
            if row[name] is not None:
                number = f"{abs(row[name]):.2f}"
                assert any(row["method"] in line and number in line for line in lines), (name, number)
        assert any(row["signature"] in line and f"{row['tasks_per_second']:,.0f}" in line for line in lines)


def test_every_number_links_to_its_run_and_every_name_to_its_method(page: Page, comparisons: list[Comparison]) -> None:
    runs = [link for link in page.links if link.startswith("#r-")]
    records = [record for comparison in comparisons for record in comparison.records]
    assert len(runs) == len({*runs}) == len(records) == sum(name.startswith("r-") for name in page.ids)
    assert {link[1:] for link in page.links if link.startswith("#m-")} <= {*page.ids}
    commands = [cell for row in page.rows for cell in row if cell.startswith("fsbench solve ")]
    assert sorted(commands) == sorted(record.command for record in records)


def test_a_method_is_described_by_its_records() -> None:
    facts: dict[str, Any] = {"title": "My <b>", "reference": "me, 2026", "assumes": "free prior"}
    urls = {"mine.py:Mine@0123abcd": "javascript:alert(1)", "mine.py:Linked@1": "https://example.org/mine"}
    records = [make_record(name, **facts, url=url) for name, url in urls.items()]
    text = render_html(collect([*records, make_record("old.py:Old@0123abcd")]))
    assert "My &lt;b&gt; <code>mine.py:Mine</code>" in text
    assert "<dd>me, 2026.</dd>" in text
    assert "The records of this method do not describe it." in text
    assert "javascript:" not in text
    assert 'href="https://example.org/mine"' in text


def test_badges_and_warnings() -> None:
    runs: dict[str, dict[str, Any]] = {
        "ncm": {"right": 0.8},
        "simpleshot": {"params": {"norm": "L2N"}, "given": ("norm",)},  # a variant, not by hand
        "pt-map": {"right": 0.22, "tuning": TUNED},
        "soft-kmeans": {"right": 0.8},
        "bavardage": {"preset": "mini"},
        "paddle": {"params": {"lambd": 3.0}, "given": ("lambd",)},
    }
    text = render_html(collect([make_record(name, **changes) for name, changes in runs.items()]))
    rows = {row[0].strip(): row for row in Page(text).rows if len(row) == 6 and "±" in row[1]}
    assert {*rows} == {
        "ncminductive", "simpleshot:L2Ninductive", "pt-mapuniform priortuned", "soft-kmeansno priorbaseline",
        "bavardagefree priorarticle’s preset", "paddle lambd=3free priorset by hand",
    }  # fmt: skip
    assert "near chance" in text
    assert "warning" in rows["pt-mapuniform priortuned"][1]
    assert "−" in rows["pt-mapuniform priortuned"][3]
    assert '<span class="loss">' in text


def test_a_method_with_fewer_tasks_has_no_rank() -> None:
    text = render_html(collect([make_record("ncm"), make_record("pt-map"), make_record("soft-kmeans", tasks=15)]))
    assert text.count("<small>15 tasks, not ranked</small>") == 1
    assert '<code class="copy">fsbench solve features/glyphs.h5</code>' in text.partition("without a rank")[2]


def test_the_title_is_the_answer_and_averages_are_over_the_same_data_sets() -> None:
    names = {"ncm": 0.5, "pt-map": 0.6, "bavardage": 0.9}
    records = [make_record(name, right, tasks=400) for name, right in names.items()]
    assert "<h1>glyphs: bavardage</h1>" in render_html(collect(records))
    other = {"features": "e" * 64, "dataset": "hard", "tasks": 400}
    records += [make_record(name, right - 0.2, **other) for name, right in names.items() if name != "bavardage"]
    text = render_html(collect(records))
    assert "bavardage</dt><dd>Missing: hard, unbalanced α=2 1-shot." in text
    averages = [row for row in Page(text).rows if len(row) == 5]
    assert [row[0].strip() for row in averages] == ["method", "pt-mapuniform prior", "ncminductive"]
    means = [float(number.split()[0]) for number in averages[1][3:]]
    assert float(averages[1][1]) == pytest.approx(sum(means) / 2, abs=0.01)
    assert "Not run here: bavardage." in text
