"""Several processes that share every batch, as torchrun starts them; without torchrun there is one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    Result = TypeVar("Result")

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


@dataclass(frozen=True)
class Ranks:
    """The place of this process among all.

    Attributes:
        number: From 0; process 0 reports and saves.
        count: Number of processes.
        device: Where this process computes.
    """

    number: int
    count: int
    device: torch.device

    def first_alone(self, action: Callable[[], Result]) -> Result:
        """Do something in process 0 before the others, who then find it done."""
        if self.number == 0:
            result = action()
        if self.count > 1:
            distributed.barrier()
        return result if self.number == 0 else action()

    def mean(self, value: Tensor) -> float:
        """The mean of a scalar over all processes, the same number in each."""
        value = value.detach().clone()
        if self.count > 1:
            distributed.all_reduce(value)
        return value.item() / self.count

    def share(self, objective: nn.Module) -> nn.Module:
        """A module whose gradients are averaged over all processes."""
        return DistributedDataParallel(objective) if self.count > 1 else objective


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Meet the other processes for the duration of the block."""
    number, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(0, 1, device)
        return
    if device.type not in _BACKENDS:
        raise FsbenchError(f"Several processes cannot share a batch on {device.type}.", "Use --device cpu or cuda.")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    distributed.init_process_group(_BACKENDS[device.type])
    try:
        yield Ranks(number, count, device)
    finally:
        distributed.destroy_process_group()
