"""The report in a real browser."""

from pathlib import Path
from typing import Any

import pytest

from fsbench.report.page import render_html
from fsbench.report.plots.comparison import draw_dots
from fsbench.report.plots.style import svg_text
from fsbench.results.collect import collect
from tests.browser import Page
from tests.records import four_settings, make_record

FIRST = "Array.from(document.querySelector('table.ranking').tBodies[0].rows, row => row.cells[{}].innerText)"
HEAD = "document.querySelector('table.ranking').tHead.rows[0].cells[{}]"
SHOWN = """
Array.from(document.querySelectorAll('.panel')).filter((panel) => panel.offsetParent).map((one) => one.dataset.setting)
"""
OVERFLOWING = """
Array.from(document.querySelectorAll('body *')).filter(
  (part) => !part.closest('.scroll, .skip, legend') && part.getBoundingClientRect().right > innerWidth + 0.5
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
    drawn = [("Accuracy", svg_text(draw_dots(comparisons[0])), "caption")]
    path.write_text(render_html(comparisons, sweeps=drawn), encoding="utf-8")
    return path


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
    assert tab.is_quiet(report)
    dark = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
    assert dark == (scheme == "dark")


def test_a_header_sorts_by_mouse_and_by_keyboard(tab: Page) -> None:
    written = tab.run(FIRST.format(0))
    assert {name.split()[0] for name in written} == {"ncm", "pt-map", "tim-gd", "paddle", "soft-kmeans", "bavardage"}
    tab.run(HEAD.format(1) + ".querySelector('button').click()")
    falling = [float(text.split()[0]) for text in tab.run(FIRST.format(1))]
    assert falling == sorted(falling, reverse=True)
    assert tab.run(HEAD.format(1) + ".ariaSort") == "descending"
    order = tab.run(FIRST.format(0))
    tab.run(HEAD.format(1) + ".querySelector('button').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    assert tab.run(HEAD.format(1) + ".ariaSort") == "ascending"
    assert tab.run(FIRST.format(0)) == order[::-1]
    tab.run(HEAD.format(0) + ".querySelector('button').click()")
    assert tab.run(HEAD.format(1) + ".ariaSort") is None
    assert tab.run(FIRST.format(0)) == sorted(written, key=str.lower)
    tab.run(HEAD.format(3) + ".querySelector('button').click()")
    assert tab.run(FIRST.format(3))[-1].strip() == ""  # the baseline has no difference to itself


def test_every_control_has_a_name_and_a_signature_can_be_copied(tab: Page) -> None:
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert {"banner", "main", "contentinfo", "navigation"} <= {role for role, _ in roles}
    named = {"button", "link", "region", "image", "img", "navigation"}
    assert [role for role, name in roles if role in named and not name.strip()] == []
    tab.run("document.querySelector('.signature .copier').click()")
    signature = tab.run("document.querySelector('.signature code.copy').textContent")
    assert tab.run("getSelection().toString()") == signature
    assert signature.startswith("fsbench:0.1.0|")


def test_tabs_choose_the_setting(tab: Page) -> None:
    settings = tab.run("Array.from(document.querySelectorAll('.tabs input'), (one) => one.value)")
    assert len(settings) == 4
    assert {*tab.run(SHOWN)} == {settings[0]}
    tab.run("document.querySelectorAll('.tabs input')[3].click()")
    assert tab.run(SHOWN).count(settings[3]) == 1
    assert settings[0] in tab.run(SHOWN)  # of a feature file that has no runs in the chosen one


def test_a_number_leads_to_its_command_and_differences_have_colours(tab: Page) -> None:
    gain, loss = (tab.run(f"getComputedStyle(document.querySelector('.{kind}')).color") for kind in ("gain", "loss"))
    assert gain != loss
    tab.run("document.querySelector('table.ranking .number a').click()")
    tab.run("new Promise((done) => setTimeout(done, 100))")
    assert tab.run("document.querySelector('#runs details').open")
    assert tab.run("document.querySelector(':target code').textContent") == "fsbench solve features/mini.h5"
