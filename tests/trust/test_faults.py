"""Full disks, forbidden and vanished folders, two writers, wrong clocks: a sentence, and nothing lost."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from fsbench.data.scan import load_own
from fsbench.devices import while_workers_live
from fsbench.errors import FsbenchError
from fsbench.features import shards
from fsbench.features.extract import Settings, extract
from fsbench.io import files
from fsbench.io.files import only_writer, whole_file, write_text
from fsbench.results.tuned import read_memory
from tests.trust.runs import Ended, Running, run, small_files, start
from tests.trust.study import COMMANDS, Study

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def said_in_words(ended: Ended, *words: str) -> None:
    assert ended.status == 1, ended
    assert ended.orderly, ended.errors
    assert ended.errors.count("error: ") == 1, ended.errors
    for word in words:
        assert word in ended.errors, ended.errors


def a_full_disk_loses_nothing(command: str, sizes: tuple[int, ...], tmp_path: Path, tally: Counter[str]) -> None:
    said, whole = tmp_path / "said", Study.prepare(command, tmp_path / "whole")
    assert run(whole.arguments, whole.folder, said).status == 0
    study = Study.prepare(command, tmp_path / "full")
    alone = ("--workers", "0") if command == "extract" else ()
    for size in sizes:
        ended = run((*study.arguments, *alone), study.folder, said, small_files(size))
        if ended.status:
            said_in_words(ended, "Could not", "File too large", "Free some space")
            tally[f"full disk: {command}"] += 1
        assert set(study.visible().items()) <= set(whole.visible().items())
    assert run(study.arguments, study.folder, said).status == 0
    assert study.visible() == whole.visible()
    assert study.hidden() == []


@pytest.mark.parametrize("command", ["import", "solve"])
def test_a_full_disk(command: str, tmp_path: Path, tally: Counter[str]) -> None:
    a_full_disk_loses_nothing(command, (600,), tmp_path, tally)
    assert tally[f"full disk: {command}"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_is_full_at_many_sizes(command: str, tmp_path: Path, tally: Counter[str]) -> None:
    sizes = (600, 800, 1_100, 2_000, 5_000, 20_000, 60_000)  # what is said must fit
    a_full_disk_loses_nothing(command, sizes, tmp_path, tally)
    assert tally[f"full disk: {command}"] >= 3


@pytest.mark.parametrize("command", ["extract", "train"])
def test_a_full_shared_memory_is_an_error_and_no_hang(command: str, tmp_path: Path) -> None:
    study = Study.prepare(command, tmp_path / "here")
    ended = run((*study.arguments, "--workers", "1"), study.folder, tmp_path / "said", small_files(4_000))
    said_in_words(ended, "shared memory has no room", "--workers 0")


def test_a_reader_that_is_killed_is_an_error_in_words() -> None:
    def batches() -> Iterator[int]:
        yield 1
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. \nmore")

    with pytest.raises(FsbenchError, match="A process that reads images has ended: DataLoader worker") as caught:
        list(while_workers_live(batches()))
    assert "--workers 0" in caught.value.hint


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip("only root may mount")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("command", ["solve", "import"])
def test_a_file_system_without_room_and_a_read_only_one(command: str, tmp_path: Path, tiny_disk: Path) -> None:
    said, study = tmp_path / "said", Study.prepare(command, tmp_path / "here")
    options = {"solve": ("--results-dir",), "import": ("--features-dir",)}[command]
    (tiny_disk / "ballast").write_bytes(bytes(60_000))
    ended = run((*study.arguments, *options, str(tiny_disk / "r")), study.folder, said)
    said_in_words(ended, "No space left on device", "Free some space", str(tiny_disk))
    (tiny_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    ended = run((*study.arguments, *options, str(tiny_disk / "r")), study.folder, said)
    said_in_words(ended, "Read-only file system", "choose another", str(tiny_disk))


def test_features_in_a_read_only_folder_can_be_solved(tmp_path: Path, tiny_disk: Path) -> None:
    """A colleague's features: the scatter cannot be kept beside them, which is no reason to stop."""
    study = Study.prepare("solve", tmp_path / "here")
    subprocess.run(["mount", "-o", "remount,size=4m", str(tiny_disk)], check=True)
    (tiny_disk / "a.h5").write_bytes((study.folder / "features" / "synthetic-none.h5").read_bytes())
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    arguments = ("solve", str(tiny_disk / "a.h5"), "--tasks", "20", "--shots", "1")
    ended = run(arguments, study.folder, tmp_path / "said")
    assert ended.status == 0, ended.errors
    assert "scatter" in ended.errors
    assert "Read-only" in ended.errors


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EDQUOT])
def test_a_network_folder_that_vanishes_while_writing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "a.json", "old")

    def fails(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(FsbenchError, match=os.strerror(number)) as caught:
        write_text(tmp_path / "a.json", "new")
    assert str(tmp_path / "a.json") in caught.value.message
    assert "run the same command again" in caught.value.hint
    assert (tmp_path / "a.json").read_text() == "old"
    assert names_in(tmp_path) == ["a.json"]


def test_a_folder_that_cannot_be_flushed_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = files._flush

    def fails(path: Path) -> None:
        if path.is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(path)

    monkeypatch.setattr(files, "_flush", fails)
    write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new"


@pytest.mark.parametrize("trouble", [OSError(errno.EIO, "Input/output error"), FileNotFoundError(errno.ENOENT, "gone")])
def test_pictures_of_a_vanished_folder_are_not_left_out_as_broken(
    trouble: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import device

    from fsbench.backbones.load import load_backbone
    from fsbench.reporter import Reporter

    study = Study.prepare("extract", tmp_path / "here")
    dataset, backbone = load_own(study.folder / "photos"), load_backbone("rn12", random_seed=0, width=1)
    opened: list[int] = []

    def vanish(*arguments: Any, **options: Any) -> Image.Image:
        opened.append(1)
        if len(opened) > 40:
            raise trouble
        return whole(*arguments, **options)

    whole = Image.open
    monkeypatch.setattr(Image, "open", vanish)
    settings = Settings(workers=0, skip_broken=True)
    with pytest.raises(FsbenchError, match=r"photos/.*(Input/output error|missing)"):
        extract(dataset, backbone, tmp_path / "f.h5", settings, device("cpu"), Reporter(quiet=True))
    assert not (tmp_path / "f.h5").exists()


def started_and_holding(study: Study, said: Path, out: Path) -> Running:
    """A command that has its lock."""
    running = start(study.arguments, study.folder, said)
    for _ in range(600):
        if list(out.glob(".*.lock")):
            return running
        time.sleep(0.01)
    raise AssertionError(running.end().errors)


def test_a_second_extraction_waits_and_finds_it_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "IMAGES_PER_SHARD", 16)
    said, study = tmp_path / "said", Study.prepare("extract", tmp_path / "here")
    first = started_and_holding(study, said, study.folder / "features")
    os.kill(first.process, signal.SIGSTOP)
    second = start([word for word in study.arguments if word != "--quiet"], study.folder, said)
    for _ in range(3000):
        if "is being written" in second.said("err"):
            break
        time.sleep(0.01)
    os.kill(first.process, signal.SIGCONT)
    ended = second.end()
    assert first.end().status == 0
    assert ended.status == 0, ended.errors
    assert f"is being written by process {first.process} on " in ended.errors
    assert "exists already" in ended.errors
    assert study.hidden() == []


def test_a_second_training_is_refused_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    said, study = tmp_path / "said", Study.prepare("train", tmp_path / "here")
    first = started_and_holding(study, said, study.folder / "weights" / "photos")
    os.kill(first.process, signal.SIGSTOP)
    said_in_words(run(study.arguments, study.folder, said), f"is being written by process {first.process} on ", "Wait")
    os.kill(first.process, signal.SIGKILL)
    assert first.end().status == -9
    assert run(study.arguments, study.folder, said).status == 0
    assert study.hidden() == []


def test_searches_at_the_same_time_are_all_remembered(tmp_path: Path) -> None:
    said, study = tmp_path / "said", Study.prepare("tune", tmp_path / "here")
    assert run(("scatter", "--quiet"), study.folder, said).status == 0
    together = [
        start(("tune", "--over", "tau=0.1,0.3", "--shots", str(shots), "--tasks", "5", "--quiet"), study.folder, said)
        for shots in range(1, 7)
    ]
    assert [running.end().status for running in together] == [0] * 6
    assert len(read_memory(study.folder / "features" / "synthetic-none.tuned.json")) == 6


def test_of_two_different_imports_one_wins_and_the_other_says_so(tmp_path: Path) -> None:
    said, study = tmp_path / "said", Study.prepare("import", tmp_path / "here")
    variants = (study.arguments, (*study.arguments, "--crops", "2"), (*study.arguments, "--crops", "3"))
    ended = [running.end() for running in [start(variant, study.folder, said) for variant in variants]]
    assert sorted(one.status for one in ended) == [0, 1, 1]
    for one in ended:
        assert one.status == 0 or "exists already" in one.errors or "is being written by" in one.errors
    (winner,) = (variant for variant, one in zip(variants, ended, strict=True) if one.status == 0)
    assert run(winner, study.folder, said).status == 0  # the same again is done already


def test_runs_at_the_same_time_leave_the_records_of_one(tmp_path: Path) -> None:
    said = tmp_path / "said"
    alone, shared = (Study.prepare("solve", tmp_path / name) for name in ("alone", "shared"))
    assert run(alone.arguments, alone.folder, said).status == 0
    together = [start(shared.arguments, shared.folder, said) for _ in range(3)]
    assert [running.end().status for running in together] == [0, 0, 0]
    assert shared.visible() == alone.visible()


def test_a_lock_is_not_inherited_by_workers(tmp_path: Path) -> None:
    """A worker may live a little longer than the process that it works for."""
    with only_writer(tmp_path / "out"):
        worker = os.fork()
        if worker == 0:
            signal.pause()
            os._exit(0)
    try:
        with only_writer(tmp_path / "out"):
            assert f"process {os.getpid()} on " in (tmp_path / ".out.lock").read_text()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_where_there_are_no_locks_nothing_is_locked(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(handle: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    with only_writer(tmp_path / "out"), only_writer(tmp_path / "out"):
        (tmp_path / "out").write_text("x")
    assert (tmp_path / "out").read_text() == "x"


def test_locks_of_many_writers_exclude_each_other(tmp_path: Path) -> None:
    """Each removes its lock file while the others wait for it."""
    counter, workers = tmp_path / "counter", []
    counter.write_text("0")
    for _ in range(4):
        worker = os.fork()
        if worker == 0:
            for _ in range(10):
                with only_writer(tmp_path / "out", lambda sentence: None):
                    counter.write_text(str(int(counter.read_text()) + 1))
            os._exit(0)
        workers.append(worker)
    assert [os.waitpid(worker, 0)[1] for worker in workers] == [0] * 4
    assert counter.read_text() == "40"
    assert names_in(tmp_path) == ["counter"]


def test_a_lock_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with only_writer(path):
        assert [entry.name for entry in tmp_path.iterdir()] == [".out.lock"]
    assert names_in(tmp_path) == []
    (tmp_path / ".out.lock").write_text("process 1 on nowhere")  # of a run that was killed
    (tmp_path / ".out.77-0011aabb.tmp").write_text("half")
    with only_writer(path):
        assert "half" not in [entry.read_text() for entry in tmp_path.iterdir()]
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("ahead", [-40 * 365 * 86_400.0, 0.0, 40 * 365 * 86_400.0])
def test_leftovers_are_old_by_the_clock_of_their_folder(
    ahead: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine may be wrong by decades."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + ahead)
    old, young, foreign = (tmp_path / name for name in (".a.1-00000000.tmp", ".b.1-00000000.tmp", ".c.tmp"))
    for path in (old, young, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (0, tmp_path.stat().st_mtime - 2 * 86_400))
    write_text(tmp_path / "d", "text")
    assert names_in(tmp_path) == [".b.1-00000000.tmp", ".c.tmp", "d"]


def test_a_file_is_flushed_before_its_name_changes_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []
    flush = files._flush

    def note(path: Path) -> None:
        seen.append((path.name, names_in(tmp_path)))
        flush(path)

    monkeypatch.setattr(files, "_flush", note)
    with whole_file(tmp_path / "a") as temporary:
        temporary.write_text("x")
    assert seen == [(temporary.name, [temporary.name]), (tmp_path.name, ["a"])]


def test_output_that_nobody_takes(tmp_path: Path) -> None:
    study = Study.prepare("solve", tmp_path / "here")
    ended = run(study.arguments, study.folder, tmp_path / "said", lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1))
    said_in_words(ended, "Could not go on with the output", "No space left")
