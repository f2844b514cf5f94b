"""The methods with text against the loop versions, with and without labelled images."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import fsbench
from tests.oracle import rivals_text as loops
from tests.oracle.reference import Tasks
from tests.synthetic import Features

SLOW: dict[str, Callable[..., Any]] = {
    "zero-shot": loops.zero_shot,
    "tip-adapter": partial(loops.tip_adapter, weight=1.0, sharpness=1.0),
    "gda": partial(loops.gda, weight=0.01),
    "zlap": loops.zlap,
    "transclip": loops.transclip,
    "transclip:released": partial(loops.transclip, released=True),
    "stata": loops.stata,
    "em-dirichlet": partial(loops.em_dirichlet, hard=False, inner=10),
    "em-dirichlet:hard": partial(loops.em_dirichlet, hard=True, inner=10),
    "otter": loops.otter,
    "bavardage-text": loops.bavardage_text,
}
FEWER: dict[str, dict[str, Any]] = {name: {"inner_steps": 10} for name in SLOW if "dirichlet" in name}


@dataclass
class TextTasks(Tasks):
    """Tasks whose classes have text, the same in all tasks."""

    text: Any = None

    def predict(self, name: str, **params: Any) -> Any:
        support, labels = (self.support, self.labels) if self.labels.size else (None, None)
        return fsbench.predict(name, support, labels, self.query, text=self.text, **params)

    def slowly(self, slow: Callable[..., Any]) -> Any:
        ways = len(self.text)
        return np.stack([slow(x, y, ways, self.text) for x, y in zip(self.rows, self.labels, strict=True)])


def make_tasks(features: Features, shots: int, present: int = 10) -> TextTasks:
    """Three tasks of all ten classes, 40 queries of those present; text is near the class means, of any length."""
    rng, novel = np.random.default_rng(5), features.novel
    x = novel.features - novel.features.mean(axis=0)  # cosines of both signs
    means = np.stack([x[novel.labels == k].mean(axis=0) for k in range(10)])
    text = (means + 0.5 * rng.normal(size=means.shape)) * rng.uniform(1, 9, size=(10, 1))
    labels = np.tile(np.arange(10), (3, shots))
    rows = [[rng.permutation(np.flatnonzero(novel.labels == k)) for k in range(10)] for _ in range(3)]
    support = np.array([[one[k][shot] for shot in range(shots) for k in range(10)] for one in rows], dtype=int)
    query = np.array([np.concatenate([one[k][10 : 10 + 40 // present] for k in range(present)]) for one in rows])
    return TextTasks(x[support.reshape(3, -1)], labels, x[query], text)


NEED_SHOTS = ("tip-adapter", "gda")


@pytest.mark.parametrize(
    ("name", "shots", "present"),
    [
        (name, shots, present)
        for name in SLOW
        for shots, present in ((0, 10), (0, 2), (1, 10), (3, 10))
        if shots or name not in NEED_SHOTS
    ],
)
def test_methods_agree_with_loops(features: Features, name: str, shots: int, present: int) -> None:
    tasks = make_tasks(features, shots, present)
    atol = 0.02 if name == "otter" else 1e-5  # a limit, not the plan itself
    tasks.agree(name, SLOW[name], atol, **FEWER.get(name, {}), **({"rounds": 14} if name == "otter" else {}))
