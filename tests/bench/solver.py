"""Speed of methods over tasks."""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.utils.flop_counter import FlopCounterMode

from fsbench.devices import peak_memory
from fsbench.evaluation import engine
from fsbench.evaluation.engine import TaskList
from fsbench.evaluation.options import Comparing
from fsbench.evaluation.run import Job, Runner
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import MethodChoice, protocols_of
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Provenance, Split, make_split
from fsbench.methods.base import Context, Method
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.registry import METHODS, method_class, split_variant
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.results.record import Origins
from fsbench.tasks.batch import TaskBatch, by_name
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import largest, sample_list
from tests.bench.measure import Measure, in_turns
from tests.comparing import CPU
from tests.pretend import CUDA, PretendedGpu


class Material(NamedTuple):
    """Synthetic novel features, and statistics of base classes of the same kind."""

    novel: Split
    base: BaseStatistics


def draw_split(classes: int, images: int, dimension: int, seed: int = 0) -> Split:
    """Non-negative features around class means."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    means = rng.random((classes, dimension), dtype=np.float32)
    noise = rng.standard_normal((len(labels), dimension), dtype=np.float32)
    return make_split(np.maximum(means[labels] + 0.5 * noise, 0), labels)


def mini_like(dimension: int = 640, classes: int = 20) -> Material:
    """As many novel images as mini-ImageNet has, and base classes with fewer images."""
    base = draw_split(64, 100, dimension, seed=1)
    return Material(draw_split(classes, 12_000 // classes, dimension), BaseStatistics.fit(base.features, base.labels))


TASK = TaskProtocol()
SHAPE = largest(TASK, np.full(5, 600))  # classes, support images and queries of a task
BLOCK = 64  # tasks in one batched product


@contextmanager
def one_core() -> Iterator[None]:
    """Compute on one core, where CPU time does not depend on what other programs do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


@one_core()
def against_the_machine(tasks: int, repeats: int) -> list[Measure]:
    """End to end (sampling, gathering, Gram matrices, iterations) against batched products.

    The products are the two Gram matrices of every task, 2 · 2 N² D floating-point operations, as plain batched matrix
    products by torch. The solver itself computes them as symmetric products, with half the operations.
    """
    material = mini_like()
    article, released, transport = (Bavardage(variant=name) for name in ("article", "released", "transport"))
    weighted = Bavardage.configure(Context(balanced=False, alpha=2.0), variant="weighted")
    times = in_turns(
        repeats,
        time.process_time,
        products=partial(gram_products, tasks, material),
        article=partial(solve, [article], material, tasks),
        released=partial(solve, [released], material, tasks),
        transport=partial(solve, [transport], material, tasks),
        weighted=partial(solve, [weighted], material, tasks),
        four=partial(solve, [NearestClassMean(), SoftKMeans(), article, transport], material, tasks),
        draw=partial(draw, material, tasks),
    )
    products = "batched matrix products of its Gram matrices"
    slowest = "the slowest of them, bavardage:transport"
    return [
        Measure("solve bavardage", products, times["article"] / times["products"]),
        Measure("solve bavardage:released", "solve bavardage", times["released"] / times["article"]),
        Measure("solve bavardage:weighted", "solve bavardage", times["weighted"] / times["article"]),
        Measure("compare four methods", slowest, times["four"] / times["transport"]),
        Measure("draw tasks", "solve bavardage", 100 * times["draw"] / times["article"], "%"),
    ]


def solve(methods: Sequence[Method], material: Material, tasks: int, protocol: TaskProtocol = TASK, **how: Any) -> None:
    """Draw tasks and solve them by all methods."""
    drawn = TaskList(protocol, 0, np.arange(tasks))
    engine.solve(methods, material.novel, material.base, drawn, **{"device": CPU, **how})


