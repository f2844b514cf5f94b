"""Fills a network with the tensors of a checkpoint: all of them, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

SHOWN = 5  # names per kind of fault
COUNTER = "num_batches_tracked"  # not in files older than torch 0.4.1, and without effect on features


def fill(network: nn.Module, tensors: Mapping[str, Tensor], path: Path, title: str) -> None:
    """Puts tensors into a network, which may have been built on the meta device.

    Args:
        network: Its state names and shapes are what is expected.
        tensors: By the network's names.
        path: The file, for the error.
        title: What the file looks like, for the error.

    Raises:
        FsbenchError: Tensors are missing, superfluous, of another shape, or not finite numbers.
    """
    expected = network.state_dict()
    tensors = _with_counters(tensors, expected)
    _check_names_and_shapes(expected, tensors, path, title)
    state = {
        name: tensors[name].detach().to(wanted.dtype).clone(memory_format=torch.contiguous_format)
        for name, wanted in expected.items()
    }
    broken = [name for name, tensor in state.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise FsbenchError(
            f"{path} holds weights that are not finite numbers: {_listed(broken)}.",
            "The training diverged or the file is damaged; use another one.",
        )
    network.load_state_dict(state, strict=True, assign=True)


def _with_counters(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    counters = {name: torch.zeros((), dtype=torch.long) for name in expected if name.endswith(COUNTER)}
    return {**counters, **tensors}


def _check_names_and_shapes(
    expected: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path, title: str
) -> None:
    faults = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "of another shape": [
            f"{name} {tuple(found[name].shape)}, expected {tuple(wanted.shape)}"
            for name, wanted in expected.items()
            if name in found and found[name].shape != wanted.shape
        ],
    }
    report = [f"{len(names)} {kind}: {_listed(names)}" for kind, names in faults.items() if names]
    if report:
        raise FsbenchError(
            f"{path} looks like {title} but does not fit it.\n" + "\n".join(report),
            "Use the file as it was published, or the backbone it was trained with.",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
