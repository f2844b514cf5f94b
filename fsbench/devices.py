"""Where to compute: devices, their memory, and what to do when it runs out."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import torch

from fsbench.errors import FsbenchError


def choose_device(name: str) -> torch.device:
    """A device by name; `auto` takes the first GPU if there is one. Under torchrun every process gets its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if "LOCAL_RANK" in os.environ:
        name = device_of_process(name, int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise FsbenchError(f"Device {name!r} cannot be used: {reason}", "Use --device cpu, or auto.") from error
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def device_of_process(name: str, local_number: int, local_count: int) -> str:
    """The device of one of several processes on a machine: process i of them takes GPU i of those it may see."""
    if name == "cuda":
        gpus = torch.cuda.device_count()
        if local_number >= gpus:
            raise FsbenchError(
                f"{local_count} processes were started where {gpus} GPU(s) can be seen.",
                "Start one per GPU: torchrun --nproc-per-node gpu. CUDA_VISIBLE_DEVICES chooses among the GPUs.",
            )
        return f"cuda:{local_number}"
    if name != "cpu" and local_count > 1:
        raise FsbenchError(f"{local_count} processes cannot share {name}.", "Use --device cpu, cuda or auto.")
    return name


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the allocator on a GPU, of the whole process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include the process that started this one
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024  # type: ignore[index]
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
