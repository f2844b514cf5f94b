"""`check_method(MyMethod)`: call it in a test of your own; it says what a method gets wrong, in one sentence."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Method
from fsbench.methods.images.networks import ImageNetwork
from fsbench.tasks.batch import TaskBatch, by_name

_WAYS, _QUERIES, _TASKS = 3, 11, 3
_DIMENSIONS = (12, 48)  # fewer than a task has samples, and more
_TOLERANCE = 1e-5


def check_method(
    method: type[Method], *, network: ImageNetwork | None = None, leave_out: Collection[str] = (), **options: Any
) -> None:
    """Check that a class is a method that fsbench can run, on small synthetic tasks; an AssertionError says what fails.

    Args:
        method: The class.
        network: For a method on images.
        leave_out: Checks that it cannot pass, by name: those of `CHECKS`, and `unequal shots`.
        options: Its parameters; for slow methods, fewer steps.
    """
    wanted = {name: check for name, check in CHECKS.items() if name not in leave_out}
    labels = np.array([0, 1, 2, 0, 1, 2] if "unequal shots" in leave_out else [0, 1, 2, 2, 1, 2])
    for dimension in (0,) if method.info.network_for(options) else _DIMENSIONS:
        for balanced in (False, True):
            context = Context(balanced=balanced, shots=2, alpha=2.0, network=network)
            case = _case(method, labels, dimension, context, options)
            for check in wanted.values():
                check(case)
            wanted = {name: check for name, check in wanted.items() if name not in _ONCE}


@dataclass(frozen=True)
class Case:
    """A configured method, and tasks for it: rows (B, N, D) before `embed`, support first, and labels (B, S)."""

    method: Method
    rows: Tensor
    labels: Tensor
    base: BaseStatistics | None
    options: dict[str, Any]
    tolerance: float
    text: Tensor | None = None  # (K, D) of the classes, for methods that use it

    def require(self, fulfilled: bool, sentence: str) -> None:
        """Fail with the name of the method and a sentence."""
        if not fulfilled:
            raise AssertionError(f"{type(self.method).__name__}: {sentence}")

    def tasks(self, rows: Tensor, labels: Tensor) -> TaskBatch:
        """Embedded tasks."""
        spaces = by_name(self.method.embed(rows.flatten(0, 1), self.base))
        embedded = {name: one.unflatten(0, rows.shape[:2]) for name, one in spaces.items()}
        text = None if self.text is None else self.text.to(rows).expand(len(rows), -1, -1)
        return TaskBatch(embedded, labels, _WAYS, text)

    def solve(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Class probabilities (B, Q, K), as the engine asks for them."""
        with torch.no_grad():
            return self.method.classify(self.tasks(rows, labels))

    def same(self, one: Tensor, other: Tensor, sentence: str) -> None:
        """Require two tensors of probabilities to agree as far as the method is steady, with the largest difference."""
        apart = (one - other).abs().max().item()
        if apart > self.tolerance:  # a method may magnify rounding errors: twice what other last digits do is allowed
            rng, expected = np.random.default_rng(0), self.solve(self.rows, self.labels)
            nearby = [self.rows * (1 + 1e-15 * torch.from_numpy(rng.normal(size=self.rows.shape))) for _ in range(6)]
            shaken = [(self.solve(rows, self.labels) - expected).abs().max().item() for rows in nearby]
            self.require(self.rows.is_floating_point() and apart <= 2 * max(shaken), f"{sentence} (by {apart:.2g}).")


def _case(cls: type[Method], labels: Any, dimension: int, context: Context, options: dict[str, Any]) -> Case:
    """The method on features of so many dimensions, cut at zero like after a ReLU, or on random images."""
    rng = np.random.default_rng(0)
    every = np.concatenate([np.tile(labels, (_TASKS, 1)), rng.integers(0, _WAYS, (_TASKS, _QUERIES))], axis=1)
    base = text = None
    if dimension:
        means, spread = rng.normal(size=(4 * _WAYS, dimension)) * 0.6 + 0.8, np.geomspace(0.8, 0.2, dimension)
        of_base, drawn = (
            np.maximum(means[one] + spread * rng.normal(size=(*one.shape, dimension)), 0)
            for one in (_WAYS + np.arange(360) % (3 * _WAYS), every)
        )
        unit = torch.nn.functional.normalize(torch.from_numpy(means[:_WAYS] + rng.normal(size=(_WAYS, dimension))))
        text = unit if cls.info.text else None
        base, rows = BaseStatistics.fit(of_base, np.arange(360) % (3 * _WAYS)), torch.from_numpy(drawn)
    else:
        assert context.network is not None, f"{cls.__name__} works on images: give check_method a network."
        pixels = 3 * context.network.transform.crop**2
        rows = torch.from_numpy(rng.integers(0, 256, (*every.shape, pixels), dtype=np.uint8))
    method = cls.configure(dataclasses.replace(context, base=base), **options)
    repeated = torch.from_numpy(labels).repeat(_TASKS, 1)
    return Case(method, rows, repeated, base, options, _TOLERANCE if dimension else 2e-4, text)


def _facts(case: Case) -> None:
    method, info, params = case.method, case.method.info, case.method.values()
    case.require(bool(info.name) and (info.name + info.title).isprintable(), "name or title cannot be printed.")
    try:
        json.dumps([dataclasses.asdict(info), params], allow_nan=False)
    except (TypeError, ValueError) as error:
        case.require(False, f"its facts or parameters are not plain data: {error}.")
    published = (key for one in info.published.values() for key in one)
    unknown = {*info.grid, *info.prior_by, *info.transductive_by, *published} - params.keys()
    case.require(not unknown, f"its facts name parameters that it does not have: {', '.join(unknown)}.")
    context = Context(balanced=False, base=case.base)
    variants = {info.variants.parameter: info.variants.values} if info.variants else {}
    for name, value in ((name, value) for name, values in {**info.grid, **variants}.items() for value in values):
        type(method).configure(context, **{**case.options, name: value})


