"""Where to compute: devices, their memory, the processes that read images, and what to do when memory runs out."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.utils.data import get_worker_info

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Batch = TypeVar("Batch")
_WORKER_REMEDY = "Read images without other processes, --workers 0, or enlarge the shared memory (docker: --shm-size)."


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
    import resource  # noqa: PLC0415 - not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def share(tensor: torch.Tensor) -> torch.Tensor:
    """Put a tensor where the main process finds it, if this is a worker that reads images.

    Left to torch, that happens in a thread whose errors nobody sees, and the main process would wait for ever.
    """
    try:
        return tensor if get_worker_info() is None else tensor.share_memory_()
    except RuntimeError as error:
        raise FsbenchError(f"The shared memory has no room for images: {error}", _WORKER_REMEDY) from error


def while_workers_live(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the same batches; a worker that was killed is an FsbenchError."""
    try:
        yield from batches
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        told = str(error).partition("\n")[0]
        raise FsbenchError(f"A process that reads images has ended: {told}", _WORKER_REMEDY) from error
