"""Zero-shot classification by text, and what other methods with text share."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.methods.base import Method, MethodInfo, Positive
from fsbench.methods.centroids import support_and_query
from fsbench.tasks.batch import TaskBatch

SCALE = 100.0  # of cosines in logits, which CLIP learned


class ZeroShot(Method):
    """The nearest text prototype by cosine; the support is not looked at."""

    scale: Positive = SCALE

    preprocessing = "L2N"
    info = MethodInfo(
        "zero-shot", "Zero-shot", 'Radford et al., "Learning Transferable Visual Models From Natural Language '
        'Supervision", ICML 2021', url="https://arxiv.org/abs/2103.00020", order=300, transductive=False,
        text="needed", zero_shot=True, published={"CLIP": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of scaled cosines, (B, Q, K)."""
        return torch.softmax(text_logits(tasks, self.scale), dim=2)


def text_logits(tasks: TaskBatch, scale: float = SCALE) -> Tensor:
    """Scaled cosines of the queries with the text prototypes, (B, Q, K), from rows of unit norm."""
    return scale * support_and_query(tasks)[1] @ text_of(tasks).mT


def text_of(tasks: TaskBatch) -> Tensor:
    """The text prototypes (B, K, D), which whoever runs the method has checked to be there."""
    assert tasks.text is not None
    return tasks.text
