from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.doctor.diagnose import diagnose
from fsbench.machine import ChildResult, Environment, failure, probe_environment, run_child
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.doctor.diagnose import DoctorReport

NAMES = {"base": "train", "val": "val", "novel": "test"}


def look(root: Path) -> DoctorReport:
    nothing = Environment({}, "", "", ())
    return diagnose(root / "data", root / "weights", root / "features", probe=lambda: nothing)


def test_no_data_folder(tmp_path: Path) -> None:
    (sentence,) = look(tmp_path).data_sentences
    assert "There is no folder" in sentence
    assert "FSBENCH_DATA" in sentence


def test_empty_data_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (sentence,) = look(tmp_path).data_sentences
    assert "is empty" in sentence
    assert "data/mini" in sentence


def test_only_unknown_folders(tmp_path: Path) -> None:
    (tmp_path / "data/holiday").mkdir(parents=True)
    sentences = look(tmp_path).data_sentences
    assert "No folder" in sentences[0]
    assert "cifarfs" in sentences[0]
    assert "holiday" in sentences[1]


def test_empty_data_set_folder(tmp_path: Path) -> None:
    (tmp_path / "data/mini").mkdir(parents=True)
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "unreadable"
    assert "found an empty folder" in dataset.sentences[0]
    assert "Copy the data set into it" in dataset.sentences[1]


def test_half_copied_data_set(tmp_path: Path) -> None:
    info = dataset_info("mini")
    put(tmp_path / "data/mini", (f"train/{name}/1.jpg" for name in info.classes("base")[:30]))
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "incomplete"
    base, val, _ = dataset.splits
    assert (base.expected_classes, base.found_classes, base.expected_images, base.found_images) == (
        64,
        30,
        38400,
        30,
    )
    assert val.found_classes == 0
    assert "30 of 60,000 pictures are here" in dataset.sentences[0]
    text = " ".join(dataset.sentences)
    assert f"base: 34 classes are missing: {info.classes('base')[30]}" in text
    assert "The split novel is missing." in text
    assert "(1 of 600)" in text


def test_complete_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataset_info("cub")
    for counts in info.splits.values():
        for name in counts:
            monkeypatch.setitem(counts, name, 1)
    put(tmp_path / "data/cub/images", (f"{name}/1.jpg" for name in info.split_of))
    (dataset,) = look(tmp_path).datasets
    assert (dataset.state, dataset.sentences) == ("complete", ("CUB-200-2011 is complete.",))
    assert [split.found_images for split in dataset.splits] == [100, 50, 50]


def test_split_of_feat_is_recognised(tmp_path: Path) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path / "data/cub", (f"{NAMES[s]}/{name}/1.jpg" for s in SPLITS for name in feat.classes(s)))
    (dataset,) = look(tmp_path).datasets
    assert dataset.name == "cub-feat"
    assert "this looks like FEAT's split, not CloserLook's" in dataset.sentences[1]


def test_split_of_nobody_is_called_wrong(tmp_path: Path) -> None:
    info = dataset_info("mini")
    one = info.classes("novel")[0]
    files = [f"train/{name}/1.jpg" for name in (*info.classes("base"), one)]
    put(tmp_path / "data/mini", files)
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "wrong split"
    assert any(f"{one} belongs to novel, found in base" in sentence for sentence in dataset.sentences)


def test_weights_and_features_are_listed(tmp_path: Path) -> None:
    put(tmp_path / "weights", ["mini/wrn.tar", "cub/rn12.pt", "README.md", "mini/.hidden.pt"], b"1234")
    put(tmp_path / "features", ["mini-wrn.h5", "mini-wrn.txt", "deep/x.h5"], b"12")
    report = look(tmp_path)
    assert [(file.path, file.size) for file in report.weights] == [("cub/rn12.pt", 4), ("mini/wrn.tar", 4)]
    assert [(file.path, file.size) for file in report.features] == [("mini-wrn.h5", 2)]


def test_report_is_plain_data(tmp_path: Path) -> None:
    put(tmp_path / "data/mini", [f"train/{dataset_info('mini').classes('base')[0]}/1.jpg"])
    content = json.loads(json.dumps(look(tmp_path).to_dict()))
    assert content["datasets"][0]["splits"][0]["found_images"] == 1


GOOD = ChildResult(0, "", "")
LISTED = ChildResult(0, '{"threads": 4, "cuda": [["Tesla X", 17179869184]]}\n', "")


def test_environment_of_a_machine_with_a_graphics_card() -> None:
    def run(code: str) -> ChildResult:
        if "device_count" in code:
            return LISTED
        return ChildResult(-4, "", "") if '"cpu"' in code and "torch.bfloat16" in code else GOOD

    environment = probe_environment(run)
    assert environment.pair_problem == environment.advice == ""
    cpu, card = environment.devices
    assert (cpu.name, cpu.description) == ("cpu", "4 threads")
    assert cpu.precisions == {
        "bfloat16": "the process died with SIGILL: the processor lacks the instructions",
        "float16": "",
    }
    assert (card.name, card.description) == ("cuda:0", "Tesla X, 16 GiB")
    assert card.precisions == {"bfloat16": "", "float16": ""}


def test_broken_pair_gets_advice() -> None:
    def run(code: str) -> ChildResult:
        if "torchvision" in code:
            return ChildResult(1, "", "Traceback\nRuntimeError: operator torchvision::nms does not exist\n")
        return LISTED if "device_count" in code else GOOD

    environment = probe_environment(run)
    assert environment.pair_problem == "RuntimeError: operator torchvision::nms does not exist"
    assert "pip install" in environment.advice


def test_torch_that_does_not_start_leaves_no_devices() -> None:
    environment = probe_environment(lambda _: ChildResult(-11, "", ""))
    assert environment.devices == ()
    assert environment.pair_problem == "the process died with SIGSEGV"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (ChildResult(0, "", "a warning"), ""),
        (ChildResult(None, "", ""), "no answer after 180 seconds"),
        (ChildResult(3, "", ""), "exit status 3"),
        (ChildResult(-99, "", ""), "the process died with signal 99"),
    ],
)
def test_failures_in_words(result: ChildResult, words: str) -> None:
    assert failure(result) == words


def test_child_that_kills_itself_does_not_take_us_along() -> None:
    result = run_child("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert failure(result) == "the process died with SIGILL: the processor lacks the instructions"
    assert failure(run_child("print(1)")) == ""
    assert failure(run_child("raise SystemExit('off by 3')")) == "off by 3"


def test_code_of_the_children_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, to be fast; the number formats are tried by a slow test only, as they may end it."""
    from fsbench import machine as probes

    exec(probes._PAIR, {})
    exec(probes._DEVICES, {})
    assert json.loads(capsys.readouterr().out)["threads"] >= 1
    for dtype in ("bfloat16", "float16"):
        compile(probes._PRECISION.format(device="cpu", dtype=dtype), "probe", "exec")
