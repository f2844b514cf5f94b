from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
import torch

from fsbench.devices import choose_device
from fsbench.errors import FsbenchError
from fsbench.evaluation import blocks, engine
from fsbench.evaluation.blocks import embed_split, embed_together
from fsbench.evaluation.engine import Outcome, TaskList, solve_tasks, solve_together, tasks_at_once
from fsbench.methods.base import Method, MethodInfo, Parameters
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.tasks.batch import TaskBatch, gram
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.synthetic import make_features

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from tests.synthetic import Features

CPU = torch.device("cpu")


def solve(method: Method, data: Features, protocol: TaskProtocol, tasks: int = 60, batch: int | None = None) -> Outcome:
    return solve_tasks(method, data.novel, data.statistics, TaskList(protocol, 0, tasks), device=CPU, batch=batch)


@pytest.mark.parametrize(
    "method", [Bavardage(), Bavardage(variant="released"), SoftKMeans(), NearestClassMean()], ids=str
)
@pytest.mark.parametrize("protocol", [TaskProtocol(queries=40), TaskProtocol("veilleux", shots=5, alpha=0.5)], ids=str)
def test_batch_size_and_threads_change_nothing(features: Features, method: Method, protocol: TaskProtocol) -> None:
    expected = solve(method, features, protocol).correct
    before = torch.get_num_threads()
    try:
        for batch in (1, 7, 1000):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                np.testing.assert_array_equal(solve(method, features, protocol, batch=batch).correct, expected)
                assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


TOGETHER: tuple[Method, ...] = (
    NearestClassMean(),
    SoftKMeans(),
    Bavardage(),
    Bavardage(variant="transport"),
    Bavardage(variant="released"),
)


@pytest.mark.parametrize(
    "protocol", [TaskProtocol(), TaskProtocol("veilleux", shots=5, alpha=0.5)], ids=["all tasks alike", "short tasks"]
)
@pytest.mark.parametrize("dimension", [96, 20], ids=["by Gram matrices", "by features"])
def test_methods_solve_together_what_they_solve_alone(protocol: TaskProtocol, dimension: int) -> None:
    data = make_features(dimension=dimension)
    tasks = TaskList(protocol, 0, 70)
    outcomes = solve_together(TOGETHER, data.novel, data.statistics, tasks, device=CPU)
    for method, outcome in zip(TOGETHER, outcomes, strict=True):
        alone = solve(method, data, protocol, 70)
        np.testing.assert_array_equal(outcome.correct, alone.correct)
        np.testing.assert_array_equal(outcome.queries, alone.queries)


