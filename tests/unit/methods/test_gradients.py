import numpy as np
import pytest
import torch

import fsbench
from fsbench.methods import heads, unem
from fsbench.methods.base import Context
from fsbench.methods.heads import support_slope
from fsbench.methods.registry import method_class
from fsbench.tasks.batch import TaskBatch


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