def _probabilities(case: Case) -> None:
    for dtype in (torch.float64, torch.float32) if case.rows.is_floating_point() else (torch.uint8,):
        p, again = (case.solve(case.rows.to(dtype), case.labels) for _ in range(2))
        expected = (_TASKS, _QUERIES, _WAYS)
        case.require(tuple(p.shape) == expected, f"classify gives {tuple(p.shape)}, not (B, Q, K) = {expected}.")
        case.require(p.is_floating_point(), f"classify gives {p.dtype}, not floats.")
        case.require(bool(torch.isfinite(p).all()), "a probability is not finite.")
        case.require(bool((p >= 0).all()), "a probability is negative.")
        error = (p.sum(dim=2) - 1).abs().max().item()
        case.require(error < 1e-4, f"the probabilities of a query do not add up to 1 (off by {error:.2g}).")
        case.require(torch.equal(p, again), "the same tasks give other probabilities the second time.")


def _inputs(case: Case) -> None:
    rows, labels = case.rows.clone(), case.labels.clone()
    tasks = case.tasks(rows, labels)
    case.require(torch.equal(rows, case.rows), "embed writes into the features.")
    pairs = [(rows, case.rows), (labels, case.labels), *((one, one.clone()) for one in tasks.spaces.values())]
    with torch.no_grad():
        case.method.classify(tasks)
    untouched = all(torch.equal(*pair) for pair in pairs)
    case.require(untouched, "classify writes into the rows or labels of its tasks, which other methods see too.")


def _rows(case: Case) -> None:
    flat = case.rows.flatten(0, 1)
    one, *alone = (by_name(case.method.embed(part, case.base)) for part in (flat, *flat.split(1)))
    gaps = [one[name].double() - torch.cat([row[name] for row in alone]).double() for name in one]
    apart = max(gap.abs().max().item() for gap in gaps)
    case.require(apart < 1e-9, f"embed does not map row by row: a row alone differs (by {apart:.2g}).")


def _batches(case: Case) -> None:
    alone = [case.solve(rows, labels) for rows, labels in zip(case.rows.split(1), case.labels.split(1), strict=True)]
    together = case.solve(case.rows, case.labels)
    case.same(torch.cat(alone), together, "a task alone has other probabilities than in a batch")


def _order(case: Case) -> None:
    rng, size = np.random.default_rng(1), case.labels.shape[1]
    support, queries = torch.from_numpy(rng.permutation(size)), torch.from_numpy(rng.permutation(_QUERIES))
    rows = case.rows[:, torch.cat([support, size + queries])]
    expected = case.solve(case.rows, case.labels)[:, queries]
    case.same(case.solve(rows, case.labels[:, support]), expected, "the order of the samples of a task matters")


def _classes(case: Case) -> None:
    renamed = torch.tensor([2, 0, 1])
    other = case if case.text is None else dataclasses.replace(case, text=case.text[[1, 2, 0]])
    p = other.solve(case.rows, renamed[case.labels])
    case.same(p[:, :, renamed], case.solve(case.rows, case.labels), "the numbering of the classes matters")


def _inductive(case: Case) -> None:
    if case.method.info.assumes(case.method.params()) == "inductive":
        fewer, expected = case.solve(case.rows[:, :-4], case.labels), case.solve(case.rows, case.labels)[:, :-4]
        case.same(fewer, expected, "its facts say inductive, but an answer depends on other queries")


def _zero_shot(case: Case) -> None:
    if case.method.info.zero_shot:
        p = case.solve(case.rows, case.labels[:, :0])
        case.require(bool(torch.isfinite(p).all()), "its facts say zero_shot, but without labels it is not finite.")


def _base(case: Case) -> None:
    needed = case.method.info.needs_base_for(case.method.params())
    try:
        case.method.embed(case.rows[0], None)
    except FsbenchError:
        case.require(needed, "embed refuses to work without base statistics, but its facts do not say needs_base.")
    else:
        case.require(not needed, "its facts say needs_base, but embed works without base statistics.")


def _device(case: Case) -> None:
    """On another device, without data: tensors that were left on the CPU are noticed, values are not asked for."""
    if not case.rows.is_floating_point():
        return
    with FakeTensorMode() as mode:
        tensors = {name: mode.from_tensor(one) for name, one in vars(case.base).items() if torch.is_tensor(one)}
        base = dataclasses.replace(case.base, **tensors) if case.base and case.method.info.needs_base else None  # type: ignore[arg-type]
        rows = torch.empty(case.rows.shape, device="meta")
        labels = torch.empty(case.labels.shape, dtype=torch.int64, device="meta")
        text = None if case.text is None else torch.empty(case.text.shape, device="meta")
        try:
            p = dataclasses.replace(case, base=base, text=text).solve(rows, labels)
        except (DataDependentOutputException, DynamicOutputShapeException):
            return  # slow on a GPU, but not wrong
        except Exception as error:
            raise AssertionError(f"{type(case.method).__name__}: fails on a GPU: {error}") from error
        case.require(p.device.type == "meta", "its probabilities are not on the device of the rows.")


_ALL = (_facts, _inputs, _probabilities, _rows, _batches, _order, _classes, _inductive, _zero_shot, _base, _device)
CHECKS = {check.__name__.removeprefix("_"): check for check in _ALL}
_ONCE = ("facts", "base", "device")  # the same for all tasks
