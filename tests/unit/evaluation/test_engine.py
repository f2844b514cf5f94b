"""Rows in, predictions out: whatever the blocks, threads, processes and companions, a task's answers are the same."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.evaluation import engine
from fsbench.evaluation.engine import Embedded, Outcome, TaskList, solve
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Method, MethodInfo
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.ranks import ALONE
from fsbench.results.record import Answers
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import largest, sample_tasks
from tests.comparing import CPU
from tests.synthetic import Features, make_features

SHORT = TaskProtocol("veilleux", shots=5, alpha=0.5)  # some tasks have fewer queries
# Some have fewer classes or shots, and queries of unknown classes.
VARIED = TaskProtocol("meta", "3-5", 1, "6/class", None, unknown=2, support="meta")
KINDS = {"all tasks alike": TaskProtocol(queries=40), "short tasks": SHORT, "varied tasks": VARIED}
VARIANTS = Bavardage(), Bavardage(variant="transport"), Bavardage(variant="released")
METHODS: tuple[Method, ...] = (NearestClassMean(), SoftKMeans(), *VARIANTS)


def solved(methods: Sequence[Method], data: Features, rules: TaskProtocol, tasks: Any = 60, **o: Any) -> list[Outcome]:
    numbers = np.arange(tasks) if isinstance(tasks, int) else np.asarray(tasks)
    return solve(methods, data.novel, data.statistics, TaskList(rules, 3, numbers), device=CPU, **o)


def answers(method: Method, data: Features, rules: TaskProtocol, tasks: Any = 60, **options: Any) -> Answers:
    return solved([method], data, rules, tasks, **options)[0].answers


@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dimension", [96, 20], ids=["by Gram matrices", "by features"])
def test_companions_batches_threads_and_order_change_no_answer(rules: TaskProtocol, dimension: int) -> None:
    data, before = make_features(dimension=dimension), torch.get_num_threads()
    alone = [answers(method, data, rules, 16) for method in METHODS]
    try:
        for batch, threads in ((None, 2), (1, 1), (5, 3)):
            torch.set_num_threads(threads)
            together = solved(METHODS, data, rules, 16, batch=batch)
            assert [outcome.answers.predicted.tolist() for outcome in together] == [a.predicted.tolist() for a in alone]
            for outcome, own in zip(together, alone, strict=True):
                np.testing.assert_array_equal(outcome.answers.labels, own.labels)
                np.testing.assert_array_equal(outcome.answers.classes, own.classes)
                np.testing.assert_allclose(outcome.answers.confidence, own.confidence, atol=1e-3)
                np.testing.assert_allclose(outcome.answers.outlier, own.outlier, atol=1e-5)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    some = answers(Bavardage(), data, rules, [13, 7, 8])
    assert some.predicted.tolist() == alone[2].predicted[[13, 7, 8]].tolist()


@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
def test_answers_are_those_of_the_method_to_the_drawn_tasks(features: Features, rules: TaskProtocol) -> None:
    found = answers(SoftKMeans(), features, rules, 40)
    drawn = sample_tasks(rules, features.novel.offsets, 3, np.arange(40))
    np.testing.assert_array_equal(found.labels, drawn.query_labels)
    np.testing.assert_array_equal(found.classes, drawn.classes)
    rows = features.novel.features[np.concatenate([drawn.support, drawn.query], axis=1)]
    for task in range(40):
        support, queries = drawn.support[task] >= 0, drawn.query[task] >= 0
        x = SoftKMeans().embed(torch.from_numpy(rows[task][np.append(support, queries)]), features.statistics)
        labels = torch.from_numpy(drawn.support_labels[task][support])
        (p,) = SoftKMeans().classify(TaskBatch(x[None], labels[None], int(drawn.ways[task])))
        np.testing.assert_array_equal(found.predicted[task][queries], p.argmax(dim=1))
        np.testing.assert_allclose(found.confidence[task][queries], p.max(dim=1).values, atol=1e-3)
        assert (found.predicted[task][~queries] == -1).all()
        assert np.isnan(found.confidence[task][~queries]).all()
        if rules.unknown:
            means = [x[: len(labels)][labels == k].mean(dim=0) for k in range(drawn.ways[task])]
            cosines = [torch.cosine_similarity(x[len(labels) :], mean[None]) for mean in means]
            np.testing.assert_allclose(found.outlier[task][queries], 1 - torch.stack(cosines).amax(dim=0), atol=1e-5)
    assert ((found.labels < 0).any()) == (rules in (SHORT, VARIED))
    assert [str(a.dtype) for a in (found.predicted, found.confidence, found.classes)] == ["int8", "float16", "int8"]


def writer(write: Callable[[TaskBatch], Any]) -> Method:
    """A method that writes into what it is shown."""

    @dataclass(frozen=True)
    class Writer(NearestClassMean):
        info: ClassVar[MethodInfo] = MethodInfo("writer", "Writer")

        def classify(self, tasks: TaskBatch) -> torch.Tensor:
            probabilities = super().classify(tasks)
            write(tasks)
            return probabilities

    return Writer()


WRITES: dict[str, Callable[[TaskBatch], Any]] = {
    "rows": lambda tasks: tasks.rows[:, :, ::2].zero_(),
    "gram": lambda tasks: tasks.gram().mul_(2),
    "labels": lambda tasks: tasks.support_labels.zero_(),
}


@pytest.mark.parametrize("dimension", [96, 20], ids=["by Gram matrices", "by features"])
@pytest.mark.parametrize("what", WRITES)
def test_a_method_that_writes_into_what_it_is_shown_is_refused_by_name(what: str, dimension: int) -> None:
    data = make_features(dimension=dimension)
    method = writer(WRITES[what])
    for companions in ((), (SoftKMeans(),)):
        for methods in ([method, *companions], [*companions, method]):
            with pytest.raises(FsbenchError, match="Writer writes into") as caught:
                solved(methods, data, TaskProtocol(queries=20), 9)
            assert "clone()" in caught.value.hint


def test_a_method_is_said_to_take_what_it_takes_alone(features: Features) -> None:
    """What others take counts for nobody else, and embedding for none."""

    @dataclass(frozen=True)
    class Slow(NearestClassMean):
        def embed(self, features: torch.Tensor, base: BaseStatistics | None) -> torch.Tensor:
            time.sleep(0.3)
            return super().embed(features, base)

        def classify(self, tasks: TaskBatch) -> torch.Tensor:
            time.sleep(0.1)
            return super().classify(tasks)

    start = time.perf_counter()
    slow, fast = solved((Slow(), SoftKMeans()), features, TaskProtocol(queries=40), 16, batch=8)
    assert time.perf_counter() - start - 0.3 > slow.seconds > 2 * fast.seconds > 0
    assert slow.peak_memory > 1 << 20


@dataclass(frozen=True)
class Hungry(Method):
    """Fails like an allocator when a batch is too large."""

    most: int = 5
    message: str = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"
    info: ClassVar[MethodInfo] = MethodInfo("hungry", "Hungry")

    def embed(self, features: torch.Tensor, base: BaseStatistics | None) -> torch.Tensor:
        return features

    def classify(self, tasks: TaskBatch) -> torch.Tensor:
        if len(tasks.rows) > self.most:
            raise RuntimeError(self.message)
        return NearestClassMean().classify(tasks)


def test_out_of_memory_halves_the_batch_and_goes_on(features: Features) -> None:
    plain = answers(Hungry(most=10**6), features, TaskProtocol())
    for methods in ([Hungry()], [NearestClassMean(), Hungry()]):
        assert solved(methods, features, TaskProtocol(), batch=64)[-1].answers == plain
    with pytest.raises(FsbenchError, match="Not even a single task fits"):
        answers(Hungry(most=0), features, TaskProtocol())
    with pytest.raises(RuntimeError, match="a bug"):
        answers(Hungry(most=0, message="a bug"), features, TaskProtocol())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p.index_fill(1, torch.tensor([7]), torch.inf), "probabilities of Lost are NaN"),
        (lambda p: 1.01 * p, "probabilities of Lost are NaN"),
        (lambda p: 2 * p - 1 / p.shape[2], "probabilities of Lost are NaN"),
        (lambda p: p[:, :1], "Lost gave a tensor"),  # which would be broadcast
    ],
)
def test_what_are_no_probabilities_is_no_answer(features: Features, spoil: Any, words: str) -> None:
    class Lost(NearestClassMean):
        info: ClassVar[MethodInfo] = MethodInfo("lost", "Lost")

        def classify(self, tasks: TaskBatch) -> torch.Tensor:
            spoiled: torch.Tensor = spoil(super().classify(tasks))
            return spoiled

    with pytest.raises(FsbenchError, match=words):
        solved([NearestClassMean(), Lost()], features, TaskProtocol())


def planned(
    free: int | None, rules: TaskProtocol, dimension: int, device: str = "cpu", method: Method | None = None
) -> tuple[engine._Work, int]:
    """The plan for a machine with that much free memory and four cores, and the bytes of a task."""
    embedded = [Embedded(method or NearestClassMean(), {"rows": torch.empty(0, dimension)})]
    task = largest(rules, np.full(int(rules.ways), 600))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "free_memory", lambda device: free)
        patch.setattr(torch, "get_num_threads", lambda: 4)
        work = engine._plan(embedded, task, 600, 10_000, torch.device(device), None, ALONE)
    return work, engine.task_bytes(embedded, task[1] + task[2], task[0])


USUAL, HUGE = TaskProtocol(), TaskProtocol(ways=200, queries=50_000)


@pytest.mark.parametrize(
    ("free", "rules", "device", "block", "threads"),
    [
        (None, USUAL, "cpu", 64, 4),
        (64 << 30, USUAL, "cuda", 2048, 4),
        (64 << 30, HUGE, "cpu", 12, 4),
        (3 << 30, HUGE, "cpu", 1, 2),
        (8 << 30, HUGE, "cuda", 6, 4),
    ],
)
def test_blocks_fit_into_memory(free: int | None, rules: TaskProtocol, device: str, block: int, threads: int) -> None:
    work, one = planned(free, rules, 1024, device=device)
    assert (work.block, work.threads, work.in_threads) == (block, threads, device == "cpu")
    at_once = work.block * (work.threads if work.in_threads else 1)
    assert free is None or 2 * at_once * one <= free or at_once == 1
    assert work.chunk % work.block == 0


def test_a_demanding_method_is_refused_before_the_first_task_or_gets_blocks_of_one() -> None:
    @dataclass(frozen=True)
    class Greedy(NearestClassMean):
        info: ClassVar[MethodInfo] = MethodInfo("greedy", "Greedy")

        def memory_per_task(self, samples: int) -> int:
            return samples * 10**8

    with pytest.raises(FsbenchError, match=r"Greedy takes about 8\.0 GB .* of 80 images, and 4\.0 GB"):
        planned(4 * 10**9, USUAL, 640, method=Greedy())
    assert "Solving takes about 8.0 GB" in planned(12 * 10**9, USUAL, 640, method=Greedy())[0].note
    work, _ = planned(32 * 10**9, USUAL, 640, method=Greedy())
    assert (work.block, work.threads) == (1, 2)
