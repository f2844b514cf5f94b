"""Processes that read images: what they send, and what it means when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    Sent = TypeVar("Sent")

_REMEDY = "Read images without other processes, --workers 0, or enlarge the shared memory (docker: --shm-size)."


def share(tensor: Tensor) -> Tensor:
    """Put a tensor where the main process finds it, if this is a worker.

    Left to torch, that happens in a thread whose errors nobody sees, and the main process would wait for ever.
    """
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        return tensor
    try:
        tensor.share_memory_()
    except RuntimeError as error:
        raise FsbenchError(f"The shared memory has no room for images: {error}", _REMEDY) from error
    return tensor


def while_workers_live(batches: Iterable[Sent]) -> Iterator[Sent]:
    """The same batches; a worker that was killed is an error for people."""
    try:
        yield from batches
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        told = str(error).partition("\n")[0]
        raise FsbenchError(f"A process that reads images has ended: {told}", _REMEDY) from error
