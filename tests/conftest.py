"""Small seeded features that every test can use, and which tests `make fast` leaves out."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.browser import CHROMIUM, MISSING, Page, browser
from tests.synthetic import Features, make_features

HEAVY = ("trust", "cli/test_ranks.py", "cli/test_documents.py", "unit/methods/test_graph.py")

if os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(HEAVY):
            item.add_marker("heavy")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CHROMIUM is None:
        terminalreporter.write_line(f"WARNING: {MISSING}.", yellow=True, bold=True)


@pytest.fixture(scope="session")
def features() -> Features:
    return make_features()


@pytest.fixture(scope="session")
def browser_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page
