"""The same version of a method gives the same results, pinned on fixed tasks, and the same for features of any size."""

from typing import Any

import numpy as np
import pytest
import torch

from fsbench.evaluation.engine import TaskList, solve
from fsbench.features.preprocess import apply_rows, extreme_scale, power_rows
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import with_text
from fsbench.methods.base import Context
from fsbench.methods.baseline import directions
from fsbench.methods.registry import method_class
from fsbench.tasks.batch import TaskBatch, by_name
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import CPU
from tests.properties.test_methods import CONFIGURATIONS, ON_FEATURES, TEXT
from tests.synthetic import make_features

DATA = make_features(seed=2)
BASE = DATA.statistics
TASKS = TaskList(TaskProtocol(shots=2, queries=40), 0, np.arange(12))
MEANS = np.stack([DATA.novel.features[DATA.novel.labels == k].mean(axis=0) for k in range(10)])
NOVEL = with_text(DATA.novel, MEANS - MEANS.mean(axis=0) + 0.3 * TEXT[:10], "here")
ROUNDING = 2  # of 480 answers, on another processor
# After a change of results: raise `version` in the method's `info`, say it in CHANGELOG.md, and put its counts here.
PINNED: dict[str, tuple[int, list[int]]] = {
    "ncm {}": (1, [28, 30, 29, 19, 18, 28, 25, 29, 28, 28, 21, 33]),
    "lda {}": (1, [38, 40, 38, 39, 38, 38, 38, 40, 40, 38, 35, 40]),
    "lda {'variant': 'ridge'}": (1, [27, 29, 30, 25, 16, 26, 28, 29, 30, 26, 22, 34]),
    "lda {'scatter': 'released'}": (1, [38, 40, 38, 39, 38, 38, 38, 40, 40, 38, 35, 40]),
    "simpleshot {}": (1, [28, 30, 29, 19, 18, 28, 25, 29, 28, 28, 21, 33]),
    "baseline {}": (2, [26, 29, 28, 19, 16, 24, 23, 29, 28, 27, 22, 29]),
    "baseline++ {}": (2, [28, 33, 28, 20, 19, 28, 25, 29, 30, 27, 17, 33]),
    "entropy-min {'variant': 'head', 'steps': 25, 'rate': 0.001}": (
        2,
        [28, 28, 31, 21, 16, 24, 25, 30, 33, 25, 15, 34],
    ),
    "laplacianshot {}": (1, [27, 31, 30, 21, 19, 27, 26, 32, 32, 26, 23, 34]),
    "bd-cspn {}": (1, [26, 29, 29, 22, 19, 29, 16, 32, 23, 30, 21, 34]),
    "pt-map {}": (1, [27, 27, 23, 17, 17, 30, 8, 25, 18, 29, 21, 29]),
    "bms {}": (1, [26, 25, 23, 17, 18, 26, 11, 24, 20, 33, 21, 29]),
    "protolp {'rounds': 10}": (1, [31, 30, 26, 19, 21, 36, 12, 29, 26, 31, 23, 32]),
    "ilpc {'steps': 20}": (1, [26, 28, 24, 20, 18, 27, 9, 26, 21, 30, 22, 30]),
    "tim-gd {'steps': 25, 'rate': 0.001}": (1, [29, 31, 30, 21, 19, 30, 22, 31, 29, 30, 20, 33]),
    "tim-adm {'steps': 15}": (1, [27, 26, 28, 18, 19, 28, 10, 27, 20, 31, 21, 32]),
    "alpha-tim {'steps': 25, 'rate': 0.001}": (1, [29, 32, 28, 21, 19, 27, 29, 31, 33, 28, 18, 33]),
    "paddle {}": (1, [6, 13, 12, 16, 4, 15, 24, 16, 20, 7, 12, 2]),
    "unem-gaussian {}": (1, [31, 30, 30, 23, 18, 31, 23, 32, 31, 36, 18, 35]),
    "alpha-am {'steps': 12, 'rate': 0.001}": (2, [30, 31, 31, 21, 22, 33, 22, 31, 30, 29, 22, 34]),
    "am {'steps': 12, 'rate': 0.001}": (1, [28, 31, 27, 18, 20, 31, 11, 29, 27, 30, 20, 34]),
    "soft-kmeans {}": (1, [32, 31, 30, 19, 17, 32, 27, 32, 32, 33, 23, 34]),
    "bavardage {}": (5, [40, 40, 40, 36, 24, 38, 40, 40, 40, 40, 37, 40]),
    "bavardage {'variant': 'released'}": (5, [40, 40, 40, 33, 23, 38, 39, 39, 40, 40, 37, 39]),
    "bavardage {'variant': 'transport'}": (5, [33, 33, 34, 31, 17, 29, 17, 31, 25, 39, 32, 35]),
    "bavardage {'variant': 'weighted'}": (5, [40, 40, 40, 39, 30, 40, 40, 40, 40, 38, 39, 40]),
    "bavardage {'variant': 'weighted', 'sizes': 'free'}": (5, [40, 40, 40, 39, 30, 40, 40, 40, 40, 40, 39, 40]),
    "bavardage {'stage': 'vb'}": (5, [34, 31, 31, 16, 17, 33, 28, 33, 31, 35, 22, 34]),
    "bavardage {'tau': 'learned'}": (5, [40, 40, 40, 28, 24, 38, 40, 40, 40, 40, 37, 40]),
    "bavardage {'sigma': inf}": (5, [40, 40, 40, 36, 24, 38, 40, 40, 40, 40, 37, 40]),
    "bavardage {'variant': 'released', 'sigma': inf}": (5, [40, 40, 40, 33, 23, 38, 39, 39, 40, 40, 37, 39]),
    "protolp {'graph': 'anchor', 'rounds': 10}": (1, [31, 30, 26, 19, 21, 34, 10, 28, 26, 31, 23, 33]),
    "simpleshot {'norm': 'UN'}": (1, [26, 29, 28, 19, 16, 24, 23, 29, 28, 27, 22, 29]),
    "simpleshot {'norm': 'L2N'}": (1, [29, 31, 29, 20, 18, 28, 26, 29, 30, 27, 16, 33]),
    "laplacianshot {'weight': 0.7, 'rectify': True}": (1, [29, 29, 31, 21, 19, 28, 19, 32, 26, 32, 20, 32]),
    "zero-shot {}": (1, [24, 34, 29, 28, 19, 27, 31, 34, 23, 33, 22, 34]),
    "tip-adapter {}": (1, [24, 34, 30, 28, 19, 27, 31, 34, 23, 33, 22, 34]),
    "gda {}": (1, [24, 34, 30, 28, 19, 27, 31, 34, 23, 33, 22, 34]),
    "zlap {}": (1, [30, 35, 32, 33, 24, 31, 33, 33, 28, 39, 26, 37]),
    "otter {}": (1, [28, 29, 25, 28, 27, 27, 20, 27, 26, 36, 27, 29]),
    "transclip {}": (1, [24, 34, 29, 28, 19, 27, 30, 34, 24, 32, 22, 35]),
    "stata {}": (1, [24, 34, 29, 28, 19, 27, 31, 34, 24, 33, 22, 34]),
    "em-dirichlet {'inner_steps': 5}": (1, [27, 34, 30, 30, 25, 30, 35, 34, 29, 37, 23, 33]),
    "bavardage-text {}": (1, [24, 34, 29, 28, 19, 27, 30, 34, 23, 33, 22, 34]),
    "em-dirichlet {'variant': 'hard', 'inner_steps': 5}": (1, [25, 34, 31, 29, 20, 28, 35, 34, 26, 34, 23, 34]),
}


