"""The processes of one run, as torchrun starts them; without torchrun there is one.

Each of R processes takes every R-th item of the work, and process 0 decides whatever depends on files. An item's
outcome depends on the item alone: the number of processes changes no result.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.distributed import Store  # type: ignore[attr-defined]

    Result = TypeVar("Result")

_PATIENCE = timedelta(days=7)  # one process may work alone for hours while the others wait; torchrun notices a death
_TIME_TO_REPORT = timedelta(seconds=10)


class SharedError(FsbenchError):
    """An error of process 0 that all processes know of, so that they can leave something out together."""


@dataclass(frozen=True)
class Ranks:
    """The place of this process among all. Every process calls the same methods in the same order."""

    number: int = 0  # process 0 prints, decides and saves
    count: int = 1
    store: Store | None = None  # what all processes share; None if there is one process

    @property
    def leads(self) -> bool:
        """Whether this is process 0."""
        return self.number == 0

    def agree(self, decide: Callable[[], Result]) -> Result:
        """Let process 0 decide; all get its answer, or its error."""
        if self.store is None:
            return decide()
        from torch import device, distributed

        answer: list[tuple[Result | None, FsbenchError | None]] = [(None, None)]
        if self.leads:
            try:
                answer = [(decide(), None)]
            except FsbenchError as error:
                answer = [(None, SharedError(error.message, error.hint))]
        distributed.broadcast_object_list(answer, device=device("cpu"))
        result, failure = answer[0]
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]

    def first_alone(self, action: Callable[[], Result]) -> Result:
        """Do something in process 0 before the others, who then find it done."""
        results: list[Result] = []
        self.agree(lambda: results.append(action()))
        return results[0] if results else action()

    def wait(self) -> None:
        """Wait until all processes have come this far."""
        if self.store is not None:
            from torch import distributed, zeros

            distributed.all_reduce(zeros(1))  # on the CPU, unlike a barrier

    def sum(self, array: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of an array over all processes, the same in each."""
        if self.store is None:
            return array
        import torch

        total = torch.from_numpy(array.copy())
        torch.distributed.all_reduce(total)
        return total.numpy()

    def mean(self, value: Tensor) -> float:
        """The mean of a scalar over all processes, the same number in each."""
        value = value.detach().clone()
        if self.store is not None:
            from torch import distributed

            distributed.all_reduce(value)
        return value.item() / self.count

    def share(self, objective: nn.Module) -> nn.Module:
        """A module whose gradients are averaged over all processes."""
        if self.store is None:
            return objective
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(objective)


ALONE = Ranks()


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """Meet the other processes for the duration of the block: gloo between CPUs, NCCL between GPUs."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield ALONE
        return
    from torch import cuda, distributed

    try:
        store, number, count = _rendezvous()
        backend = "cpu:gloo,cuda:nccl" if cuda.is_available() and distributed.is_nccl_available() else "gloo"
        distributed.init_process_group(backend, store=store, rank=number, world_size=count, timeout=_PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise FsbenchError(f"The processes of this run could not meet: {error}", "Start them with torchrun.") from error
    try:
        yield Ranks(number, count, store)
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):  # from a connection that is gone
            raise
        message = "Another process of this run has ended, so this one ends too."
        raise FsbenchError(message, "Run the same command again to resume.") from error
    distributed.destroy_process_group()  # not after an error: keep the connection until the failing rank has reported


@contextmanager
def first_to_report() -> Iterator[bool]:
    """True in the process that prints the error; the others wait until it has."""
    store, first = None, True
    if os.environ.get("WORLD_SIZE", "1") != "1":
        with suppress(ValueError, RuntimeError):  # without the others there is nobody to agree with
            store, _, _ = _rendezvous()
            first = store.add("reporting", 1) == 1
    yield first
    if store is not None:
        with suppress(RuntimeError):
            if first:
                store.set("reported", "")
            else:
                store.wait(["reported"], _TIME_TO_REPORT)


@functools.cache
def _rendezvous() -> tuple[Store, int, int]:
    """The store that all processes share, the number of this one, and how many there are."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    store, number, count = next(rendezvous("env://"))
    return PrefixStore("fsbench", store), number, count
