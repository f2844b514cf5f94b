"""What the machine can do: installed libraries and the devices that torch can use."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata

_PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "h5py")
# The compiled part of torchvision alone: all of it takes as long to import as torch.
_PROBE = """
import importlib.util, json, pathlib, torch
cuda = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
print(json.dumps([torch.get_num_threads(), [[device.name, device.total_memory] for device in cuda]]), flush=True)
folder = pathlib.Path(importlib.util.find_spec("torchvision").origin).parent
[library] = [file for file in folder.glob("_C*") if file.suffix in (".so", ".pyd", ".dylib")]
torch.ops.load_library(str(library))
torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
"""
_ADVICE = (
    "Install torch and torchvision together, from the same index, so that they belong to each other: "
    "python -m pip install --upgrade --force-reinstall torch torchvision"
)


@dataclass(frozen=True)
class Environment:
    """The installed libraries and the devices they can use."""

    versions: dict[str, str]
    problem: str = ""  # why torch and torchvision do not work together
    advice: str = ""  # how to repair it
    devices: dict[str, str] = field(default_factory=dict)  # `cuda:0` with model and memory; none without torch


def probe_environment(code: str = _PROBE) -> Environment:
    """Try out torch and torchvision in a child process: a pair that does not fit can end a process without a word."""
    child = [sys.executable, "-P", "-c", code]  # -P: nothing is imported from the current folder
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    devices = {}
    if done.stdout:
        threads, cuda = json.loads(done.stdout.splitlines()[0])
        devices = {"cpu": f"{threads} thread{'s' if threads > 1 else ''}"}
        devices |= {f"cuda:{i}": f"{model}, {memory / 2**30:.0f} GiB" for i, (model, memory) in enumerate(cuda)}
    if done.returncode == 0:
        return Environment(library_versions(), devices=devices)
    reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    if done.returncode < 0:
        reason = f"the process died with {signal.Signals(-done.returncode).name}"
    return Environment(library_versions(), f"torch and torchvision do not work together: {reason}", _ADVICE, devices)


def library_versions() -> dict[str, str]:
    """Versions of Python and the packages that matter; an empty text for one that is not installed."""
    versions = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    return versions
