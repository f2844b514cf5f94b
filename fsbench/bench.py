"""`fsbench bench`: speed as ratios within one run, taken in turns so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from fsbench.backbones.load import load_backbone
from fsbench.data.scan import load_own
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.features.extract import Settings, extract
from fsbench.features.forward import Forward
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, Split, make_split, write_features
from fsbench.methods import reference
from fsbench.methods.base import Context
from fsbench.methods.bavardage import RIDGE, Bavardage, unpack
from fsbench.methods.registry import METHODS, method_class
from fsbench.reporter import Reporter
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fsbench.methods.base import Method

    Shared = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class Measure:
    """One line of the result."""

    case: str
    against: str  # what it is a ratio to, or how it was measured
    value: float
    unit: str  # × (times as fast), % (of a rate), ratio, tasks/s, or GB


def in_turns(repeats: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Median seconds of every action; each is done once before, to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


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


def mini_like(dimension: int = 640) -> Material:
    """As many novel classes and images as mini-ImageNet has, and base classes with fewer images."""
    base = draw_split(64, 100, dimension, seed=1)
    return Material(draw_split(20, 600, dimension), BaseStatistics.fit(base.features, base.labels))


CPU = torch.device("cpu")
TASK = TaskProtocol()
BLOCK = 64  # tasks in one batched product
LOOPED = 100  # tasks that the loop solves


def against_the_machine(tasks: int, repeats: int) -> list[Measure]:
    """End to end (sampling, gathering, Gram matrices, iterations) against batched products and against a NumPy loop.

    The products are the two Gram matrices of every task, 2 · 2 N² D floating-point operations, as plain batched matrix
    products by torch. The solver itself computes them as symmetric products, with half the operations.
    """
    material = mini_like()
    found = []
    for variant, share in (("article", 1), ("released", 10)):
        method, count = Bavardage(variant=variant), tasks // share  # type: ignore[arg-type]
        shared = shared_by_all_tasks(method, material)
        times = in_turns(
            repeats,
            solver=partial(solve, method, material, count),
            products=partial(gram_products, count, material),
            loop=partial(solve_in_a_loop, method, shared, material.novel.offsets, range(LOOPED)),
        )
        share_of_peak, per_task = 100 * times["products"] / times["solver"], times["solver"] / count
        found += [
            Measure(f"solve {variant}", "batched matrix products of its Gram matrices", share_of_peak, "%"),
            Measure(f"solve {variant}", "a NumPy loop over tasks", times["loop"] / LOOPED / per_task, "×"),
        ]
    return found


def solve(method: Method, material: Material, tasks: int, protocol: TaskProtocol = TASK) -> None:
    """Draw and solve tasks."""
    solve_tasks(method, material.novel, material.base, TaskList(protocol, 0, tasks), device=CPU)


def gram_products(tasks: int, material: Material) -> None:
    """Two products X Xᵀ per task, batched."""
    x = torch.ones(BLOCK, TASK.ways * TASK.shots + TASK.queries, material.novel.features.shape[1])
    with torch.inference_mode():
        for _ in range(2 * tasks // BLOCK):
            torch.bmm(x, x.mT)


def shared_by_all_tasks(method: Bavardage, material: Material) -> Shared:
    """What a loop computes before it starts: plain rows, sphered rows, and the inverse of the released program."""
    base = material.base
    rows = unpack(method.embed(torch.from_numpy(material.novel.features), base))
    matrix = (base.class_weighted.numpy() + RIDGE * np.eye(len(base.mean))) / base.images_per_class
    return rows.plain.numpy(), rows.sphered.numpy(), np.linalg.inv(matrix).astype(np.float32)


def solve_in_a_loop(method: Bavardage, shared: Shared, offsets: NDArray[np.int64], tasks: range) -> list[int]:
    """Draw and solve one task after the other by Algorithm 1; the numbers of right answers."""
    plain, sphered_rows, inverse = shared
    right = []
    for task in tasks:
        drawn = sample_tasks(TASK, offsets, 0, np.array([task]))
        rows, labels = np.concatenate([drawn.support[0], drawn.query[0]]), drawn.support_labels[0]
        x, sphered = plain[rows], sphered_rows[rows]
        if method.variant == "released":
            sphered = reference.sphere_in_span(x, inverse, method.sigma)
        answers = reference.bavardage(x, sphered, labels, method)[len(labels) :]
        right.append(int((answers.argmax(axis=1) == drawn.query_labels[0]).sum()))
    return right


def as_the_problem_grows(tasks: int, repeats: int) -> list[Measure]:
    """Time per task as one thing doubles or more, relative to 5-way 1-shot, 75 queries, 640 features."""
    method, material, twice = Bavardage(), mini_like(), mini_like(1280)
    cases = {
        "10 times the tasks": partial(solve, method, material, 10 * tasks),
        "twice the queries (N = 155)": partial(solve, method, material, tasks, TaskProtocol(queries=150)),
        "5 shots (N = 100)": partial(solve, method, material, tasks, TaskProtocol(shots=5)),
        "20 ways (N = 95)": partial(solve, method, material, tasks, TaskProtocol(ways=20)),
        "twice the features (D = 1280)": partial(solve, method, twice, tasks),
    }
    times = in_turns(repeats, base=partial(solve, method, material, tasks), **cases)
    against = "time per task at N = 80, K = 5, D = 640"
    return [
        Measure(f"solve, {name}", against, times[name] / times["base"] / (10 if "tasks" in name else 1), "ratio")
        for name in cases
    ]


def each_method(tasks: int, repeats: int) -> list[Measure]:
    """Tasks per second of every method, and its time relative to arithmetic at the rate of batched matrix products.

    The arithmetic is that of the method itself; for slow methods, which solve a tenth of the tasks, a Gram matrix.
    """
    material = mini_like()
    context = Context(balanced=False, base=material.base)
    methods = {name: method_class(name).configure(context) for name in METHODS}
    counts = {name: tasks if method.info.cost == "fast" else -(-tasks // 10) for name, method in methods.items()}
    solvers = {name: partial(solve, method, material, counts[name]) for name, method in methods.items()}
    times = in_turns(repeats, **{_PRODUCTS: partial(gram_products, tasks, material)}, **solvers)
    samples, dimension = TASK.ways * TASK.shots + TASK.queries, material.novel.features.shape[1]
    gram = 2 * samples**2 * dimension  # operations
    rate = 2 * tasks // BLOCK * BLOCK * gram / times[_PRODUCTS]  # operations per second
    found = []
    for name, method in methods.items():
        per_task, fast = times[name] / counts[name], method.info.cost == "fast"
        operations = arithmetic(method, material) if fast else gram
        what = f"its {operations / 1e9:.2g} GFLOP per task" if fast else "a Gram matrix per task"
        against = f"{what} at the speed of matrix products"
        found += [
            Measure(f"solve {name}", "sampling to answers", 1 / per_task, "tasks/s"),
            Measure(f"solve {name}", against, per_task * rate / operations, "ratio"),
        ]
    return found


_PRODUCTS = "products"
_aten = torch.ops.aten
_OPERATIONS: dict[Any, Callable[..., float]] = {  # floating-point operations, from the shapes of the arguments
    _aten.mm: lambda a, b: 2 * prod(a) * b[-1],
    _aten.bmm: lambda a, b: 2 * prod(a) * b[-1],
    _aten.addmm: lambda _, a, b: 2 * prod(a) * b[-1],
    _aten.baddbmm: lambda _, a, b: 2 * prod(a) * b[-1],
    _aten.baddbmm_: lambda _, a, b: 2 * prod(a) * b[-1],
    _aten.linalg_cholesky_ex: lambda a: _of(a, 1 / 3),
    _aten.linalg_lu_factor_ex: lambda a: _of(a, 2 / 3),
    _aten.linalg_inv_ex: lambda a: _of(a, 2),
    _aten._linalg_eigh: lambda a: _of(a, 9),
    _aten.linalg_solve_triangular: lambda a, b: prod(b) * a[-1],
    _aten.linalg_lu_solve: lambda lu, pivots, b: 2 * prod(b) * lu[-1],
    _aten.cholesky_solve: lambda b, a: 2 * prod(b) * a[-1],
    _aten._linalg_solve_ex: lambda a, b: _of(a, 2 / 3) + 2 * prod(b) * a[-1],
}


def _of(shape: Sequence[int], times_cube: float) -> float:
    """Operations of a factorisation of matrices of a shape (B, n, n) that takes so many n³."""
    return times_cube * prod(shape) * shape[-1]


class _Counter(TorchDispatchMode):
    """Adds up the operations of what is computed while it is entered."""

    operations = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if count := _OPERATIONS.get(func.overloadpacket):
            self.operations += count(*(each.shape for each in args if isinstance(each, torch.Tensor)))
        return func(*args, **(kwargs or {}))


def arithmetic(method: Method, material: Material) -> float:
    """Floating-point operations per task in matrix products and factorisations, counted on tensors without data.

    Element-wise work is not counted. Products count in full, also where the solver makes use of their symmetry.
    """
    width = method.embed(torch.from_numpy(material.novel.features[:2]), material.base).shape[1]
    shots, samples = TASK.ways * TASK.shots, TASK.ways * TASK.shots + TASK.queries
    with torch.device("meta"), torch.no_grad():  # inference mode would hide products from the counter
        labels = torch.arange(TASK.ways).repeat(TASK.shots).expand(BLOCK, shots)
        tasks = TaskBatch(torch.empty(BLOCK, samples, width), labels, TASK.ways)
        counter = _Counter()  # type: ignore[no-untyped-call]
        with counter:
            method.classify(tasks)
    return counter.operations / BLOCK


def scatter(repeats: int, classes: int = 64, images: int = 600, dimension: int = 640) -> list[Measure]:
    """From a feature file to S_w with its eigenvectors, against one product Xᵀ X of the same rows in float64."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.h5"
        split = draw_split(classes, images, dimension)
        write_features(path, Provenance("bench", "none"), {"base": split})
        file, rows = FeatureFile.open(path), torch.from_numpy(split.features).double()
        times = in_turns(repeats, scatter=lambda: BaseStatistics.fit_file(file), product=lambda: rows.mT @ rows)
    against = f"one product XᵀX, {len(rows):,} × {dimension}, float64"
    return [Measure("scatter, from disk", against, 100 * times["product"] / times["scatter"], "%")]


