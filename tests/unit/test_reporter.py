"""Progress in a log and on a terminal, and what is printed when quiet."""

import time

import pytest

from fsbench.reporter import Reporter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_after_a_long_silence(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    for label in ("first", "second"):
        with reporter.bar("", 1200) as advance:
            advance(0, label)
            for _ in range(4):
                clock[0] += 10
                advance(300)
    assert capsys.readouterr().err.splitlines() == [
        "first: 900 of 1,200, 30/s, 0:00:10 left",
        "second: 600 of 1,200, 30/s, 0:00:20 left",
    ]


def test_quiet_prints_warnings_alone_and_silent_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    for reporter, said in ((Reporter(quiet=True), "warning: told\n"), (Reporter(silent=True), "")):
        with reporter.bar("label", 10) as advance:
            clock[0] += 100
            advance(1)
        reporter.say("not told")
        reporter.warn("told")
        assert capsys.readouterr().err == said
