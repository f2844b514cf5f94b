"""What the machine can do, tried out in child processes.

A torchvision that does not belong to the installed torch, or a processor without the instructions for a
number format, can end a process without a word. Children may die; the report lives.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_TIMEOUT = 180  # seconds; a first import of torch from a network disk is slow
_PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "h5py")
_PRECISIONS = ("bfloat16", "float16")

_PAIR = """
import torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
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
    with ThreadPoolExecutor(4) as pool:
        pair, listed = pool.submit(run, _PAIR), pool.submit(run, _DEVICES)

        def try_out(device: str) -> dict[str, Future[ChildResult]]:
            return {dtype: pool.submit(run, _PRECISION.format(device=device, dtype=dtype)) for dtype in _PRECISIONS}

        on_cpu = try_out("cpu")  # at once, while the devices are being listed
        devices = []
        for name, description in _device_names(listed.result()).items():
            tried = on_cpu if name == "cpu" else try_out(name)
            problems = {dtype: failure(child.result()) for dtype, child in tried.items()}
            devices.append(Device(name, description, problems))
        problem = failure(pair.result())
    return Environment(library_versions(), problem, _PAIR_ADVICE if problem else "", tuple(devices))


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
    names = {"cpu": f"{content['threads']} threads"}
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
