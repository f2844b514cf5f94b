"""What the machine can do, tried out in child processes.

A torchvision that does not belong to the installed torch, or a processor without the instructions for a
number format, can end a process without a word. Children may die; the report lives.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_TIMEOUT = 180  # seconds; a first import of torch from a network disk is slow
_PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "h5py")
_PRECISIONS = ("bfloat16", "float16")

# The compiled part of torchvision alone: all of it takes as long to import as torch.
_PAIR = """
import importlib.util, pathlib, torch
package = importlib.util.find_spec("torchvision")
if package is None:
    raise ModuleNotFoundError("No module named 'torchvision'")
for file in pathlib.Path(package.origin).parent.glob("_C*"):
    if file.suffix in (".so", ".pyd", ".dylib"):
        torch.ops.load_library(str(file))
torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
"""

_DEVICES = """
import json, torch
cuda = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
print(json.dumps({
    "threads": torch.get_num_threads(),
    "cuda": [[device.name, device.total_memory] for device in cuda],
}))
"""

# A small network, both under autocast and converted, must agree with its float32 result.
_PRECISION = """
import sys, torch
from torch import nn
device, dtype = torch.device("{device}"), torch.{dtype}
torch.manual_seed(0)
layers = [nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3)]
network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 32)).eval().to(device)
images = torch.rand(8, 3, 40, 40, device=device)
with torch.no_grad():
    expected = network(images)
    with torch.autocast(device.type, dtype=dtype):
        mixed = network(images).float()
    converted = network.to(dtype)(images.to(dtype)).float()
worst = max((result - expected).abs().max().item() for result in (mixed, converted))
sys.exit(0 if worst < 0.05 else "its results are off by %g" % worst)
"""

# Several programs, one after the other, in one process; a line for each that has ended by itself.
_TOGETHER = """
import contextlib, io, json
for name, code in json.loads({codes!r}).items():
    printed, problem = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, {{}})
        except SystemExit as end:
            problem = str(end.code or "")
        except BaseException as error:
            problem = type(error).__name__ + ": " + str(error)
    print("ended", json.dumps([name, printed.getvalue(), problem]), flush=True)
"""

_PAIR_ADVICE = (
    "Install torch and torchvision together, from the same index, so that they belong to each other: "
    "python -m pip install --upgrade --force-reinstall torch torchvision"
)


@dataclass(frozen=True)
class ChildResult:
    """How a child process ended, and what it printed."""

    status: int | None  # negative if a signal ended it, None if it took too long
    output: str
    errors: str


@dataclass(frozen=True)
class Device:
    """Something that computes, such as ``cuda:0``, with its model and memory, or its threads."""

    name: str
    description: str
    precisions: dict[str, str]  # per number format below float32, empty if it works, else what went wrong


@dataclass(frozen=True)
class Environment:
    """The installed libraries and the devices they can use."""

    versions: dict[str, str]  # see `library_versions`
    pair_problem: str  # why torch and torchvision do not work together, empty if they do
    advice: str  # how to repair it
    devices: tuple[Device, ...]  # none if torch does not start


def run_child(code: str) -> ChildResult:
    """Run Python code in a process of its own, which imports nothing from the current folder."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return ChildResult(None, "", "")
    return ChildResult(done.returncode, done.stdout, done.stderr)


def probe_environment(run: Callable[[str], ChildResult] = run_child) -> Environment:
    """Try out the libraries and devices."""
    tried = _run_together({"pair": _PAIR, "devices": _DEVICES, **_precision_codes("cpu")}, run)
    names = _device_names(tried["devices"])
    cards = [code for name in names if name != "cpu" for code in _precision_codes(name).items()]
    tried |= _run_together(dict(cards), run) if cards else {}
    devices = [
        Device(name, text, {dtype: failure(tried[f"{dtype} on {name}"]) for dtype in _PRECISIONS})
        for name, text in names.items()
    ]
    problem = failure(tried["pair"])
    return Environment(library_versions(), problem, _PAIR_ADVICE if problem else "", tuple(devices))


def _precision_codes(device: str) -> dict[str, str]:
    return {f"{dtype} on {device}": _PRECISION.format(device=device, dtype=dtype) for dtype in _PRECISIONS}


def _run_together(codes: dict[str, str], run: Callable[[str], ChildResult]) -> dict[str, ChildResult]:
    """Run programs in one child, as torch takes seconds to import; those that it did not survive, in children alone."""
    results = {}
    for line in run(_TOGETHER.format(codes=json.dumps(codes))).output.splitlines():
        if line.startswith("ended "):
            name, output, problem = json.loads(line.removeprefix("ended "))
            results[name] = ChildResult(1 if problem else 0, output, problem)
    return results | {name: run(code) for name, code in codes.items() if name not in results}


def precision_problem(device: str, dtype: str) -> str:
    """Why a device cannot compute in a reduced precision such as `bfloat16`, in words; empty if it can."""
    return failure(run_child(_PRECISION.format(device=device, dtype=dtype)))


def failure(result: ChildResult) -> str:
    """Why a child did not end well, in words; empty if it did."""
    if result.status == 0:
        return ""
    if result.status is None:
        return f"no answer after {_TIMEOUT} seconds"
    if result.status < 0:
        number = -result.status
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        reason = ": the processor lacks the instructions" if name == "SIGILL" else ""
        return f"the process died with {name}{reason}"
    lines = result.errors.strip().splitlines()
    return lines[-1] if lines else f"exit status {result.status}"


def _device_names(listed: ChildResult) -> dict[str, str]:
    """The devices with their descriptions, empty if torch does not start."""
    if failure(listed):
        return {}
    content = json.loads(listed.output.strip().splitlines()[-1])
    names = {"cpu": f"{content['threads']} thread{'s' if content['threads'] > 1 else ''}"}
    for index, (model, memory) in enumerate(content["cuda"]):
        names[f"cuda:{index}"] = f"{model}, {memory / 2**30:.0f} GiB"
    return names


def library_versions() -> dict[str, str]:
    """Of Python and the packages that matter; empty text for one that is not installed."""
    versions = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    return versions
