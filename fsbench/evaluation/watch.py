"""One task, watched at work: the very task that `solve` gets under that number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from fsbench.evaluation.run import configure
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.sampling import sample_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.evaluation.source import Source
    from fsbench.methods.bavardage import Bavardage
    from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class WatchedTask:
    """A task, and BAVARDAGE's way through it.

    Attributes:
        title: Where the task comes from, and the parameters, in two lines.
        class_names: Names of the K classes.
        support_labels: (S,) labels in 0..K-1.
        query_labels: (Q,) labels in 0..K-1.
        method: BAVARDAGE with its parameters.
        tasks: The task as `method` sees it, a batch of one.
        assignments: (T, N, K) after every step, support first: `km_steps` of Soft-KMEANS, of which the first is the
            nearest class mean, then those of variational Bayes.
    """

    title: str
    class_names: tuple[str, ...]
    support_labels: NDArray[np.int64]
    query_labels: NDArray[np.int64]
    method: Bavardage
    tasks: TaskBatch
    assignments: NDArray[np.float64]

    @property
    def last_steps(self) -> dict[str, int]:
        """The step at which every method ends. The first E step is the nearest class mean, so NCM ends there."""
        return {"NCM": 0, "Soft-KMEANS": self.method.km_steps - 1, "BAVARDAGE": len(self.assignments) - 1}

    @property
    def query_probabilities(self) -> NDArray[np.float64]:
        """(T, Q, K) after every step."""
        return self.assignments[:, len(self.support_labels) :]

    def right(self, step: int) -> NDArray[np.bool_]:
        """(Q,) whether a query's most probable class after a step is its own."""
        right: NDArray[np.bool_] = self.query_probabilities[step].argmax(axis=1) == self.query_labels
        return right


def watch(source: Source, protocol: TaskProtocol, seed: int, number: int, options: dict[str, Any]) -> WatchedTask:
    """Draw a task by its number and follow BAVARDAGE through it.

    Args:
        source: Features.
        protocol: How tasks are drawn.
        seed: Of the task list.
        number: Of the task.
        options: Parameters of BAVARDAGE as the user gave them.
    """
    method = cast("Bavardage", configure("bavardage", source, protocol, options)[0])
    drawn = sample_tasks(protocol, source.split.offsets, seed, np.array([number]))
    present = drawn.query_labels[0] >= 0
    rows = np.concatenate([drawn.support[0], drawn.query[0][present]])
    with torch.inference_mode():
        embedded = method.embed(torch.from_numpy(source.split.features[rows]), source.base)
        tasks = TaskBatch(embedded[None], torch.from_numpy(drawn.support_labels), protocol.ways)
        steps = torch.cat(list(method.assignments(tasks)))  # (T, K, Q)
        steps = torch.cat([tasks.one_hot().expand(len(steps), -1, -1), steps], dim=2)  # (T, K, N)
    return WatchedTask(
        title=_title(source, protocol, seed, number, method),
        class_names=tuple(source.split.class_names[c] for c in drawn.classes[0]),
        support_labels=drawn.support_labels[0],
        query_labels=drawn.query_labels[0][present],
        method=method,
        tasks=tasks,
        assignments=steps.mT.double().numpy(),
    )


def _title(source: Source, protocol: TaskProtocol, seed: int, number: int, method: Bavardage) -> str:
    setting = protocol.setting if protocol.balanced else f"{protocol.setting} (α = {protocol.alpha:g})"
    tau = method.tau if isinstance(method.tau, str) else f"{method.tau:.3g}"
    return (
        f"{source.dataset}, {source.backbone}, {source.split_name}, protocol {protocol.name}: task {number} of seed "
        f"{seed}, {protocol.ways}-way {protocol.shots}-shot, {setting}\n"
        f"BAVARDAGE ({method.variant}): T_km = {method.t_km:g}, τ = {tau}, σ = {method.sigma:.3g}, "
        f"{method.km_steps} + {method.steps} steps"
    )
