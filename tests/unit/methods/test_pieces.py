"""Pieces of methods against their definitions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fsbench
from fsbench.errors import FsbenchError
from fsbench.features.preprocess import apply_rows, power
from fsbench.features.store import Provenance, write_features
from fsbench.methods import heads, unem
from fsbench.methods.base import Context
from fsbench.methods.bavardage import clamp_by_products, clamp_eigenvalues
from fsbench.methods.heads import support_slope
from fsbench.methods.paddle import scale_to_queries
from fsbench.methods.pool import pool_statistics
from fsbench.methods.registry import method_class
from fsbench.methods.transport import EqualSizes, equal_sizes
from fsbench.results.record import load_record
from fsbench.tasks.batch import TaskBatch
from tests.cli import run, succeed
from tests.oracle import algorithms, reference
from tests.synthetic import Features


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 10.0, 20.0])
@pytest.mark.parametrize(("ways", "queries"), [(2, 1), (5, 75), (50, 20)])
def test_classes_get_equal_sizes(dtype: torch.dtype, sharpness: float, ways: int, queries: int) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = sharpness * torch.randn(4, ways, queries, generator=generator, dtype=torch.float64)
    logits[0, 1:] -= 2 * sharpness  # everything wants to be in class 0
    equal = EqualSizes()
    plan = equal(logits.to(dtype))
    tolerance = {torch.float32: 2e-3, torch.float64: 1e-7}[dtype]
    sizes = torch.full((4, ways), queries / ways, dtype=dtype)
    torch.testing.assert_close(plan.sum(dim=2), sizes, atol=tolerance * queries / ways, rtol=0)
    torch.testing.assert_close(plan.sum(dim=1), torch.ones(4, queries, dtype=dtype))
    torch.testing.assert_close(plan, torch.softmax(logits.to(dtype) + equal.potentials, dim=1))  # type: ignore[operator]
    hard = 1e5 * logits.to(dtype)  # which gives numbers, too
    assert EqualSizes()(hard).isfinite().all()


def test_few_steps_suffice_and_never_overshoot() -> None:
    """The dual function of the transport falls with every step, from a start far away."""
    logits = 20 * torch.randn(30, 5, 75, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    start = 50 * torch.randn(30, 5, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    values = []
    for steps in range(25):
        _, v = equal_sizes(logits, start, steps)
        values.append(torch.logsumexp(logits + v, dim=1).sum(dim=1) - 15 * v.sum(dim=(1, 2)))
    fall = torch.stack(values).diff(dim=0)
    assert (fall < 1e-8).all()
    assert (fall[0] < -1).all()


def test_scaling_survives_ranges_that_are_next_to_nothing() -> None:
    rows = torch.rand(1, 12, 4)
    rows[0, 2:, 1] = 1e-30 * torch.rand(10)
    rows[0, 2:, 2] = 0.5
    scaled = scale_to_queries(TaskBatch(rows, torch.tensor([[0, 1]]), 2))
    assert torch.isfinite(scaled.square().sum())
    assert scaled[0, 2:, [0, 1]].amax() - scaled[0, 2:, [0, 1]].amin() <= 2
    torch.testing.assert_close(scaled[0, :2, 2], rows[0, :2, 2] - 0.5)


@pytest.mark.parametrize("spread", [0.5, 2.0, 5.0])
def test_the_spectral_minimum_is_the_same_by_eigenvalues_and_by_products(spread: float) -> None:
    generator = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(4, 30, 30, dtype=torch.float64, generator=generator))[0]
    values = 10 ** (spread * torch.rand(4, 30, dtype=torch.float64, generator=generator))
    values[0, :3] = 0.0
    limit = float(values[1, 7])  # an eigenvalue that is the limit itself, too
    matrix = (turn * values[:, None, :]) @ turn.mT
    factor = torch.randn(4, 30, 30, dtype=torch.float64, generator=generator).tril()
    expected = factor @ (turn * values.clamp_max(limit)[:, None, :]) @ turn.mT @ factor.mT
    for clamp in (clamp_eigenvalues, clamp_by_products):
        torch.testing.assert_close(clamp(factor, matrix, limit), expected, rtol=0, atol=1e-5 * limit)


def unit(x: np.ndarray) -> np.ndarray:
    return np.stack([row / np.sqrt((row**2).sum()) for row in x])


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(9, 6))


def test_row_chains(x: np.ndarray) -> None:
    mean = np.arange(6) / 10
    rows, centre = torch.from_numpy(x), torch.from_numpy(mean)
    np.testing.assert_array_equal(apply_rows("UN", rows), x)
    np.testing.assert_allclose(apply_rows("L2N", rows), unit(x), rtol=1e-12)
    np.testing.assert_allclose(apply_rows("CL2N", rows, centre), unit(x - mean), rtol=1e-12)
    assert torch.equal(apply_rows("CL2N", centre[None], centre), torch.zeros(1, 6).double())  # not NaN
    assert power(torch.zeros(1)).item() == pytest.approx(1e-3)


def test_unknown_chains_get_the_nearest_name() -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'CL2N'"):
        apply_rows("CL2", torch.ones(1, 5))
    with pytest.raises(FsbenchError, match="needs the mean of the base"):
        apply_rows("CL2N", torch.ones(1, 5))


def test_slope_of_the_support_keeps_its_digits_when_a_sample_is_almost_certain() -> None:
    p = torch.tensor([[[1.0], [1e-9]]])  # float32: 1 − p_y would be 0
    slope = support_slope(p, torch.tensor([[[1.0], [0.0]]]))
    torch.testing.assert_close(slope, torch.tensor([[[-1e-9], [1e-9]]]))


@pytest.mark.parametrize(("name", "shots"), [("am", 1), ("am", 5), ("alpha-am", 1)])
def test_the_answers_of_am_do_not_depend_on_other_tasks_in_any_bit(name: str, shots: int) -> None:
    """Neighbours change in every step, so that any difference grows."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.random((6, 5 * shots + 40, 64), dtype=np.float32))
    labels = torch.arange(5).repeat(shots).expand(6, 5 * shots)
    method = method_class(name).configure(Context(balanced=False, shots=shots), steps=30)
    with torch.inference_mode():
        together = method.classify(TaskBatch(rows, labels, 5))
        for at_once in (1, 4):
            pairs = zip(rows.split(at_once), labels.split(at_once), strict=True)
            alone = torch.cat([method.classify(TaskBatch(part, known, 5)) for part, known in pairs])
            assert torch.equal(alone, together)


