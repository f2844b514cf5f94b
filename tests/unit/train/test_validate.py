from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from fsbench.data.pixels import open_pixels
from fsbench.data.transforms import transform_for
from fsbench.reporter import Reporter
from fsbench.results.statistics import Interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from fsbench.train.run import Evaluation, Validation, best_of
from tests.unit.train.stripes import stripes

if TYPE_CHECKING:
    from fsbench.data.dataset import ImageSplit

TRANSFORM = transform_for("simpleshot", None, 16)


class OnePixel(nn.Module):
    """Features that change with the mode, so that a forgotten `eval()` shows."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, 5, 9] + (100.0 if self.training else 0.0)


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> ImageSplit:
    return stripes(tmp_path_factory.mktemp("stripes"), 16, {"base": (2, 1), "val": (7, 21)}).splits["val"]


def test_accuracy_is_that_of_a_plain_loop_over_tasks(val: ImageSplit) -> None:
    network, pixels = OnePixel().train(), open_pixels(val, TRANSFORM, None, Reporter(quiet=True))
    evaluation = Validation(val, pixels, TRANSFORM, torch.device("cpu")).of_backbone(network, 4)
    assert network.training
    assert evaluation.epoch == 4
    features = np.stack([TRANSFORM(val.open(row))[:, 5, 9].numpy() for row in range(len(val))])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for shots in (1, 5):
        drawn = sample_tasks(TaskProtocol(shots=shots, alpha=None), np.arange(0, 148, 21), 0, np.arange(500))
        right = []
        for support, query, labels in zip(drawn.support, drawn.query, drawn.query_labels, strict=True):
            means = features[support].reshape(shots, 5, 3).mean(axis=0)
            distances = np.linalg.norm(features[query][:, None] - means, axis=2)
            right.append((distances.argmin(axis=1) == labels).mean())
        assert evaluation.accuracy[shots].mean == pytest.approx(100 * np.mean(right), abs=0.02)
    assert 25 < evaluation.accuracy[1].mean < 99


def test_the_best_evaluation_has_the_highest_one_shot_accuracy() -> None:
    looks = [
        Evaluation(epoch, {1: Interval(mean, 1), 5: Interval(90, 1)}) for epoch, mean in ((2, 50), (4, 60), (6, 60))
    ]
    assert best_of(looks[:2]).epoch == 4
    assert best_of(looks).epoch == 6
    assert str(looks[0]) == "1-shot 50.00 ± 1.00 %, 5-shot 90.00 ± 1.00 %"
