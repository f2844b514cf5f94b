"""One task, with BAVARDAGE followed through it step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fsbench.evaluation.run import configure
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import MethodChoice
from fsbench.methods.bavardage import Bavardage
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks


@dataclass(frozen=True)
class WatchedTask:
    """A task, and the steps of BAVARDAGE on it.

    The steps are `km_steps` of Soft-KMEANS, of which the first is the nearest class mean, then those of variational
    Bayes.
    """

    title: str  # origin of the task, and parameters, in two lines
    class_names: tuple[str, ...]
    support_labels: NDArray[np.int64]  # (S,) in 0..K-1
    query_labels: NDArray[np.int64]  # (Q,) in 0..K-1
    method: Bavardage
    tasks: TaskBatch  # as `method` sees them: a batch of one
    assignments: NDArray[np.float64]  # (T, N, K) after every step, support first

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
    """Draw one task by its number and follow BAVARDAGE through it, with its parameters as the user gave them."""
    method = cast("Bavardage", configure(MethodChoice("bavardage", "bavardage", options), source, protocol)[0])
    drawn = sample_tasks(protocol, source.split.offsets, seed, np.array([number]))
    present = drawn.query_labels[0] >= 0
    rows = np.concatenate([drawn.support[0], drawn.query[0][present]])
    with torch.inference_mode():
        embedded = method.embed(torch.from_numpy(source.split.features[rows]), source.base)
        spaces = {name: space[None] for name, space in embedded.items()}
        tasks = TaskBatch(spaces, torch.from_numpy(drawn.support_labels), protocol.ways)
        steps = torch.cat(list(method.assignments(tasks)))  # (T, K, Q)
        steps = torch.cat([tasks.one_hot().expand(len(steps), -1, -1), steps], dim=2)  # (T, K, N)
    setting = protocol.setting if protocol.balanced else f"{protocol.setting} (α = {protocol.alpha:g})"
    tau = method.tau if isinstance(method.tau, str) else f"{method.tau:.3g}"
    return WatchedTask(
        title=f"{source.title}, {source.split_name}, protocol {protocol.name}: task {number} of "
        f"seed {seed}, {protocol.ways}-way {protocol.shots}-shot, {setting}\n"
        f"BAVARDAGE ({method.variant}): T_km = {method.t_km:g}, τ = {tau}, σ = {method.sigma:.3g}, "
        f"{method.km_steps}+{method.steps} steps",
        class_names=tuple(source.split.class_names[c] for c in drawn.classes[0]),
        support_labels=drawn.support_labels[0],
        query_labels=drawn.query_labels[0][present],
        method=method,
        tasks=tasks,
        assignments=steps.mT.double().numpy(),
    )
