from __future__ import annotations

import io
import re
import time

import pytest

from fsbench.reporter import Reporter, SafeConsole


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


def test_cells_have_one_count_and_the_time_left_for_all(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().cells(4, 600) as next_cell:
        next_cell("read from a record")(600)
        for label in ("second", "third"):
            advance = next_cell(label)
            for _ in range(2):
                clock[0] += 20
                advance(300)
    assert capsys.readouterr().err.splitlines() == [
        "cell 2 of 4: second: 1,200 of 2,400, 15.0/s, 0:01:20 left",
        "cell 3 of 4: third: 1,800 of 2,400, 15.0/s, 0:00:40 left",
    ]


def test_the_time_left_is_by_the_speed_of_the_present_method_and_the_average_of_all(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Reporter().cells(4, 100) as next_cell:
        for label, seconds in (("fast", 1), ("slow", 99), ("fast", 1), ("slow", 99)):
            advance = next_cell(label)
            for _ in range(2):
                clock[0] += seconds / 2
                advance(50)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "cell 2 of 4: slow: 150 of 400, 1.0/s, 0:01:57 left",
        "cell 2 of 4: slow: 200 of 400, 1.0/s, 0:01:40 left",
    ]
    assert lines[-1] == "cell 4 of 4: slow: 350 of 400, 1.0/s, 0:00:50 left"


def test_a_cell_with_fewer_steps_counts_as_a_whole_one(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().cells(3, 100) as next_cell:
        for label, steps in (("one task in ten", 10), ("second", 100), ("third", 50)):
            advance = next_cell(label)
            clock[0] += steps
            advance(steps)
    assert capsys.readouterr().err.splitlines()[-1] == "cell 3 of 3: third: 250 of 300, 1.0/s, 0:00:50 left"


def test_the_speed_follows_the_last_half_minute(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().bar("label", 100_000) as advance:
        for _ in range(10):
            clock[0] += 20
            advance(20)
        for _ in range(10):
            clock[0] += 20
            advance(2000)
    rates = [float(rate) for rate in re.findall(r"([\d.]+)/s", capsys.readouterr().err)]
    assert rates[0] == 1.0
    assert rates[-1] > 95  # the mean since the start would be 50


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_a_bar_fits_the_terminal_and_keeps_the_time_left(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter()
    reporter.console = SafeConsole(file=io.StringIO(), force_terminal=True, width=width, legacy_windows=False)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    drawn = ""
    with (
        reporter.cells(64, 10_000) as next_cell,
        reporter.bar("tinyimagenet 5-shot tuning bavardage on val", 50) as inner,
    ):
        advance = next_cell("tinyimagenet unbalanced α=2 1-shot bavardage:transport")
        now[0] += 10
        advance(2_500)
        inner(5)
        assert reporter._drawn is not None
        paper = SafeConsole(file=io.StringIO(), width=width)
        paper.print(reporter._drawn.get_renderable())
        drawn = paper.file.getvalue()  # type: ignore[attr-defined]
    first, second = drawn.splitlines()[:2]
    assert max(map(len, (first, second))) <= width
    assert first.startswith("cell 1 of 64")
    assert first.rstrip().endswith("0:42:30 left")
    assert second.startswith("tinyimagenet")
    assert ("250/s" in first) is (width >= 85)


@pytest.mark.parametrize("reporter", [Reporter(quiet=True), Reporter(silent=True)])
def test_quiet_is_quiet(reporter: Reporter, clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with reporter.bar("label", 10) as advance:
        clock[0] += 100
        advance(1)
    assert capsys.readouterr().err == ""
