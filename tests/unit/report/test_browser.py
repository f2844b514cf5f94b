"""The report in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fsbench.report.html import render_html
from fsbench.results.collect import collect
from tests.browser import CHROMIUM, Page, browser
from tests.records import four_settings, make_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

FIRST = "Array.from(document.querySelector('table.accuracies').tBodies[0].rows, row => row.cells[{}].innerText)"
HEAD = "document.querySelectorAll('table.accuracies')[0].tHead.rows[0].cells[{}]"
OVERFLOWING = """
Array.from(document.querySelectorAll('body *')).filter(
  (part) => !part.closest('.scroll, .skip') && part.getBoundingClientRect().right > innerWidth + 0.5
).map((part) => part.tagName + '.' + part.className)
"""
# Contrast of text on the page's ground, by the formula of WCAG.
CONTRAST = """
(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const places = 'h1 .lede li>a td .difference .difference.faint .published caption svg small';
  return places.split(' ')
    .map((where) => {
      const ink = light(getComputedStyle(document.querySelector(where)).color);
      return [where, (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05)];
    });
})()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = "z-feature-file-with-a-name-that-does-not-end-and-has-no-place-to-break-it-anywhere"
    records = [
        record
        for number, name in enumerate(("ncm", "pt-map", "soft-kmeans", "bavardage"))
        for record in four_settings(name, 0.6 + 0.001 * number, dataset="mini", backbone="rn18")
    ]
    records += [make_record("tim-gd", dataset="mini", backbone="rn18"), make_record(dataset=long, features="e" * 64)]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_html(collect(records)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
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
    assert min(ratio for _, ratio in tab.run(CONTRAST)) >= 4.5, tab.run(CONTRAST)
    dark = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
    assert dark == (scheme == "dark")


def test_a_header_sorts_by_mouse_and_by_keyboard(tab: Page, report: Path) -> None:
    tab.show(1280, 900, "light")
    tab.open(report)
    written = tab.run(FIRST.format(0))
    assert [name.split()[0] for name in written] == [
        *("ncm", "pt-map", "tim-gd", "soft-kmeans", "bavardage"),
        "MAML",
        "Versa",
    ]
    click = HEAD.format(3) + ".querySelector('button').click()"  # unbalanced 5-shot, where TIM did not run
    tab.run(click)
    falling = [float(text.split()[0]) for text in tab.run(FIRST.format(3))[:4]]
    assert falling == sorted(falling, reverse=True)
    assert tab.run(HEAD.format(3) + ".ariaSort") == "descending"
    order = tab.run(FIRST.format(0))
    assert order != written
    tab.run(HEAD.format(3) + ".querySelector('button').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    assert tab.run(HEAD.format(3) + ".ariaSort") == "ascending"
    assert tab.run(FIRST.format(0))[:4] == order[:4][::-1]
    assert tab.run(FIRST.format(0))[4:] == order[4:]  # what did not run stays at the end
    tab.run(HEAD.format(0) + ".querySelector('button').click()")
    assert tab.run(HEAD.format(3) + ".ariaSort") is None
    assert tab.run(FIRST.format(0)) == sorted(written, key=str.lower)


def test_a_signature_can_be_copied(tab: Page, report: Path) -> None:
    tab.open(report)
    tab.run("document.querySelector('.copier').click()")
    signature = tab.run("document.querySelector('code.copy').textContent")
    assert tab.run("getSelection().toString()") == signature
    assert signature.startswith("fsbench:0.1.0|")


def test_every_control_can_be_reached_and_has_a_name(tab: Page, report: Path) -> None:
    tab.open(report)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert {"banner", "main", "contentinfo", "navigation"} <= {role for role, _ in roles}
    for role, name in roles:
        if role in {"button", "link", "region", "image", "img", "navigation"}:
            assert name.strip(), role
