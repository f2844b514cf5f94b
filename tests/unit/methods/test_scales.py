"""Features of any size: what is huge or tiny is not taken for infinite or for nothing, and the usual is not touched."""

from typing import Any

import numpy as np
import pytest
import torch

from fsbench.features.preprocess import apply_rows, extreme_scale, power_rows
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context
from fsbench.methods.baseline import directions
from fsbench.methods.registry import method_class
from fsbench.tasks.batch import TaskBatch, by_name
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.properties.test_methods import CONFIGURATIONS, TEXT
from tests.synthetic import make_features

DATA = make_features(seed=5)
TASKS = sample_tasks(TaskProtocol(shots=2, queries=30), DATA.novel.offsets, 0, np.arange(8))


def predictions(name: str, params: dict[str, Any], scale: float, offset: float = 0.0) -> Any:
    """(8, 30) answers in float32, as `solve` computes them, with base statistics of features of the same size."""
    base, novel = ((split.features * np.float32(scale) + np.float32(offset)) for split in (DATA.base, DATA.novel))
    statistics = BaseStatistics.fit(base, DATA.base.labels)
    method = method_class(name).configure(Context(balanced=False, shots=2, base=statistics), **params)
    index = np.concatenate([TASKS.support, TASKS.query], axis=1)
    spaces = by_name(method.embed(torch.from_numpy(novel), statistics))
    rows = {space: table[index] for space, table in spaces.items()}
    text = torch.from_numpy(TEXT[:5]).float().expand(8, -1, -1)
    return method.classify(TaskBatch(rows, torch.from_numpy(TASKS.support_labels), 5, text)).argmax(dim=2).numpy()


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize(("name", "params"), CONFIGURATIONS, ids=str)
def test_huge_and_tiny_features_give_the_same_answers(name: str, params: dict[str, Any], scale: float) -> None:
    usual, found = predictions(name, params, 1.0), predictions(name, params, scale)
    # The temperatures of these are ones of raw distances, so for them the size is a parameter.
    least = {"baseline": 0.9, "baseline++": 0.9, "unem-gaussian": 0.8}.get(name, 0.99)
    assert (usual == found).mean() >= least


def test_usual_features_are_the_same_in_every_bit() -> None:
    x = torch.from_numpy(DATA.novel.features)
    assert (extreme_scale(x) == 1).all()
    mean = x.mean(dim=0)
    assert torch.equal(apply_rows("CL2N", x, mean), torch.nn.functional.normalize(x - mean, dim=-1, eps=1e-12))
    zeros = torch.zeros(2, 5)
    assert torch.equal(apply_rows("L2N", zeros), zeros)
    assert torch.isfinite(power_rows(zeros)).all()


@pytest.mark.parametrize("name", ["baseline", "simpleshot"])
def test_distances_do_not_depend_on_an_offset(name: str) -> None:
    params = {"norm": "UN"} if name == "simpleshot" else {}
    assert (predictions(name, params, 1.0) == predictions(name, params, 1.0, offset=1000.0)).mean() >= 0.99


def test_cosines_keep_their_digits_far_from_the_origin() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(2, 9, 20)))
    origin = torch.full((2, 1, 20), 1000.0, dtype=torch.float64)
    exact = torch.nn.functional.normalize(x + origin, dim=2) - torch.nn.functional.normalize(origin, dim=2)
    torch.testing.assert_close(directions(x, origin), exact, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(directions(x.float(), origin.float()).double(), exact, rtol=1e-4, atol=1e-9)
    at_zero = directions(x, torch.zeros_like(origin))
    torch.testing.assert_close(at_zero, torch.nn.functional.normalize(x, dim=2))
