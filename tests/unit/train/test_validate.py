from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from fsbench.data.published_transforms import transform_for
from fsbench.errors import FsbenchError
from fsbench.results.statistics import Interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from fsbench.train.validate import Evaluation, Validation, best_of
from tests.unit.train.stripes import stripes

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageSplit

TRANSFORM = transform_for("simpleshot", None, 16)
CPU = torch.device("cpu")


class OnePixel(nn.Module):
    """Features that change with the mode, so that a forgotten `eval()` shows."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, 5, 9] + (100.0 if self.training else 0.0)


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> ImageSplit:
    return stripes(tmp_path_factory.mktemp("stripes"), 16, {"base": (2, 1), "val": (7, 21)}).splits["val"]


def test_accuracy_is_that_of_a_plain_loop_over_tasks(val: ImageSplit) -> None:
    network = OnePixel().train()
    found = Validation(val, TRANSFORM, 0)(network, CPU, 4)
    assert network.training
    assert found.epoch == 4
    features = np.stack([TRANSFORM(val.open(row))[:, 5, 9].numpy() for row in range(len(val))])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for shots in (1, 5):
        drawn = sample_tasks(TaskProtocol(shots=shots, alpha=None), np.arange(0, 148, 21), 0, np.arange(500))
        right = []
        for support, query, labels in zip(drawn.support, drawn.query, drawn.query_labels, strict=True):
            means = features[support].reshape(shots, 5, 3).mean(axis=0)
            distances = np.linalg.norm(features[query][:, None] - means, axis=2)
            right.append((distances.argmin(axis=1) == labels).mean())
        assert found.accuracy[shots].mean == pytest.approx(100 * np.mean(right), abs=0.02)
    assert 25 < found.accuracy[1].mean < 99


def test_too_few_classes_or_images_are_told_beforehand(tmp_path: Path, val: ImageSplit) -> None:
    assert Validation(val, TRANSFORM, 0).refusal() is None
    for name, counts, words in (("a", (4, 20), "4 classes"), ("b", (5, 19), "smallest class has 19")):
        few = stripes(tmp_path / name, 16, {"base": (2, 1), "val": counts}).splits["val"]
        refusal = Validation(few, TRANSFORM, 0).refusal()
        assert refusal is not None
        assert words in refusal.message


def test_an_unreadable_val_image_is_named(tmp_path: Path) -> None:
    split = stripes(tmp_path, 16, {"base": (2, 1), "val": (5, 20)}).splits["val"]
    (tmp_path / "val" / "val1" / "03.png").write_bytes(b"")
    network = OnePixel().train()
    for workers in (0, 1):
        with pytest.raises(FsbenchError, match=r"val classes cannot be used: val/val1/03\.png"):
            Validation(split, TRANSFORM, workers)(network, CPU, 1)
        assert network.training


def test_a_val_image_that_vanishes_is_named(tmp_path: Path) -> None:
    split = stripes(tmp_path, 16, {"base": (2, 1), "val": (5, 20)}).splits["val"]
    gone = tmp_path / "val" / "val1" / "03.png"
    gone.unlink()
    for workers in (0, 1):
        with pytest.raises(FsbenchError) as caught:
            Validation(split, TRANSFORM, workers)(OnePixel(), CPU, 1)
        assert str(gone) in caught.value.message


def test_the_best_evaluation_has_the_highest_one_shot_accuracy() -> None:
    looks = [
        Evaluation(epoch, {1: Interval(mean, 1), 5: Interval(90, 1)}) for epoch, mean in ((2, 50), (4, 60), (6, 60))
    ]
    assert best_of(looks[:2]).epoch == 4
    assert best_of(looks).epoch == 6
    assert str(looks[0]) == "1-shot 50.00 ± 1.00 %, 5-shot 90.00 ± 1.00 %"