def extraction(repeats: int, backbone: str = "rn12", images: int = 16) -> list[Measure]:
    """Images on disk to a feature file, against the bare forward pass on tensors in memory."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "own"
        for split in ("base", "val", "novel"):
            for name in ("a", "b"):
                (root / split / f"{split}-{name}").mkdir(parents=True)
                for number in range(images):
                    pixels = rng.integers(0, 256, (84, 84, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(root / split / f"{split}-{name}" / f"{number}.jpg")
        network, dataset, settings = load_backbone(backbone, random_seed=0), load_own(root), Settings(batch=32)
        forward = Forward(network, "fp32", CPU, 84, batch=32)
        tensors = torch.randn(6 * images, 1, 3, 84, 84)

        def bare() -> None:
            for part in tensors.split(32):
                forward(part)

        def whole() -> None:
            out = Path(folder) / "out.h5"
            out.unlink(missing_ok=True)
            extract(dataset, network, out, settings, CPU, Reporter(quiet=True))

        times = in_turns(repeats, whole=whole, bare=bare)
    case = f"extract {backbone}, {6 * images} images"
    return [Measure(case, "the bare forward pass", times["whole"] / times["bare"], "ratio")]


def start(repeats: int) -> list[Measure]:
    """`fsbench --help` against `import typer`, both in fresh processes."""

    def run(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    times = in_turns(repeats, help=lambda: run("-m", "fsbench", "--help"), typer=lambda: run("-c", "import typer"))
    return [Measure("fsbench --help", 'python -c "import typer"', times["help"] / times["typer"], "ratio")]


def memory(*counts: int) -> list[Measure]:
    """Peak memory of fresh processes that solve more and more tasks."""
    code = (
        "import sys, torch\n"
        "from fsbench.bench import CPU, mini_like, solve\n"
        "from fsbench.devices import peak_memory\n"
        "from fsbench.methods.bavardage import Bavardage\n"
        "solve(Bavardage(), mini_like(64), int(sys.argv[1]))\n"
        "print(peak_memory(CPU))\n"
    )
    found = []
    for count in counts:
        done = subprocess.run([sys.executable, "-c", code, str(count)], check=True, capture_output=True, text=True)
        found.append(Measure(f"peak memory, {count:,} tasks", "whole process, D = 64", int(done.stdout) / 2**30, "GB"))
    return found


CASES: dict[str, Callable[[bool], list[Measure]]] = {
    "solver": lambda quick: against_the_machine(1_000 if quick else 10_000, 1 if quick else 5),
    "growth": lambda quick: as_the_problem_grows(100 if quick else 1_000, 1 if quick else 3),
    "methods": lambda quick: each_method(100 if quick else 1_000, 1 if quick else 3),
    "scatter": lambda quick: scatter(1, 16, 60) if quick else scatter(5),
    "extract": lambda quick: extraction(1, images=4) if quick else extraction(3),
    "start": lambda quick: start(1 if quick else 5),
    "memory": lambda quick: memory(100) if quick else memory(1_000, 10_000, 100_000),
}