@one_core()
def keeping_answers(tasks: int, repeats: int, dimension: int = 640) -> list[Measure]:
    """A run that writes the record with the answer to every query, against solving the same tasks alone."""
    material, method = mini_like(dimension), Bavardage()
    source = Source("novel", material.novel, material.base, Provenance("bench", "none"))
    job = Job(MethodChoice("bavardage", "bavardage"), method, Origins(), source, TASK, 0, tasks)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(CPU, results=Path(folder), force=True)
        alone = partial(solve, [method], material, tasks)
        times = in_turns(repeats, time.process_time, solve=alone, run=partial(runner.run, job))
    return [Measure("keep answers", f"solving alone, {tasks:,} tasks", times["run"] / times["solve"])]


def draw(material: Material, tasks: int) -> None:
    """Draw tasks."""
    for _ in sample_list(TASK, material.novel.offsets, 0, tasks):
        pass


def gram_products(tasks: int, material: Material) -> None:
    """Two products X Xᵀ per task, batched."""
    x = torch.ones(BLOCK, sum(SHAPE[1:]), material.novel.features.shape[1])
    with torch.inference_mode():
        for _ in range(2 * tasks // BLOCK):
            torch.bmm(x, x.mT)


def on_features() -> list[str]:
    """The methods that need features alone, neither images nor text."""
    facts = {name: method_class(name).info for name in METHODS}
    return [name for name, info in facts.items() if not info.network and info.text != "needed"]


def fast_methods() -> list[str]:
    """The fast ones of them, and variants of BAVARDAGE."""
    fast = [name for name in on_features() if method_class(name).info.cost == "fast"]
    return [*fast, "bavardage:released", "bavardage:transport", "bavardage:weighted"]


def each_method(tasks: int, repeats: int) -> list[Measure]:
    """Tasks per second of every method, and its time relative to a product X Xᵀ of the rows of a task.

    Slow methods solve a tenth of the tasks.
    """
    material = mini_like()
    context = Context(balanced=False, base=material.base)
    methods = {name: method_class(name).configure(context) for name in on_features()}
    methods["entropy-min:head"] = method_class("entropy-min").configure(context, variant="head")
    counts = {name: tasks if method.info.cost == "fast" else -(-tasks // 10) for name, method in methods.items()}
    solvers = {name: partial(solve, [method], material, counts[name]) for name, method in methods.items()}
    times = in_turns(repeats, products=partial(gram_products, tasks, material), **solvers)
    product = times["products"] / (2 * tasks // BLOCK * BLOCK)
    measures = []
    for name in methods:
        per_task = times[name] / counts[name]
        measures += [
            Measure(f"speed of {name}", "sampling to answers", 1 / per_task, "tasks/s"),
            Measure(f"speed of {name}", "a product XXᵀ of its rows", per_task / product),
        ]
    return measures


# Where steps are alike, a few tell their time; memory does not depend on their number.
_FEWER_STEPS: dict[str, dict[str, Any]] = {
    "baseline": {"steps": 20},
    "baseline++": {"steps": 20},
    "pt-map": {"epochs": 1},
    "bms": {"steps": 2},
    "protolp": {"rounds": 3},
    "tim-adm": {"steps": 8},
    "paddle": {"steps": 8},
    "bavardage:transport": {"km_steps": 1, "steps": 1},
    "bavardage:weighted": {"km_steps": 1, "steps": 1},
}


def large_tasks(ways: int, queries: int, dimension: int = 512, names: Sequence[str] = ()) -> list[Measure]:
    """One task of all classes by every fast method: CPU time relative to its arithmetic, and peak memory.

    Each runs in a process of its own, whose memory includes Python, torch and all features.
    """
    taken = by_method((ways, queries, dimension), names)
    size = f"{ways:,} classes, {queries:,} queries, {dimension} features"
    slowest, most = (max(values) for values in list(zip(*taken.values(), strict=True))[:2])
    return [
        *(Measure(f"{size}, {name}", f"its arithmetic; {each[1]:.2f} GB", each[0]) for name, each in taken.items()),
        Measure("time of a large task", f"its arithmetic; the slowest method, {size}", slowest),
        Measure("memory of a large task", f"the largest, {size}", most, "GB"),
    ]


def by_method(size: tuple[int, ...], names: Sequence[str] = ()) -> dict[str, tuple[float, ...]]:
    """What `_large_task` measures of every fast method, each in a process of its own."""
    names = names or fast_methods()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        return dict(zip(names, pool.map(partial(_large_task, size), names), strict=True))


@one_core()
def _large_task(size: tuple[int, ...], name: str) -> tuple[float, ...]:
    """CPU time relative to its arithmetic at the speed of a product of its size, GB, and seconds of all steps."""
    ways, queries, dimension = size
    base = draw_split(64, 2 * dimension // 64, dimension, seed=1)
    novel = draw_split(ways, 1 + queries // ways, dimension)
    material = Material(novel, BaseStatistics.fit(base.features, base.labels))
    (protocol,) = protocols_of(Comparing(protocol="all-way", shots=(1,)))
    plain, options = split_variant(name)
    configure = partial(method_class(plain).configure, Context(balanced=False, base=material.base), **options)
    method = configure(**_FEWER_STEPS.get(name, {}) if ways * queries * dimension > 1e9 else {})
    started = time.process_time()
    solve([method], material, 1, protocol)
    seconds, memory = time.process_time() - started, peak_memory(CPU) / 1e9
    assigned, rows = torch.ones(ways, len(novel.features)), torch.from_numpy(novel.features)
    products = in_turns(3, time.process_time, product=partial(torch.mm, assigned, rows))["product"]
    speed = 2 * assigned.numel() * dimension / products
    both = method, configure()
    solved, whole = (arithmetic(each, material, protocol, 1) + embedding(each, material) for each in both)
    return seconds * speed / solved, memory, seconds * whole / solved


def on_a_gpu(tasks: int, names: Sequence[str] = ()) -> list[Measure]:
    """What fast methods ask of a GPU, counted on a pretended one."""
    material, measures = mini_like(), []
    for name in names or fast_methods():
        plain, options = split_variant(name)
        context = Context(balanced=False, base=material.base, shots=1, alpha=TASK.alpha)
        with PretendedGpu(values=False) as gpu:
            solve([method_class(plain).configure(context, **options)], material, tasks, device=CUDA)
        counts = f"{gpu.copies} copies, {gpu.kernels.total():,} operations, {gpu.waits} waits"
        measures.append(Measure(f"{name} on a GPU", f"sent; {counts}", gpu.sent / 1e6, "MB"))
    return measures


# Operations of products that torch does not count, from the shapes of the arguments.
_OPERATIONS = {torch.ops.aten.baddbmm_: lambda _, a, b, **more: 2 * prod(a) * b[-1]}


def arithmetic(method: Method, material: Material, protocol: TaskProtocol = TASK, block: int = BLOCK) -> float:
    """Floating-point operations per task in matrix products, counted on tensors without data.

    Element-wise work is not counted. Products count in full, also where the solver makes use of their symmetry.
    """
    rows = by_name(method.embed(torch.from_numpy(material.novel.features[:2]), material.base))
    ways, shots, queries = largest(protocol, np.diff(material.novel.offsets))
    with torch.device("meta"), torch.no_grad():  # inference mode would hide products from the counter
        labels = torch.arange(ways).repeat(protocol.shots).expand(block, shots)
        samples = block, shots + queries
        spaces = {name: torch.empty(*samples, part.shape[1]) for name, part in rows.items()}
        tasks = TaskBatch(spaces, labels, ways)
        with FlopCounterMode(display=False, custom_mapping=_OPERATIONS) as counter:
            method.classify(tasks)
    return float(counter.get_total_flops()) / block


def embedding(method: Method, material: Material) -> float:
    """The same for the embedding of all images."""
    rows = torch.from_numpy(material.novel.features)
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=_OPERATIONS) as counter:
        method.embed(rows[:1], material.base)
    return float(counter.get_total_flops()) * len(rows)
