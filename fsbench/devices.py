"""Where to compute: devices, their memory, the processes that read images, and what to do when memory runs out."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.data import get_worker_info

from fsbench.errors import FsbenchError

Batch = TypeVar("Batch")
# What libraries say when memory runs out: the CPU's allocator, cuBLAS, cuSOLVER, cuDNN and the MPS backend.
_NO_MEMORY = re.compile(r"can't allocate memory|CU\w+_STATUS_ALLOC_FAILED|out of memory")
_MOST_READERS = 8
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt in glibc
_WORKER_REMEDY = "Read images without other processes, --workers 0, or enlarge the shared memory (docker: --shm-size)."


def choose_device(name: str) -> torch.device:
    """A device by name; `auto` takes the first GPU if there is one. Under torchrun every process gets its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if "LOCAL_RANK" in os.environ:
        name = _device_of_process(name, int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise FsbenchError(f"Device {name!r} cannot be used: {reason}", "Use --device cpu, or auto.") from error
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def _device_of_process(name: str, number: int, count: int) -> str:
    """The device of one of several processes on a machine: process i of them takes GPU i of those it may see."""
    gpus = torch.cuda.device_count()
    if name == "cuda" and number >= gpus:
        hint = "Start one per GPU: torchrun --nproc-per-node gpu. CUDA_VISIBLE_DEVICES chooses among the GPUs."
        raise FsbenchError(f"{count} processes were started where {gpus} GPU(s) can be seen.", hint)
    if name not in ("cpu", "cuda") and count > 1:
        raise FsbenchError(f"{count} processes cannot share {name}.", "Use --device cpu, cuda or auto.")
    return f"cuda:{number}" if name == "cuda" else name


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU.

    cuSOLVER reports a failed allocation of its workspace as an internal error too, so that one is tried again as well.
    """
    text = str(error)
    refused = _NO_MEMORY.search(text) or "CUSOLVER_STATUS_INTERNAL_ERROR" in text
    return isinstance(error, torch.OutOfMemoryError) or bool(refused)


@contextmanager
def float32_products(tf32: bool = False) -> Iterator[None]:
    """Compute products and convolutions of float32 on NVIDIA GPUs in float32, or in TF32, for the duration of a block.

    torch allows TF32, which keeps 10 of the 23 bits of a fraction, in convolutions unless told otherwise.
    """
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = tf32
        yield
    finally:
        for place, allowed in zip(places, before, strict=True):
            place.allow_tf32 = allowed


def reading_processes(device: torch.device) -> int:
    """Processes that read images beside a forward pass: one for the CPU, and the share of the cores for a GPU."""
    return min(_MOST_READERS, cpu_share()) if device.type == "cuda" else 1


def cpu_share(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: of those it may run on, within the quota of its container, its rank's part."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = map(int, (groups / "cpu.max").read_text().split())  # `max 100000` without a limit
        cores = min(cores, quota // period)
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def free_memory(
    device: torch.device, system: Path = Path("/proc/meminfo"), groups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes that this process may still take on a device; None where nothing tells.

    On a GPU that is with what torch holds in reserve, on the CPU the rank's part of what is free.
    """
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    if device.type != "cpu":
        return 4 << 30
    free = []
    with suppress(OSError):
        free += [int(match[1]) * 1024 for match in re.finditer(r"MemAvailable:\s+(\d+) kB", system.read_text())]
    with suppress(OSError, ValueError):  # `max` without a limit
        used = int((groups / "memory.current").read_text())
        cached = re.search(r"^inactive_file (\d+)$", (groups / "memory.stat").read_text(), re.MULTILINE)
        free.append(int((groups / "memory.max").read_text()) - used + (int(cached[1]) if cached else 0))
    return max(0, min(free)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if free else None


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the allocator on a GPU, of the whole process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include the process that started this one
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024  # type: ignore[index]
    import resource  # noqa: PLC0415 - not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak_memory(device: torch.device) -> None:
    """Start to measure the peak memory of a GPU anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device; to a GPU it is copied from pinned memory, so that nothing waits for the copy."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def solves_in_threads(device: torch.device) -> bool:
    """Whether blocks of tasks are solved side by side, in one thread each. On a GPU threads only draw tasks.

    On the CPU small operations gain nothing from more threads.
    """
    return device.type == "cpu"


def device_name(device: torch.device) -> str:
    """A device as records name it, with the number of threads or the model of the GPU."""
    if device.type == "cuda":
        return f"cuda:{torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return f"cpu:{threads} thread{'s' if threads > 1 else ''}" if device.type == "cpu" else device.type


def time_mark(device: torch.device) -> Any:
    """Now: an event in the stream of a GPU, where calls return before the work is done, elsewhere the clock."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(start: Any, end: Any) -> float:
    """Seconds from one mark to another; those of a GPU must have passed."""
    return float(end - start if isinstance(start, float) else start.elapsed_time(end) / 1e3)


def keep_freed_memory() -> None:
    """Let the C library keep large blocks that are freed, instead of returning them to the system.

    Training allocates and frees its activations at every step, and memory fresh from the system is slow to touch: on
    one core an update of VERSA (Conv-4 of width 32, 360 images of 32 pixels) took 1.6 times as long. With glibc only.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, 1 << 30)
        library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


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
