"""Runs are computed once: records are reused, extended, and never lost."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fsbench
from fsbench.errors import FsbenchError
from fsbench.evaluation import run as running
from fsbench.evaluation.engine import TaskList
from fsbench.evaluation.source import Source
from fsbench.features.store import Provenance
from fsbench.results.record import Record, load_record, save_record
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import job, runner, source_in_memory
from tests.synthetic import Features
from tests.watching import watch

SLOW: dict[str, Any] = {"method": "tim-gd", "options": {"steps": 2}}


@pytest.fixture(scope="module")
def source(features: Features) -> Source:
    own = source_in_memory(features)
    return replace(own, split=replace(own.split, digest="d" * 64))


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, range]]:
    """What is solved from now on: numbers of methods, and of tasks."""

    def piece(methods: Any, split: Any, base: Any, tasks: TaskList, **options: Any) -> tuple[int, range]:
        return len(methods), range(int(tasks.numbers[0]), int(tasks.numbers[-1]) + 1)

    return watch(monkeypatch, running, "solve", piece)


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_record_is_extended_or_read_in_part(source: Source, tmp_path: Path, pieces: list[tuple[int, range]]) -> None:
    whole = runner().run(job(source, tasks=30))
    pieces.clear()
    records = [runner(tmp_path).run(job(source, tasks=tasks)) for tasks in (20, 30)]
    assert pieces == [(1, range(20)), (1, range(20, 30))]
    assert records[1].answers == whole.answers
    assert records[1].seconds > records[0].seconds
    (path,) = tmp_path.iterdir()
    assert load_record(path) == records[1]
    stored = content(tmp_path)
    for tasks in (12, 1, 30):
        record = runner(tmp_path).run(job(source, tasks=tasks))
        assert record.answers == whole.answers[:tasks]
        assert (record.accuracy, record.signature) == (whole.first(tasks).accuracy, whole.first(tasks).signature)
    assert content(tmp_path) == stored
    assert len(pieces) == 2
    forced = runner(tmp_path, force=True).run(job(source, tasks=30))
    assert pieces[2:] == [(1, range(30))]
    assert forced.answers == whole.answers
    runner(tmp_path, force=True).run(job(source, tasks=5))
    assert load_record(path).tasks == 30  # as the first five are the same


def refused(*arguments: Any) -> None:
    raise FsbenchError("read-only")


def test_a_read_only_folder_serves_what_it_has(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner(tmp_path).run(job(source, tasks=20))
    for name in ("require_writable", "save_record"):
        monkeypatch.setattr(running, name, refused)
    assert runner(tmp_path).run(job(source, tasks=8)).tasks == 8
    with pytest.raises(FsbenchError, match="read-only"):
        runner(tmp_path).run(job(source, tasks=21))


def test_a_slow_method_that_is_killed_loses_nothing_that_was_written(
    source: Source, tmp_path: Path, pieces: list[tuple[int, range]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_SECONDS_TO_KEEP", 1e-6)
    monkeypatch.setattr(running, "_FIRST_TASKS", 5)
    slow = job(source, tasks=40, **SLOW)
    whole = runner().run(slow)
    pieces.clear()

    def interrupt(more: int, label: str) -> None:
        if len(pieces) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path).run_all([slow], interrupt)
    (path,) = tmp_path.iterdir()
    part = load_record(path)
    assert part.tasks == pieces[-1][1].stop < 40
    assert part.answers == whole.answers[: part.tasks]
    done: list[int] = []
    record = runner(tmp_path).run(slow, lambda more, label: done.append(more))
    assert record.answers == whole.answers
    assert sum(done) == 40
    assert [number for _, numbers in pieces for number in numbers] == [*range(40)]
    assert load_record(path) == record


def test_fast_methods_are_solved_together(source: Source, tmp_path: Path, pieces: list[tuple[int, range]]) -> None:
    names = ("ncm", "soft-kmeans", "bavardage", "bavardage:released")
    runner(tmp_path).run(job(source, "soft-kmeans", 8))
    pieces.clear()
    jobs = [*(job(source, name) for name in names), job(source, **SLOW), job(source, rules=TaskProtocol(shots=2))]
    done: list[int] = []
    answered = runner(tmp_path).run_all(jobs, lambda more, label: done.append(more))
    records = [one for one in answered if isinstance(one, Record)]
    assert (3, range(20)) in pieces
    assert (1, range(8, 20)) in pieces
    assert [record.method.label for record in records] == [*names, "tim-gd", "ncm"]
    assert sum(done) == 6 * 20
    alone = [runner().run(one) for one in jobs]
    assert [one.answers.predicted.tolist() for one in records] == [one.answers.predicted.tolist() for one in alone]
    assert len([*tmp_path.iterdir()]) == 6


def test_a_record_that_is_damaged_or_of_another_run_is_named(source: Source, tmp_path: Path) -> None:
    runner(tmp_path).run(job(source))
    (path,) = tmp_path.iterdir()
    record = load_record(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FsbenchError, match=re.escape(str(path))):
        runner(tmp_path).run(job(source))
    save_record(path, record.model_copy(update={"run": record.run.model_copy(update={"seed": 9})}))
    with pytest.raises(FsbenchError, match="does not match its file name") as caught:
        runner(tmp_path).run(job(source))
    assert "--force" in caught.value.hint
    assert runner(tmp_path, force=True).run(job(source)).answers == record.answers


def test_a_reused_record_tells_how_the_present_job_came_to_its_parameters(source: Source, tmp_path: Path) -> None:
    def origin(**options: Any) -> str:
        return str(runner(tmp_path).run(job(source, "bavardage", 3, options=options)).origins)

    assert origin(tau=0.3, variant="article") == "default + given:tau,variant"
    (path,) = tmp_path.iterdir()
    save_record(path, load_record(path).model_copy(update={"versions": {"fsbench": "0.0.9"}, "created": "1999-01-01"}))
    assert origin() == "default"
    assert [str(one) for one in load_record(path).also] == ["default"]  # so that a report shows both
    stored = content(tmp_path)
    reused = runner(tmp_path).run(job(source, "bavardage", 3))
    assert (reused.created, reused.signature[:14]) == ("1999-01-01", "fsbench:0.0.9|")  # who computed it
    assert content(tmp_path) == stored
    names = tuple(reversed(source.split.class_names))
    renamed = replace(source, split=replace(source.split, class_names=names))
    assert runner(tmp_path).run(job(renamed, "bavardage", 3)).class_names == load_record(path).class_names == names
    extended = runner(tmp_path).run(job(source, "bavardage", 5))
    assert len(load_record(path).also) == 1
    assert runner(tmp_path).run(job(source, "bavardage", 7)).versions == extended.versions
    assert extended.versions["fsbench"] == f"0.0.9,{fsbench.__version__}"  # all who computed it


@pytest.mark.parametrize(
    ("method", "options", "how", "text", "by_hand", "words"),
    [
        ("bavardage", {"t_vb": 40.0}, {}, "default + given:tau", ["tau"], "--set tau={tau}"),  # in the article's units
        ("simpleshot:L2N", {}, {}, "default + given:norm", [], "--method simpleshot --set norm=L2N"),
        ("bavardage", {}, {"blind": True}, "blind", [], "--blind"),
        ("bavardage", {"t_km": 7.0}, {"preset": "article"}, "preset:mini + given:t_km", ["t_km"],
         "--preset article --set t_km=7"),
        ("ncm", {}, {"preset": "article"}, "default", [], "--method ncm"),  # which has no parameters to set
    ],
)  # fmt: skip
def test_origins_and_command_of_a_run_say_what_is_not_the_default(
    source: Source, method: str, options: dict[str, Any], how: dict[str, Any], text: str, by_hand: list[str], words: str
) -> None:
    made = Provenance("mini", "wrn")
    named = replace(source, path=Path("f.h5"), provenance=made, split_name="val", base_path=Path("mini.h5"))
    one = job(named, method, options=options, **how)
    assert (str(one.origins), one.origins.by_hand) == (text, by_hand)
    expected = f"fsbench solve f.h5 --shots 1 --tasks 20 --split val --base mini.h5 {words}"
    command = running._draft(one, runner()).command
    assert sorted(command.split()) == sorted(expected.format(**one.method.params()).split())
    assert running._draft(replace(one, source=source), runner()).command == ""  # of arrays in memory
