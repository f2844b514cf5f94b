from __future__ import annotations

import time

import pytest

from fsbench.reporter import Reporter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_when_nothing_was_said_for_long(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter()
    for label in ("first", "second"):
        with reporter.bar(label, 1200) as advance:
            for _ in range(4):
                clock[0] += 10
                advance(300)
    assert capsys.readouterr().err.splitlines() == [
        "first: 900 of 1,200, 30.0/s, 0:00:10 left",
        "second: 600 of 1,200, 30.0/s, 0:00:20 left",
    ]


def test_a_total_may_become_known_late(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().bar("label", 0) as advance:
        clock[0] += 100
        advance(1)
        advance(0, 4000)
    assert capsys.readouterr().err == "label: 1 of 4,000, 0.0/s, 4 days, 15:05:00 left\n"


@pytest.mark.parametrize("reporter", [Reporter(quiet=True), Reporter(silent=True)])
def test_quiet_is_quiet(reporter: Reporter, clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with reporter.bar("label", 10) as advance:
        clock[0] += 100
        advance(1)
    assert capsys.readouterr().err == ""