def test_what_methods_share_is_computed_once(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(blocks, "gram", lambda x, out: shapes.append(tuple(x.shape)) or gram(x, out))  # type: ignore[func-returns-value]
    tasks = TaskList(TaskProtocol(queries=40), 0, 8)
    outcomes = solve_together(TOGETHER, features.novel, features.statistics, tasks, device=CPU, batch=8)
    chunks = [*engine._chunks(8, torch.get_num_threads(), 8)]
    assert len(shapes) == 3 * len(chunks)  # plain, sphered, and sphered as released
    spaces = [embedded.spaces for embedded in embed_together(TOGETHER, features.novel, features.statistics, CPU)]
    assert len({id(space) for each in spaces for space in each}) == 3
    assert all(each[0] is spaces[0][0] for each in spaces)
    assert all(space.untyped_storage().nbytes() == space.nbytes for each in spaces for space in each)
    assert all(outcome.seconds > 0 for outcome in outcomes)


def test_a_method_is_said_to_take_what_it_takes_alone(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shared counts for all who use it, and what others take for nobody else."""
    monkeypatch.setattr(blocks, "gram", lambda x, out: time.sleep(0.02) or gram(x, out))  # type: ignore[func-returns-value]

    @dataclass(frozen=True)
    class Slow(NearestClassMean):
        def classify(self, tasks: TaskBatch) -> torch.Tensor:
            time.sleep(0.3)
            return super().classify(tasks)

    tasks = TaskList(TaskProtocol(queries=40), 0, 32)
    methods = (Slow(), SoftKMeans(), SoftKMeans(km_steps=6))
    start = time.perf_counter()
    slow, first, second = solve_together(methods, features.novel, features.statistics, tasks, device=CPU, batch=8)
    elapsed = time.perf_counter() - start
    assert elapsed > slow.seconds > 3 * first.seconds
    assert 1 / 3 < first.seconds / second.seconds < 3  # both multiplied, as the clock has it


def test_the_embedding_of_all_images_is_not_counted_as_solving(features: Features) -> None:
    @dataclass(frozen=True)
    class SlowToEmbed(NearestClassMean):
        def embed(self, features: torch.Tensor, base: BaseStatistics | None) -> torch.Tensor:
            time.sleep(2)
            return super().embed(features, base)

    assert 0 < solve(SlowToEmbed(), features, TaskProtocol(), 4).seconds < 2


def test_any_part_of_the_task_list_gives_the_same_counts(features: Features) -> None:
    whole = solve(Bavardage(), features, TaskProtocol(), 50)
    part = solve(Bavardage(), features, TaskProtocol(), 33)
    np.testing.assert_array_equal(part.correct, whole.correct[:33])


def test_counts_are_those_of_the_predictions(features: Features) -> None:
    protocol = TaskProtocol(shots=2, queries=30)
    outcome = solve(SoftKMeans(), features, protocol, 25)
    drawn = sample_tasks(protocol, features.novel.offsets, 0, np.arange(25))
    (table,) = embed_split(SoftKMeans(), features.novel, features.statistics, CPU)
    rows = torch.from_numpy(np.concatenate([drawn.support, drawn.query], axis=1))
    p = SoftKMeans().classify(TaskBatch(table[rows], torch.from_numpy(drawn.support_labels), 5))
    np.testing.assert_array_equal(outcome.correct, (p.argmax(dim=2).numpy() == drawn.query_labels).sum(axis=1))
    assert (outcome.queries == 30).all()


def test_short_tasks_count_their_own_queries(features: Features) -> None:
    protocol = TaskProtocol("veilleux", alpha=0.3)
    outcome = solve(NearestClassMean(), features, protocol, 200)
    drawn = sample_tasks(protocol, features.novel.offsets, 0, np.arange(200))
    np.testing.assert_array_equal(outcome.queries, (drawn.query_labels >= 0).sum(axis=1))
    assert outcome.queries.min() < 75
    assert (outcome.correct <= outcome.queries).all()


@dataclass(frozen=True)
class Hungry(Parameters):
    """Fails like an allocator when a batch is too large."""

    most: int = 5
    message: str = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"

    info: ClassVar[MethodInfo] = MethodInfo("hungry", "Hungry", "", False, "none")

    def embed(self, features: torch.Tensor, base: BaseStatistics | None) -> torch.Tensor:
        return features

    def classify(self, tasks: TaskBatch) -> torch.Tensor:
        if len(tasks.rows) > self.most:
            raise RuntimeError(self.message)
        return NearestClassMean().classify(tasks)


def test_out_of_memory_halves_the_batch_and_goes_on(features: Features) -> None:
    expected = solve(Hungry(most=10**6), features, TaskProtocol())
    outcome = solve(Hungry(), features, TaskProtocol(), batch=64)
    np.testing.assert_array_equal(outcome.correct, expected.correct)


def test_a_single_task_that_does_not_fit_is_an_error_for_people(features: Features) -> None:
    with pytest.raises(FsbenchError, match="Not even a single task fits"):
        solve(Hungry(most=0), features, TaskProtocol())


def test_other_errors_are_not_swallowed(features: Features) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        solve(Hungry(most=0, message="a bug"), features, TaskProtocol())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_answer(features: Features, value: float) -> None:
    class Lost(NearestClassMean):
        def classify(self, tasks: TaskBatch) -> torch.Tensor:
            found = super().classify(tasks).clone()
            found[-1, 0, 0] = value
            return found

    with pytest.raises(FsbenchError, match="gave NaN or infinity in place of probabilities"):
        solve(Lost(), features, TaskProtocol())


def test_progress_adds_up(features: Features) -> None:
    seen: list[int] = []
    solve_tasks(
        NearestClassMean(), features.novel, features.statistics, TaskList(TaskProtocol(), 0, 700),
        device=CPU, progress=seen.append,
    )  # fmt: skip
    assert sum(seen) == 700
    assert len(seen) > 2


def test_devices() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(FsbenchError, match="cannot be used"):
        choose_device("cuda:99")
    with pytest.raises(FsbenchError, match="cannot be used"):
        choose_device("gpu")


def test_single_precision_keeps_the_predictions_of_double_precision(features: Features) -> None:
    """The solver runs in float32: its answers are those of float64 but for the rare tie."""
    drawn = sample_tasks(TaskProtocol(), features.novel.offsets, 0, np.arange(300))
    rows = torch.from_numpy(np.concatenate([drawn.support, drawn.query], axis=1))
    labels = torch.from_numpy(drawn.support_labels)
    for method in (Bavardage(), Bavardage(variant="released")):
        answers = []
        for dtype in (torch.float32, torch.float64):
            table = method.embed(torch.from_numpy(features.novel.features).to(dtype), features.statistics)
            answers.append(method.classify(TaskBatch(table[rows], labels, 5)))
        assert (answers[0].argmax(dim=2) == answers[1].argmax(dim=2)).double().mean() > 0.9995
        assert (answers[0] - answers[1]).abs().median() < 1e-5


def test_blocks_are_planned_from_free_memory() -> None:
    assert tasks_at_once(80, 1280, None) == 64
    assert tasks_at_once(80, 1280, 20 << 30) == 2048
    assert tasks_at_once(80, 1280, 1 << 30) == pytest.approx(2**30 / (4 * 820e3), rel=0.01)
    assert tasks_at_once(800, 1280, 1000) == 1