def counts(name: str, params: dict[str, Any]) -> list[int]:
    method = method_class(name).configure(Context(balanced=False, shots=2, base=BASE), **params)
    (outcome,) = solve([method], NOVEL, BASE, TASKS, device=CPU)
    right: list[int] = (outcome.answers.predicted == outcome.answers.labels).sum(axis=1).tolist()
    return right


@pytest.mark.parametrize(("name", "params"), CONFIGURATIONS, ids=str)
def test_results_change_only_with_the_version(name: str, params: dict[str, Any]) -> None:
    key, found = f"{name} {params}", counts(name, params)
    assert key in PINNED, f"Add to PINNED: {key!r}: ({method_class(name).info.version}, {found})"
    version, expected = PINNED[key]
    assert method_class(name).info.version == version, f"Put the counts of this version into PINNED: {found}"
    differing = sum(abs(one - other) for one, other in zip(found, expected, strict=True))
    assert differing <= ROUNDING, f"{name} gives other results: raise its version. Now: {found}"


def test_every_method_is_pinned() -> None:
    assert {key.partition(" ")[0] for key in PINNED} == set(ON_FEATURES)


SIZED = make_features(seed=5)
DRAWN = sample_tasks(TaskProtocol(shots=2, queries=30), SIZED.novel.offsets, 0, np.arange(8))


def predictions(name: str, params: dict[str, Any], scale: float, offset: float = 0.0) -> Any:
    """(8, 30) answers in float32, as `solve` computes them, with base statistics of features of the same size."""
    base, novel = ((split.features * np.float32(scale) + np.float32(offset)) for split in (SIZED.base, SIZED.novel))
    statistics = BaseStatistics.fit(base, SIZED.base.labels)
    method = method_class(name).configure(Context(balanced=False, shots=2, base=statistics), **params)
    index = np.concatenate([DRAWN.support, DRAWN.query], axis=1)
    spaces = by_name(method.embed(torch.from_numpy(novel), statistics))
    rows = {space: table[index] for space, table in spaces.items()}
    text = torch.from_numpy(TEXT[:5]).float().expand(8, -1, -1)
    return method.classify(TaskBatch(rows, torch.from_numpy(DRAWN.support_labels), 5, text)).argmax(dim=2).numpy()


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize(("name", "params"), CONFIGURATIONS, ids=str)
def test_huge_and_tiny_features_give_the_same_answers(name: str, params: dict[str, Any], scale: float) -> None:
    usual, found = predictions(name, params, 1.0), predictions(name, params, scale)
    # The temperatures of these are ones of raw distances, so for them the size is a parameter.
    least = {"baseline": 0.9, "baseline++": 0.9, "unem-gaussian": 0.8}.get(name, 0.99)
    assert (usual == found).mean() >= least


def test_usual_features_are_the_same_in_every_bit() -> None:
    x = torch.from_numpy(SIZED.novel.features)
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
