"""labels.html in a real browser: what is shown, decided, downloaded, and given back as support."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fsbench.data.dataset import content_hash
from fsbench.labelling.images import labelled_files
from fsbench.labelling.page import write_page
from fsbench.labelling.run import Expected, Labels, Row
from fsbench.reporter import Reporter
from tests.browser import Page

EVIL = "</script><script>document.title='run'</script><b>&\"'"
CLASSES = ("-bee", "ant", EVIL)
CARDS = "Array.from(document.querySelectorAll('.card'), (card) => card.title)"
SHOW = (
    "document.querySelector('#view').value = '{}'; document.querySelector('#view').dispatchEvent(new Event('change'))"
)
LATER = "new Promise((done) => setTimeout(done, 3000))"  # Chromium stores what a page keeps a little later


def row(number: int) -> Row:
    flags = {0: "uncertain", 1: "unlike any class", 2: "near-duplicate of photos/0003.png", 299: "checked"}
    label, sure = CLASSES[number % 3], 1.0 if number == 299 else 0.4 + number / 600
    return Row(f"photos/{number:04d}.png", label, sure, CLASSES[(number + 1) % 3], 0.1, 0.5, flags.get(number, ""))


def small(folder: Path, *rows: Row, labelled: dict[str, str]) -> Path:
    """A page of a few images with one content."""
    for one in rows:
        Image.new("RGB", (40, 30)).save(folder / Path(one.file).name)
    rows = tuple(replace(one, file=str(folder / one.file)) for one in rows)
    labelled = {str(folder / file): name for file, name in labelled.items()}
    labels = Labels(rows, CLASSES, labelled, {one.file: "one" for one in rows}, "ncm")
    write_page(labels, folder / "labels.html", Reporter(True))
    return folder / "labels.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "photos").mkdir()
    rows = [row(number) for number in range(300)]
    rows.append(Row("photos/broken.png", flag="not readable: it is not an image"))
    for number, one in enumerate([*rows[:300], Row("photos/known,1.png"), Row("photos/known2.png")]):
        Image.new("RGB", (40, 30), (number % 256, 90, 90)).save(folder / one.file)
    labelled = {str(folder / "photos/known,1.png"): "ant", str(folder / "photos/known2.png"): EVIL}
    rows = [Row(str(folder / one.file), *list(vars(one).values())[1:]) for one in rows]
    hashes = {one.file: one.file for one in rows} | {one: content_hash(Path(one).read_bytes()) for one in labelled}
    suggested = rows[40].file, rows[7].file, rows[90].file
    expected = Expected({"ant": (3, 4), EVIL: (1, 4)}, {"-bee": 0.2, "ant": 0.4, EVIL: 0.4})
    labels = Labels(rows, CLASSES, labelled, hashes, "ncm", expected, (0.0, 0.4), suggested)
    write_page(labels, folder / "labels.html", Reporter(True))
    return folder / "labels.html"


@pytest.fixture
def tab(browser_tab: Page, page: Path) -> Page:
    browser_tab.show(1400, 900, "light")
    browser_tab.open(page)
    browser_tab.run("localStorage.clear()")
    browser_tab.open(page)
    return browser_tab


def press(tab: Page, key: str) -> None:
    text: dict[str, Any] = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
    tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
    tab.call("Input.dispatchKeyEvent", type="keyUp", key=key)


def downloaded(tab: Page, folder: Path) -> dict[str, str]:
    """The checked labels of the table that the page gives."""
    tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    tab.run("document.querySelector('#download').click()")
    tab.run(LATER)
    labels = labelled_files([folder / "labels.csv"], "photos", Reporter(True))
    return {Path(file).stem: label for file, label in labels.items()}


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_loads_quietly_fits_and_runs_no_foreign_text(tab: Page, page: Path, width: int) -> None:
    tab.show(width, 800, "dark")
    tab.open(page)
    for view in ("suggested", "all", "class2"):
        tab.run(SHOW.format(view))
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        assert tab.run("Array.from(document.images).every((image) => !image.src || image.naturalWidth > 0)")
    assert tab.run("document.querySelector('#grid h2').textContent").startswith(EVIL)
    assert tab.run("document.title") == "301 images, 3 classes"
    assert tab.is_quiet(page)


def test_views_show_what_needs_attention_first_and_more_images_while_scrolling(tab: Page) -> None:
    assert [Path(file).stem for file in tab.run(CARDS)] == ["0040", "0007", "0090"]
    tab.run(SHOW.format("unlike"))
    assert [Path(file).stem for file in tab.run(CARDS)] == ["0001"]
    tab.run(SHOW.format("class0"))
    stems = [Path(file).stem for file in tab.run(CARDS)]
    assert stems == sorted(stems)  # least certain first
    tab.run(SHOW.format("all"))
    before = len(tab.run(CARDS))
    assert before < 299
    for _ in range(3):
        tab.run("window.scrollTo(0, document.body.scrollHeight)")
        tab.run("new Promise((done) => setTimeout(done, 200))")
    assert len(tab.run(CARDS)) == 299  # without the checked and the broken one
    tab.run("limit.value = 50; limit.dispatchEvent(new Event('input'))")
    assert len(tab.run(CARDS)) == 61


def test_decisions_by_keyboard_and_mouse_are_downloaded_and_go_back_in(tab: Page, page: Path, tmp_path: Path) -> None:
    tab.run("document.querySelector('.card').focus()")
    press(tab, "Enter")  # 0040 as it is
    press(tab, "n")  # 0007 none of these
    press(tab, "2")  # 0090 the second label
    tab.run(SHOW.format("uncertain"))
    tab.run("document.querySelector('.card').click()")  # 0000 by its name
    for letter in "ant":
        press(tab, letter)
    press(tab, "Enter")
    assert tab.run("document.querySelector('#status').textContent") == "4 of 299 checked"
    tab.run(SHOW.format("unlike"))
    tab.run("document.querySelector('#accept').click(); document.querySelector('#undo').click()")
    assert tab.run("document.querySelector('#status').textContent") == "4 of 299 checked"
    tab.run(LATER)  # the browser writes in the background
    tab.open(page)  # and nothing is lost
    assert tab.run("document.querySelector('#status').textContent") == "4 of 299 checked"
    assert downloaded(tab, tmp_path) == {
        "known,1": "ant", "known2": EVIL, "0040": "ant", "0007": "", "0090": "ant", "0000": "ant", "0299": EVIL,
    }  # fmt: skip
    written = (tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()
    assert written[0] == "file,label,confidence,second_label,second_confidence,outlier_score,flag,image"
    assert len(written) == 1 + 301 + 2
    assert json.dumps("'-bee")[1:-1] in written[6]  # a label that a spreadsheet would compute


def test_what_is_kept_in_the_browser_gives_way_to_what_was_given_as_labelled(tab: Page, tmp_path: Path) -> None:
    """Three images were decided in the page; two were corrected in the table, one of them a copy of the other."""
    asked = [Row(f"{name}.png", "ant", 0.9, "-bee", 0.1, 0.5) for name in ("copy", "other", "same")]
    tab.open(small(tmp_path, *asked, labelled={}))
    tab.run(f"{SHOW.format('all')}; document.querySelector('#accept').click()")
    assert tab.run("document.querySelector('#status').textContent") == "3 of 3 checked"
    tab.run(LATER)
    copy, same = Row("copy.png", "-bee", 1.0, flag="copy of same.png"), Row("same.png", "-bee", 1.0, flag="checked")
    tab.open(small(tmp_path, copy, asked[1], same, labelled={"copy.png": "-bee", "same.png": "-bee"}))
    assert tab.run("document.querySelector('#status').textContent") == "1 of 2 checked"
    tab.run(SHOW.format("all"))
    words = "Array.from(document.querySelectorAll('.card span'), (span) => span.textContent)"
    assert tab.run(words)[:3] == ["100 %", "copy of same.png", "checked"]
    assert downloaded(tab, tmp_path) == {"other": "ant", "same": "-bee"}
    assert f"{tmp_path / 'copy.png'},'-bee,1.0000" in (tmp_path / "labels.csv").read_text(encoding="utf-8")
