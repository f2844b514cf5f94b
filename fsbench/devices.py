"""Where to compute: devices, their memory, and what to do when it runs out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

from fsbench.errors import FsbenchError


def choose_device(name: str) -> torch.device:
    """A device by name; `auto` takes the first GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise FsbenchError(f"Device {name!r} cannot be used: {reason}", "Use --device cpu, or auto.") from error
    return device


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
