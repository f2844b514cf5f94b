"""Full disks, two writers, outputs that would replace something else: a sentence, and nothing lost."""

import json
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fsbench.errors import FsbenchError
from fsbench.io import files
from fsbench.io.files import only_writer, whole_file, write_text
from fsbench.results.studies import read_memory
from tests.trust.runs import Ended, eventually, run, small_files, start
from tests.trust.study import COMMANDS, Study
from tests.watching import watch

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def said_in_words(ended: Ended, *words: str) -> None:
    assert ended.status == 1, ended
    assert ended.orderly, ended.errors
    assert ended.errors.count("error: ") == 1, ended.errors
    for word in words:
        assert word in ended.errors, ended.errors


MANY_SIZES = (600, 2_000, 20_000)


@pytest.mark.parametrize(
    ("command", "sizes"),
    [
        ("import", MANY_SIZES[:1]),
        ("solve", MANY_SIZES[:1]),
        *(pytest.param(command, MANY_SIZES, marks=pytest.mark.slow) for command in COMMANDS),
    ],
)
def test_a_full_disk_loses_nothing(command: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    """There is room for files of some sizes only, then no limit."""
    whole = Study.prepare(command, tmp_path / "whole")
    assert run(whole.arguments, whole.folder).status == 0
    study, failures = Study.prepare(command, tmp_path / "full"), 0
    alone = ("--workers", "0") if command == "extract" else ()
    for size in sizes:
        ended = run((*study.arguments, *alone), study.folder, small_files(size))
        if ended.status:
            said_in_words(ended, "Could not", "File too large", "Free some space")
            failures += 1
        assert set(study.visible().items()) <= set(whole.visible().items())
    assert run(study.arguments, study.folder).status == 0
    assert study.visible() == whole.visible()
    assert study.hidden() == []
    assert failures >= max(1, len(sizes) - 1)


def test_a_full_shared_memory_is_an_error_and_no_hang(tmp_path: Path) -> None:
    study = Study.prepare("extract", tmp_path / "here")
    ended = run((*study.arguments, "--workers", "1"), study.folder, small_files(4_000))
    said_in_words(ended, "shared memory has no room", "--workers 0")


def test_output_that_nobody_takes(tmp_path: Path) -> None:
    study = Study.prepare("solve", tmp_path / "here")
    ended = run(study.arguments, study.folder, lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1))
    said_in_words(ended, "Could not go on with the output", "No space left")


def test_a_second_training_is_refused_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    study = Study.prepare("train", tmp_path / "here")
    first, out = start(study.arguments, study.folder), study.folder / "weights" / "photos"
    holds = eventually(lambda: any(out.glob(".*.lock")))
    assert holds, first.log.read_text()
    first.signal(signal.SIGSTOP)
    said_in_words(run(study.arguments, study.folder), "is being written by another process")
    first.signal(signal.SIGKILL)
    assert first.end().status == -9
    assert run(study.arguments, study.folder).status == 0
    assert study.hidden() == []


def test_runs_at_the_same_time_leave_what_one_after_the_other_leaves(tmp_path: Path) -> None:
    few = ("--tasks", "5", "--quiet", "--device", "cpu")
    lines = [("tune", "--over", "tau=0.1,0.3", "--shots", str(shots), *few) for shots in (1, 2)] + [("solve", *few)] * 2
    alone, shared = (Study.prepare("solve", tmp_path / name) for name in ("alone", "shared"))
    assert [run(line, alone.folder).status for line in lines] == [0] * 4
    together = [start(line, shared.folder) for line in lines]
    assert [running.end().status for running in together] == [0] * 4
    tuned = "features/synthetic-none.tuned.json"
    assert read_memory(shared.folder / tuned).keys() == read_memory(alone.folder / tuned).keys()
    left, expected = shared.visible(), alone.visible()
    assert left | {tuned: ""} == expected | {tuned: ""}  # whose order is that of the searches


def test_locks_of_many_writers_exclude_each_other(tmp_path: Path) -> None:
    """Each removes its lock file while the others wait for it."""
    counter, workers = tmp_path / "counter", []
    counter.write_text("0")
    (tmp_path / ".out.lock").write_text("process 1 on nowhere")  # of a run that was killed
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


def test_a_file_is_flushed_before_its_folder_after_renaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = watch(monkeypatch, files, "_flush", lambda path: (path.name, names_in(tmp_path)))
    with whole_file(tmp_path / "a") as temporary:
        temporary.write_text("x")
    assert flushed == [(temporary.name, [temporary.name]), (tmp_path.name, ["a"])]


WRITERS: dict[str, Callable[[Path], object]] = {
    "an HDF5 file": lambda path: h5py.File(path, "w").close(),
    "an archive": lambda path: torch.save({"x": torch.zeros(3)}, path),
    "a pickle": lambda path: path.write_bytes(pickle.dumps({"x": 1})),
    "a weights file": lambda path: save_file({"x": torch.zeros(3)}, path),
    "a JSON file": lambda path: path.write_text(json.dumps({"x": 1})),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_took_work_is_not_replaced_by_another_kind(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    WRITERS[kind](path)
    before = path.read_bytes()
    for other in WRITERS.keys() - {kind}:
        with pytest.raises(FsbenchError, match=f"out is {kind}, and would be replaced"), whole_file(path) as temporary:
            WRITERS[other](temporary)
    with pytest.raises(FsbenchError, match="Choose another name"):
        write_text(path, "| a table |")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with whole_file(path) as temporary:
        WRITERS[kind](temporary)  # its own kind does


def test_a_device_stays_a_device_and_a_link_a_link(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for device in (Path(os.devnull), tmp_path / "pipe"):
        with pytest.raises(FsbenchError, match="it is a device or a pipe"):
            write_text(device, "x")
        assert not device.is_file()
    (tmp_path / "far").mkdir()
    link = tmp_path / "table.md"
    link.symlink_to(tmp_path / "far" / "table.md")
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "far" / "table.md").read_text() == text


def test_an_import_does_not_overwrite_what_it_reads(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.h5"
    with h5py.File(theirs, "w") as file:
        file["all_feats"], file["all_labels"] = np.eye(20, 8, dtype=np.float32), np.arange(20) // 4
        file["count"] = [20]
    before = theirs.read_bytes()
    line = "import novel=theirs.h5 --out ./theirs.h5 --dataset a --backbone b --force"
    ended = run(line.split(), tmp_path)
    assert (ended.status, "by what is read from it" in ended.errors) == (1, True), ended
    assert theirs.read_bytes() == before