@pytest.mark.parametrize("name", ["tim-gd", "alpha-tim"])
def test_results_do_not_depend_on_how_tasks_are_blocked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    support, query = rng.random((7, 5, 20)), rng.random((7, 12, 20))
    labels = np.tile(np.arange(5), (7, 1))
    together = fsbench.predict(name, support, labels, query, steps=20)
    monkeypatch.setattr(heads, "_CACHE", 3 * 17 * 20 * 8)  # three tasks
    np.testing.assert_allclose(fsbench.predict(name, support, labels, query, steps=20), together, atol=1e-12)


def test_equally_near_neighbours_are_all_taken() -> None:
    """With one shot each centroid starts on its support sample: which of them is listed first plays no role."""
    rng = np.random.default_rng(2)
    support, query = rng.random((1, 4, 9)), rng.random((1, 8, 9))
    query[:, 4:] = query[:, :4]  # every query twice
    expected = fsbench.predict("alpha-am", support, np.arange(4)[None], query, neighbours=3, steps=30)
    np.testing.assert_allclose(expected[:, :4], expected[:, 4:], atol=1e-9)
    order = rng.permutation(8)
    turned = fsbench.predict("alpha-am", support, np.arange(4)[None], query[:, order], neighbours=3, steps=30)
    np.testing.assert_allclose(turned, expected[:, order], atol=1e-9)


def unem_tasks(count: int) -> tuple[TaskBatch, torch.Tensor]:
    """Tasks of 3 ways in float64 whose last two features are mostly noise, and the labels of their queries."""
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(3, (count, 15), generator=generator)
    every = torch.cat([torch.arange(3).expand(count, 3), labels], dim=1)
    means = 2 * torch.eye(3, 5, dtype=torch.float64)
    rows = means[every] + torch.randn(count, 18, 5, generator=generator, dtype=torch.float64)
    return TaskBatch(rows, every[:, :3], 3), labels


def unem_loss(raw: dict[str, torch.Tensor], tasks: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(unem.unrolled(unem.clusters_of(tasks), **unem.positive(raw)), labels)


def test_the_gradient_of_unem_is_that_of_finite_differences() -> None:
    tasks, labels = unem_tasks(4)
    raw = {
        name: torch.linspace(-0.5, 0.7, 1 if name == "scale" else unem.LAYERS, dtype=torch.float64).requires_grad_()
        for name in ("scale", "balance", "temperature")
    }
    unem_loss(raw, tasks, labels).backward()
    for name, values in raw.items():
        assert values.grad is not None
        for place in range(len(values)):
            losses = []
            for sign in (1, -1):
                moved = {other: each.detach().clone() for other, each in raw.items()}
                moved[name][place] += sign * 1e-5
                losses.append(unem_loss(moved, tasks, labels))
            slope = float(losses[0] - losses[1]) / 2e-5
            assert float(values.grad[place]) == pytest.approx(slope, rel=1e-5, abs=1e-9)
    assert raw["balance"].grad is not None
    assert raw["balance"].grad[0] == 0  # log π is the same for all classes in the first iteration
    assert (raw["temperature"].grad.abs() > 1e-6).all()  # type: ignore[union-attr]


def test_unem_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unem, "ROUNDS", 60)
    tasks, labels = unem_tasks(60)
    start = unem.UnemGaussian()
    learned = start.learn([(tasks, labels)], ["scale", "balance", "temperature"])
    losses = [
        torch.nn.functional.nll_loss(method.classify(tasks).clamp_min(1e-30).log().mT, labels)
        for method in (start, unem.UnemGaussian(**learned))  # type: ignore[arg-type]
    ]
    assert losses[1] < 0.9 * losses[0]


