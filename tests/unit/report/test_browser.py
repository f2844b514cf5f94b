"""The report in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsbench.report.page import render_html
from fsbench.report.plots.comparison import draw_speed
from fsbench.report.plots.style import svg_text
from fsbench.results.collect import collect
from tests.browser import CHROMIUM, MISSING, Page, browser
from tests.records import four_settings, make_record

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

PLACES = "Array.from(document.querySelector('table.leaderboard').tHead.rows[0].cells).slice(3)"
RANKED = """
Array.from(document.querySelector('table.leaderboard').tBodies[0].rows, (row) =>
  [row.cells[0].querySelector('a').innerText, row.cells[1].innerText, row.cells[2].innerText])
"""
CHOOSE = """
(() => {{
  const choice = document.querySelector('{}');
  choice.value = '{}';
  choice.dispatchEvent(new Event('change', {{ bubbles: true }}));
}})()
"""
FIRST = "Array.from(document.querySelector('table.accuracies').tBodies[0].rows, row => row.cells[{}].innerText)"
HEAD = "document.querySelectorAll('table.accuracies')[0].tHead.rows[0].cells[{}]"
OVERFLOWING = """
Array.from(document.querySelectorAll('body *')).filter(
  (part) => !part.closest('.scroll, .skip, nav ol') && part.getBoundingClientRect().right > innerWidth + 0.5
).map((part) => part.tagName + '.' + part.className)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = "z-feature-file-with-a-name-that-does-not-end-and-has-no-place-to-break-it-anywhere"
    mini: dict[str, Any] = {"dataset": "mini", "backbone": "rn18", "reference": "they", "url": "https://a.org/b"}
    records = [
        record
        for number, name in enumerate(("ncm", "pt-map", "soft-kmeans", "bavardage"))
        for record in four_settings(name, 0.6 + 0.001 * number, **mini)
    ]
    records += [make_record("tim-gd", **mini), make_record("paddle", 0.2, **mini)]
    records += [make_record(dataset=long, features="e" * 64), make_record("ncm", tasks=30, seed=1)]
    path = tmp_path_factory.mktemp("report") / "report.html"
    comparisons = collect(records)
    drawn = [("Accuracy over speed", svg_text(draw_speed(comparisons[0])), "caption")]
    path.write_text(render_html(comparisons, studies={"Sweeps": drawn}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def tab(browser_tab: Page, report: Path) -> Page:
    """The report in a wide window."""
    browser_tab.show(1400, 900, "light")
    browser_tab.open(report)
    return browser_tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_loads_quietly_and_fits(tab: Page, report: Path, width: int, scheme: str) -> None:
    tab.show(width, 900, scheme)
    tab.open(report)
    tab.run("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert tab.run("innerWidth") == width
    assert tab.run(OVERFLOWING) == []
    for kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
        assert tab.seen(kind) == []
    requests = [event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")]
    assert [url for url in requests if url != "data:,"] == [report.as_uri()]
    dark = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
    assert dark == (scheme == "dark")


def test_a_header_sorts_by_mouse_and_by_keyboard(tab: Page) -> None:
    written = tab.run(FIRST.format(0))
    assert {name.split()[0] for name in written} == {"ncm", "pt-map", "tim-gd", "paddle", "soft-kmeans", "bavardage"}
    tab.run(HEAD.format(2) + ".querySelector('button').click()")  # unbalanced 5-shot, where TIM and PADDLE did not run
    falling = [float(text.split()[0]) for text in tab.run(FIRST.format(2))[:4]]
    assert falling == sorted(falling, reverse=True)
    assert tab.run(HEAD.format(2) + ".ariaSort") == "descending"
    order = tab.run(FIRST.format(0))
    tab.run(HEAD.format(2) + ".querySelector('button').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    assert tab.run(HEAD.format(2) + ".ariaSort") == "ascending"
    assert tab.run(FIRST.format(0)) == [*order[:4][::-1], *order[4:]]  # what did not run stays at the end
    tab.run(HEAD.format(0) + ".querySelector('button').click()")
    assert tab.run(HEAD.format(2) + ".ariaSort") is None
    assert tab.run(FIRST.format(0)) == sorted(written, key=str.lower)


def test_every_control_has_a_name_and_a_signature_can_be_copied(tab: Page) -> None:
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert {"banner", "main", "contentinfo", "navigation"} <= {role for role, _ in roles}
    named = {"button", "link", "region", "image", "img", "navigation"}
    assert [role for role, name in roles if role in named and not name.strip()] == []
    tab.run("document.querySelector('.copier').click()")
    signature = tab.run("document.querySelector('code.copy').textContent")
    assert tab.run("getSelection().toString()") == signature
    assert signature.startswith("fsbench:0.1.0|")


def test_filters_hide_columns_and_rank_what_is_left(tab: Page) -> None:
    shown = f"{PLACES}.filter((head) => !head.hidden)"
    assert (tab.run(f"{shown}.length"), tab.run(f"{PLACES}.length")) == (5, 5)
    written = tab.run(RANKED)
    tab.run(CHOOSE.format("[data-filter=shots]", "5"))
    assert tab.run(f"{shown}.map((head) => head.dataset.shots)") == ["5", "5"]
    ranked = tab.run(RANKED)
    assert ranked != written
    assert {name for name, average, _ in ranked if average == "–"} == {"tim-gd", "paddle"}
    averages = [float(average) for _, average, _ in ranked if average != "–"]
    assert averages == sorted(averages, reverse=True)
    assert sum(float(rank) for *_, rank in ranked if rank != "–") == pytest.approx(10, abs=0.2)
    tab.run(CHOOSE.format("[data-filter=shots]", ""))
    assert sorted(tab.run(RANKED)) == sorted(written)  # the script ranks as the page was written


def test_cells_show_what_is_chosen_in_different_colours(tab: Page) -> None:
    visible = "Array.from(document.querySelectorAll('table.leaderboard .{}'), (part) => part.offsetParent !== null)"
    for view in ("best", "baseline", "published"):
        tab.run(CHOOSE.format("#show", view))
        assert all(tab.run(visible.format(view)))
        assert not any(tab.run(visible.format("accuracy")))
    tab.run(CHOOSE.format("#show", "accuracy"))
    assert all(tab.run(visible.format("accuracy")))
    gain, loss = (tab.run(f"getComputedStyle(document.querySelector('.{kind}')).color") for kind in ("gain", "loss"))
    assert gain != loss
    tab.run("document.querySelector('table.leaderboard .accuracy a').click()")
    tab.run("new Promise((done) => setTimeout(done, 100))")
    assert tab.run("document.querySelector('#runs details').open")  # a number leads to its command
    assert tab.run("document.querySelector(':target code').textContent") == "fsbench solve features/mini.h5"
