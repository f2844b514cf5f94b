"""One task of labelled and unlabelled images: answers in blocks, what to expect of them, what to label next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor

from fsbench.features.preprocess import unit_norm
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Method
from fsbench.methods.pool import ENOUGH, pool_statistics
from fsbench.methods.registry import method_class, split_variant
from fsbench.tasks.batch import TaskBatch, by_name

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_FOLDS = 10
_UNCALIBRATED = -0.75, 0.2  # where nothing can be hidden: about that of two images per class
_UNCALIBRATED_BY_NAME = 0.0, 0.6  # the same with text; CLIP features of pets and Caltech, val images
# What (a, b) of the confidence are drawn to, and how strongly; the first chosen on val classes, see docs/label.md.
_PRIORS = {"bavardage:weighted": ((-0.7, 0.5), (6.0, 40.0))}
_WEAK_PRIOR = (0.0, 0.0), (1.0, 0.0)
_TINY = 1e-30
_COPIES = 7  # matrices of queries × classes that a method holds at once
_LEAST_MEMORY = 1 << 28  # floats that may be held at least
_SAMPLED = 20_000  # unlabelled images that hidden ones are mixed with, and that statistics are computed from
_CANDIDATES = 5_000  # most uncertain images among which suggestions are chosen
_PROJECTED = 128  # dimensions in which near-duplicates are looked for
NEAR = 0.93  # cosine of two images, centred, from which they are near-duplicates: most crops and smaller copies


@dataclass(frozen=True)
class Solver:
    """A method, and where its base statistics come from: `base`, or the images themselves."""

    method: str
    base: BaseStatistics | None = None
    device: torch.device | str = "cpu"
    text: Tensor | None = None  # (K, D) unit text prototypes of the classes

    @property
    def knows_names(self) -> bool:
        """Whether a class needs no labelled image, as its name says enough."""
        return self.text is not None and method_class(split_variant(self.method)[0]).info.zero_shot

    @property
    def uncalibrated(self) -> tuple[float, float]:
        """(a, b) of the confidence where nothing can be hidden."""
        return _UNCALIBRATED_BY_NAME if self.knows_names else _UNCALIBRATED

    def __call__(self, rows: Tensor, labels: Tensor, ways: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Answers for rows (N, D), labelled ones first with their labels (S,), block after block of the others.

        Each block is every n-th query, its probabilities (q, K), and its outlier scores (q,). What a method holds for a
        block takes as much memory as the rows, or a gigabyte.
        """
        name, variant = split_variant(self.method)
        method_type, support = method_class(name), len(labels)
        base = self.base
        if base is None and method_type.info.needs_base_for(variant):
            base = self._pool(rows, labels, ways)
        context = Context(balanced=False, shots=max(1, support // ways), base=base)
        method = method_type.configure(context, **variant)
        size = max(1, max(_LEAST_MEMORY, rows.numel()) // (_COPIES * ways))
        step = math.ceil((len(rows) - support) / size)
        for block in (slice(first, None, step) for first in range(step)):
            mixed = torch.cat([rows[:support], rows[support:][block]])
            yield block, *self._solve(method, base, mixed, labels, ways)

    def _pool(self, rows: Tensor, labels: Tensor, ways: int) -> BaseStatistics:
        """Statistics of the images themselves; of few images the mean alone, with which they are centred."""
        if len(rows) < ENOUGH:
            mean, whole = rows.double().mean(dim=0), torch.eye(rows.shape[1], dtype=torch.float64)
            return BaseStatistics(mean, whole, whole, torch.ones_like(mean), whole, (len(rows),))
        sample = rows[len(labels) :][:: math.ceil(len(rows) / _SAMPLED)]
        return pool_statistics(torch.cat([rows[: len(labels)], sample]), labels, ways)

    @torch.inference_mode()
    def _solve(
        self, method: Method, base: BaseStatistics | None, rows: Tensor, labels: Tensor, ways: int
    ) -> tuple[Tensor, Tensor]:
        spaces = by_name(method.embed(rows.to(self.device), base))
        text = None if self.text is None else self.text[None].to(self.device)
        tasks = TaskBatch({name: x[None] for name, x in spaces.items()}, labels[None].to(self.device), ways, text)
        probabilities = method.classify(tasks)
        if len(labels.unique()) < ways:  # judged by names alone, as means and names lie apart
            queries = {name: x[None, len(labels) :] for name, x in spaces.items()}
            tasks = TaskBatch(queries, tasks.support_labels[:, :0], ways, text)
        return probabilities[0].cpu(), method.outlier_scores(tasks, probabilities)[0].cpu()


@dataclass(frozen=True)
class Answers:
    """The two most probable classes of every image, how sure the method is of the first, and outlier scores."""

    labels: Ints  # (Q, 2)
    odds: Floats  # (Q,) logarithm of the probability of the first class over that of all others
    second: Floats  # (Q,) the part of the second class in the probability of all others
    outlier: Floats  # (Q,)

    def confidence(self, calibration: tuple[float, float]) -> Floats:
        """Probabilities (Q, 2) of the two classes: σ(a + b · odds) for the first, and what it leaves for the second."""
        first = expit(calibration[0] + calibration[1] * self.odds)
        return np.stack([first, np.minimum(first, (1 - first) * self.second)], axis=1)


def answers(solver: Solver, rows: Tensor, labels: Tensor, ways: int) -> Answers:
    """The answers for the queries, which come after the labelled rows."""
    queries = len(rows) - len(labels)
    best, columns = np.zeros((queries, 2), np.int64), np.zeros((3, queries))
    for block, probabilities, scores in solver(rows, labels, ways):
        top, classes = probabilities.double().clamp_min(_TINY).topk(2, dim=1)
        others = probabilities.double().scatter(1, classes[:, :1], 0.0).sum(dim=1).clamp_min(_TINY)
        best[block] = classes.numpy()
        columns[:, block] = torch.stack([(top[:, 0] / others).log(), top[:, 1] / others, scores.double()]).numpy()
    return Answers(best, columns[0], columns[1].clip(max=1), columns[2])


def calibrate(odds: Floats, right: NDArray[np.bool_], weights: Floats, solver: Solver) -> tuple[float, float]:
    """(a, b) of the largest posterior of right and wrong answers (H,) with weights; 1/b is a temperature.

    Without answers it is a guess. One answer in H + 2 may be a slip, and a normal prior draws (a, b) to values that
    are usual for the method, so that few answers do not make them extreme.
    """
    count = len(odds)
    if not count:
        return solver.uncalibrated
    usual, strength = (np.array(values) for values in _PRIORS.get(solver.method, _WEAK_PRIOR))
    target, weights = np.where(right, 1 - 1 / (count + 2), 1 / (count + 2)), weights * count / weights.sum()

    def loss(values: Floats) -> float:
        logits = values[0] + values[1] * odds
        misfit = weights @ (np.logaddexp(0, -logits) * target + np.logaddexp(0, logits) * (1 - target))
        return float(misfit + strength @ (values - usual) ** 2)

    offset, slope = minimize(loss, np.array(solver.uncalibrated)).x
    return float(offset), float(slope)


def folds(labels: Ints, seed: int = 0, *, whole: bool = False) -> list[Ints]:
    """Rows of labelled images to hide together: every image of a class with two or more once, never all of a class.

    With `whole`, the only image of a class too.
    """
    if not len(labels):
        return []
    random, number = np.random.default_rng(seed), np.full(len(labels), -1)
    count = min(MOST_FOLDS, max(1 + whole, int(np.bincount(labels).max())))
    for label in np.unique(labels):
        own = random.permutation(np.flatnonzero(labels == label))
        if len(own) > 1 or whole:
            number[own] = (np.arange(len(own)) + random.integers(count)) % max(2, min(count, len(own)))
    return [np.flatnonzero(number == fold) for fold in range(count) if (number == fold).any()]


def hide_in_turn(
    solver: Solver, rows: Tensor, labels: Tensor, ways: int, advance: Callable[[int], None] = lambda done: None
) -> tuple[Ints, Answers]:
    """Hide the labelled images, fold by fold, among the unlabelled ones: which (H,), and the answers for them."""
    support = len(labels)
    pool = rows[support:][:: math.ceil(max(1, len(rows) - support) / _SAMPLED)]
    hidden, parts = [np.zeros(0, np.int64)], [Answers(np.zeros((0, 2), np.int64), *np.zeros((3, 0)))]
    for fold in folds(labels.numpy(), whole=solver.knows_names):
        rest = np.setdiff1d(np.arange(support), fold)
        found = answers(solver, torch.cat([rows[rest], rows[fold], pool]), labels[rest], ways)
        hidden.append(fold)
        parts.append(Answers(*(column[: len(fold)] for column in vars(found).values())))
        advance(1)
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return np.concatenate(hidden), Answers(*(np.concatenate(column) for column in columns))


def wilson(share: float, count: float, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share p of n: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)."""
    spread = z**2 / count
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    return (share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread)


def outlier_limit(hidden: Floats, queries: Floats) -> float:
    """The score above which an image is unlike any class.

    99 % of the hidden labelled images are below it; where there are none, it is five deviations above the median.
    """
    if len(hidden):
        return float(np.quantile(hidden, 0.99, method="higher"))
    middle = float(np.median(queries))
    return middle + 5 * 1.4826 * float(np.median(np.abs(queries - middle)))


def directions(rows: Tensor) -> Tensor:
    """Rows (N, D) minus their mean, as unit vectors."""
    return unit_norm(rows - rows.mean(dim=0))


def near_duplicates(rows: Tensor, block: int = 2048) -> dict[int, int]:
    """Of every row (N, D) that is nearly an earlier one, the most similar earlier one.

    Candidates are found after a random projection, which keeps cosines near 1.
    """
    x = directions(rows)
    generator = torch.Generator().manual_seed(0)
    projected = x if x.shape[1] <= _PROJECTED else x @ torch.randn(x.shape[1], _PROJECTED, generator=generator)
    projected, twins = unit_norm(projected), dict[int, int]()
    for start in range(0, len(x), block):
        end = min(start + block, len(x))
        cosines = projected[start:end] @ projected[:end].mT
        ones, others = torch.nonzero(cosines.tril(start - 1) > NEAR - 0.04, as_tuple=True)
        exact = (x[ones + start] * x[others]).sum(dim=1)
        for cosine, one, other in sorted(zip(exact.tolist(), ones.tolist(), others.tolist(), strict=True)):
            if cosine >= NEAR:
                twins[one + start] = other
    return twins


def suggest(rows: Tensor, confidence: Floats, count: int) -> list[int]:
    """The queries whose labels would help most, in the order in which they were chosen.

    Each choice covers as much doubt as possible that those before have left: it maximises Σ_q (1 − p_q) max_s w(q, s),
    with p_q the confidence of an image, and w the similarity to a chosen image. That asks for images that are
    uncertain, typical of many others, and different from each other.
    """
    doubtful = np.argsort(confidence, kind="stable")[:_CANDIDATES]
    x = directions(rows)[doubtful]
    similarity = (x @ x.mT).clamp_min(0).square_()
    doubt = torch.from_numpy(1 - confidence[doubtful]).to(x)
    covered, chosen = torch.zeros_like(doubt), list[int]()
    for _ in range(min(count, len(doubtful))):
        gain = (similarity - covered[:, None]).clamp_min_(0).mul_(doubt[:, None]).sum(dim=0)
        gain[chosen] = -1
        best = int(gain.argmax())
        chosen.append(best)
        covered = torch.maximum(covered, similarity[:, best])
    return [int(doubtful[place]) for place in chosen]