@pytest.fixture
def task(features: Features) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six classes of about 50 images, two of each labelled; the true labels too."""
    classes = [np.arange(*features.novel.offsets[c : c + 2]) for c in range(6)]
    support, query = np.concatenate([c[:2] for c in classes]), np.concatenate([c[2:] for c in classes])
    rows = features.novel.features[np.concatenate([support, query])].astype(np.float64)
    return rows, np.repeat(np.arange(6), 2), np.repeat(np.arange(6), [len(c) - 2 for c in classes])


def test_statistics_of_a_pool_are_those_of_the_two_rounds(task: Any) -> None:
    """Soft-KMEANS, the scatter of its assignments by loops, the weighted variant, and the scatter again."""
    rows, labels, _ = task
    known, mean = np.eye(6)[labels], rows.mean(axis=0)
    x = reference.cl2n(rows, mean)

    def scatter(o: np.ndarray) -> np.ndarray:
        total = np.zeros((48, 48))
        for k in range(6):
            centre = o[:, k] @ x / o[:, k].sum()
            for share, row in zip(o[:, k], x, strict=True):
                total += share * np.outer(row - centre, row - centre)
        return total / len(x)

    weighted = reference.configured(None, variant="weighted", sizes="free")
    first = scatter(algorithms.soft_kmeans(x, known, 50.0, 5))
    second = scatter(algorithms.bavardage(x, algorithms.sphere(x, first, weighted.sigma), labels, weighted))
    found = pool_statistics(torch.from_numpy(rows), torch.from_numpy(labels), 6)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.scatter, second, atol=1e-9)
    rebuilt = found.eigenvectors * found.eigenvalues @ found.eigenvectors.mT
    np.testing.assert_allclose(rebuilt, second, atol=1e-9)
    assert sum(found.class_counts) == len(rows)


def test_predict_with_the_pool(task: Any) -> None:
    """A task for itself: a second one in the batch changes nothing."""
    rows, labels, truth = task
    tasks = np.stack([rows, rows[:, ::-1]])
    both = fsbench.predict("bavardage:weighted", tasks[:, :12], np.stack([labels] * 2), tasks[:, 12:], base="pool")
    alone = fsbench.predict("bavardage:weighted", tasks[:1, :12], labels[None], tasks[:1, 12:], base="pool")
    np.testing.assert_allclose(both[:1], alone, atol=1e-9)
    assert (both[0].argmax(axis=1) == truth).mean() > 0.8
    evaluated = fsbench.evaluate("bavardage:weighted", (rows[12:], truth), base="pool", queries=190, tasks=2)
    assert (evaluated.run.base, evaluated.accuracy > 60) == ("pool", True)
    statistics = pool_statistics(torch.from_numpy(rows), torch.from_numpy(labels), 6)
    given = fsbench.predict("bavardage:weighted", tasks[:1, :12], labels[None], tasks[:1, 12:], base=statistics)
    np.testing.assert_allclose(alone, given, atol=1e-12)


def test_solve_and_verify_with_the_pool(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without base classes; methods that need none are solved as ever."""
    monkeypatch.chdir(tmp_path)
    write_features(tmp_path / "features" / "own-none.h5", Provenance("own", "none"), {"novel": features.novel})
    ask = ("compare", "--settings", "unbalanced", "--shots", "2", "--ways", "6", "--tasks", "3", "--quiet")
    message = run(*ask, "--methods", "ncm").stderr
    assert "ncm cannot run here. " in message
    assert "--base pool" in message
    message = run(*ask, "--methods", "ncm", "--base", "pool", "--queries", "40").stderr
    assert "A pool of 52 images is too small to replace base classes" in message
    shown = succeed(*ask, "--methods", "ncm,pt-map,bavardage:weighted", "--base", "pool", "--queries", "190")
    assert "base:pool" in shown.stdout
    commands = [load_record(path).command for path in Path("results").glob("*.h5")]
    assert len(commands) == 4
    assert all("--base pool" in command for command in commands)
    assert "4 equal" in " ".join(succeed("verify", "--sample", "all").stdout.split())
    assert "choose one" in run(*ask, "--base", "pool", "--tune").stderr
