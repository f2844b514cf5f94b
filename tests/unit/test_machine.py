"""Libraries and devices are tried out in child processes."""

from __future__ import annotations

import json

import pytest

from fsbench import machine
from fsbench.machine import ChildResult, failure, probe_environment, run_child

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
    exec(machine._PAIR, {})
    exec(machine._DEVICES, {})
    assert json.loads(capsys.readouterr().out)["threads"] >= 1
    for dtype in ("bfloat16", "float16"):
        compile(machine._PRECISION.format(device="cpu", dtype=dtype), "probe", "exec")
