"""Counts of what the suites did, printed at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

COUNTS = pytest.StashKey[Counter[str]]()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Counter[str]:
    """Counts, by what was counted."""
    return request.config.stash.setdefault(COUNTS, Counter())


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    counts = terminalreporter.config.stash.get(COUNTS, Counter())
    if counts:
        terminalreporter.section("trust")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:9,}  {name}")
