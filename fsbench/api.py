"""The Python interface: methods on arrays in memory, on feature files, and extraction of features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from fsbench.backbones.load import refuse_unknown
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.data.pixels import pixel_cache
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError, in_python, speaks_python
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.run import Runner
from fsbench.evaluation.spec import NO_BASELINE, SETTINGS, Spec
from fsbench.features.arrays import described, is_arrays, opened
from fsbench.features.extract import Settings, Weights, extract_all
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Stepwise
from fsbench.methods.registry import METHODS, method_class, split_variant
from fsbench.ranks import ALONE
from fsbench.report.render import Table
from fsbench.reporter import Reporter
from fsbench.tasks.batch import TaskBatch, batch_of
from fsbench.tasks.sampling import feasible_settings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.methods.base import Method
    from fsbench.tasks.protocol import ProtocolName

    Array = TypeVar("Array", Tensor, NDArray[Any])
    from fsbench.features.arrays import Arrays
    from fsbench.features.store import FeatureFile
    from fsbench.results.record import RunRecord

    Features = str | Path | FeatureFile | Arrays

_FIT = "Compute them with BaseStatistics.fit(features, labels)."


@speaks_python
def predict(
    method: str,
    support: Tensor | NDArray[Any],
    support_labels: Tensor | NDArray[Any],
    query: Array,
    *,
    base: BaseStatistics | None = None,
    balanced: bool = False,
    preset: str = "",
    **params: Any,
) -> Array:
    """Class probabilities of the queries of a batch of tasks.

    Args:
        method: `bavardage`, `bavardage:released`, `soft-kmeans`, `ncm`, …
        support: (B, S, D) raw features; the method's own pre-processing is applied.
        support_labels: (B, S) labels in 0..K-1, every class with at least one sample.
        query: (B, Q, D) raw features.
        base: Statistics of the base classes, `BaseStatistics.fit(features, labels)`.
        balanced: Whether the method may assume that the classes are equally frequent among the queries.
        preset: `mini`, `tiered`, `cub`, `fc100` or `cifarfs` for the published parameters of that benchmark; else the
            scale-free ones.
        **params: Parameters of the method, e.g. `variant="released", t_km=10, t_vb=4, s_max=5`.

    Returns:
        (B, Q, K), a NumPy array or a tensor like the queries. On the CPU everything is computed in float64.

    Example:
        >>> import numpy as np, fsbench
        >>> rng = np.random.default_rng(0)
        >>> base = fsbench.BaseStatistics.fit(rng.random((300, 16)), np.repeat(np.arange(10), 30))
        >>> support, query = rng.random((2, 5, 16)), rng.random((2, 75, 16))
        >>> labels = np.tile(np.arange(5), (2, 1))
        >>> fsbench.predict("bavardage", support, labels, query, base=base).shape
        (2, 75, 5)
    """
    configured, batch = _prepared(method, support, support_labels, query, base, balanced, preset, params)
    return _like(query, configured.classify(batch))


@speaks_python
def trajectory(
    method: str,
    support: Tensor | NDArray[Any],
    support_labels: Tensor | NDArray[Any],
    query: Array,
    *,
    base: BaseStatistics | None = None,
    balanced: bool = False,
    preset: str = "",
    **params: Any,
) -> Array:
    """Class probabilities of the queries after every step of `soft-kmeans` or `bavardage`.

    Takes what `predict` takes. The first step is the nearest class mean, softmax(−T_km d²); steps 1 to `km_steps` are
    Soft-KMEANS; those after are variational Bayes; the last one is what `predict` gives.

    Returns:
        (T, B, Q, K) for T steps, a NumPy array or a tensor like the queries.
    """
    configured, batch = _prepared(method, support, support_labels, query, base, balanced, preset, params)
    if not isinstance(configured, Stepwise):
        stepwise = [name for name in METHODS if hasattr(method_class(name), "assignments")]
        raise FsbenchError(f"{method} does not show its steps.", f"Methods that do: {', '.join(stepwise)}.")
    steps = torch.stack(list(configured.assignments(batch)))  # (T, B, K, Q)
    return _like(query, steps.mT)


def _prepared(
    method: str,
    support: Any,
    support_labels: Any,
    query: Any,
    base: BaseStatistics | None,
    balanced: bool,
    preset: str,
    params: dict[str, Any],
) -> tuple[Method, TaskBatch]:
    """The configured method, and the tasks as it wants them."""
    if base is not None and not isinstance(base, BaseStatistics):
        raise UsageError("base", f"expected BaseStatistics, got {described(base)}", _FIT)
    batch = batch_of(support, support_labels, query)
    if base is not None and len(base.mean) != batch.rows.shape[2]:
        raise UsageError("base", f"has {len(base.mean)} features per image, support has {batch.rows.shape[2]}")
    context = Context(balanced=balanced, preset=preset, base=base, shots=batch.support_size // batch.ways)
    name, variant = split_variant(method)
    configured = method_class(name).configure(context, **{**variant, **params})
    embedded = configured.embed(batch.rows.flatten(end_dim=1), base).unflatten(0, batch.rows.shape[:2])
    return configured, TaskBatch(embedded, batch.support_labels, batch.ways)


def _like(query: Array, probabilities: Tensor) -> Array:
    """Probabilities as the kind of array that the queries are."""
    if isinstance(query, torch.Tensor):
        return probabilities.to(query.dtype) if query.is_floating_point() else probabilities
    return probabilities.numpy()


@speaks_python
def evaluate(
    method: str,
    features: Features,
    *,
    shots: int = 1,
    balanced: bool = False,
    alpha: float | None = None,
    ways: int | None = None,
    queries: int = 75,
    tasks: int = 10_000,
    seed: int = 0,
    split: str = "novel",
    protocol: ProtocolName = "disjoint",
    present: int | None = None,
    base: Features | None = None,
    tune: bool = False,
    blind: bool = False,
    preset: str = "",
    results: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
    batch: int | None = None,
    data_dir: str | Path = "data",
    weights_dir: str | Path = "weights",
    progress: bool = False,
    **params: Any,
) -> RunRecord:
    """Run one method over sampled tasks, as `fsbench solve` does, without a baseline.

    Args:
        method: `bavardage`, `bavardage:released`, `soft-kmeans`, … or `path/to/file.py:CLASS`.
        features: A feature file, or arrays in memory: `{"base": (features, labels), "novel": (features, labels)}`.
        shots: Labelled images per class.
        balanced: Draw equally many queries of every class.
        alpha: Dirichlet α of the class proportions of unbalanced queries; 2 unless given.
        ways: Classes per task; None is 5, and in the `keff` protocols all classes of the split.
        queries: Unlabelled images per task.
        tasks: How many.
        seed: Of the task list.
        split: `novel`, `val` or `base`.
        protocol: The rules: `disjoint`, `released`, `veilleux`, `keff` or `keff-released`.
        present: k_eff, the classes among the queries in the `keff` protocols; 5 unless given.
        base: Feature file whose base classes to use, if not the file's own.
        tune: Use parameters tuned on the val classes.
        blind: Do not tell the method whether tasks are balanced: the same defaults in every setting.
        preset: `article` uses the article's parameters for its own data sets; else scale-free ones.
        results: Folder of records: existing results are reused. None stores nothing.
        force: Recompute existing results.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        batch: Tasks per block.
        data_dir: Folder of data sets, for methods that work on images.
        weights_dir: Folder of checkpoints, for methods that work on images.
        progress: Show progress and notes on stderr.
        **params: Parameters of the method, e.g. `tau=0.3, sigma=20`.

    Returns:
        The record: `accuracy` and `ci95` in percent, `per_task` (T,), `signature`, `key`, and more.

    Example:
        >>> import fsbench
        >>> record = fsbench.evaluate("bavardage", "features/glyphs-rn12.h5", shots=5, tasks=100)
        >>> 20 < record.accuracy < 100, record.per_task.shape
        (True, (100,))
        >>> print(record)  # doctest: +ELLIPSIS
        bavardage on glyphs rn12, unbalanced α=2 5-shot: ... ± ... % over 100 tasks
    """
    spec = Spec.from_words(
        methods=[method], options=params, baseline=NO_BASELINE, shots=shots,
        settings="balanced" if balanced else "unbalanced", alpha=alpha, ways=ways, queries=queries, protocol=protocol,
        present=present, split=split, tasks=tasks, seed=seed, tune=tune, blind=blind, preset=preset, published=False,
    )  # fmt: skip
    runner = _runner(device, batch, results, force, progress, data_dir, weights_dir)
    with opened(features, "features") as files, opened(base, "base") as others:
        return compare_files(spec, files, runner, *others).records[0]


@speaks_python
def compare(
    methods: str | Sequence[str],
    features: Features | Sequence[Features],
    *,
    shots: int | Sequence[int] = (1, 5),
    settings: str | Sequence[str] = SETTINGS,
    alpha: float | None = None,
    ways: int | None = None,
    queries: int = 75,
    tasks: int = 10_000,
    seed: int = 0,
    split: str = "novel",
    protocol: ProtocolName = "disjoint",
    present: int | None = None,
    baseline: str | None = None,
    base: Features | None = None,
    tune: bool = False,
    blind: bool = False,
    preset: str = "",
    prior_alpha: float | str | None = None,
    published: bool = True,
    over_data: bool = False,
    skip_infeasible: bool = False,
    over_classes: bool = False,
    results: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
    batch: int | None = None,
    data_dir: str | Path = "data",
    weights_dir: str | Path = "weights",
    progress: bool = False,
) -> Table:
    """Compare methods on the same tasks, as `fsbench compare` does.

    Args:
        methods: Names, or one text with commas between them; `all` is every method.
        features: One feature file or several.
        shots: Labelled images per class; one number or several.
        settings: `unbalanced`, `balanced`, or both.
        alpha: Dirichlet α of the class proportions of unbalanced queries; 2 unless given.
        ways: Classes per task; None is 5, and in the `keff` protocols all classes of the split.
        queries: Unlabelled images per task.
        tasks: How many per setting.
        seed: Of the task lists.
        split: `novel`, `val` or `base`.
        protocol: The rules: `disjoint`, `released`, `veilleux`, `keff` or `keff-released`.
        present: k_eff, the classes among the queries in the `keff` protocols; 5 unless given.
        baseline: What others are compared to; Soft-KMEANS unless given, without base classes SimpleShot (L2N).
        base: Feature file whose base classes to use, if not the files' own.
        tune: Use parameters tuned on the val classes, where a method has some.
        blind: Tell no method whether tasks are balanced: the same defaults in every setting.
        preset: `article` uses the article's parameters for its own data sets; else scale-free ones.
        prior_alpha: Dirichlet prior of BAVARDAGE, a number or `sampler` for that of the tasks; 2 unless given.
        published: Look up published numbers.
        over_data: Add intervals for new images of these classes.
        over_classes: Add intervals for new classes.
        skip_infeasible: Leave out settings for which a file has too few images, instead of refusing them.
        results: Folder of records: existing results are reused. None stores nothing.
        force: Recompute existing results.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        batch: Tasks per block.
        data_dir: Folder of data sets, for methods that work on images.
        weights_dir: Folder of checkpoints, for methods that work on images.
        progress: Show progress and notes on stderr.

    Returns:
        The table: `print(it)`, `it.show("markdown")`, `it.records`.

    Example:
        >>> import fsbench
        >>> table = fsbench.compare(["soft-kmeans", "bavardage"], "features/glyphs-rn12.h5", shots=1, tasks=50)
        >>> len(table.records)
        4
        >>> table.show("csv")  # doctest: +ELLIPSIS
        dataset,backbone,method,...
    """
    several = isinstance(features, Sequence) and not isinstance(features, str) and not is_arrays(features)
    given = list(features) if several else [features]  # type: ignore[arg-type]
    if not given:
        raise FsbenchError("There is no feature file to compare on.", "Give one, or several.")
    spec = Spec.from_words(
        methods=methods, baseline=baseline, shots=shots, settings=settings, alpha=alpha, ways=ways, queries=queries,
        protocol=protocol, present=present, split=split, tasks=tasks, seed=seed, tune=tune, blind=blind, preset=preset,
        published=published, over_data=over_data, over_classes=over_classes, skip_infeasible=skip_infeasible,
        prior_alpha=prior_alpha,
    )  # fmt: skip
    runner = _runner(device, batch, results, force, progress, data_dir, weights_dir)
    with opened(given, "features") as files, opened(base, "base") as others:
        return Table(compare_files(spec, files, runner, *others))


def _runner(
    device: str, batch: int | None, results: str | Path | None, force: bool, progress: bool, *images: str | Path
) -> Runner:
    folder, places = Path(results) if results else None, ImagePlaces(*map(Path, images))
    return Runner(choose_device(device), batch, ALONE, _reporter(progress), folder, force, images=places)


def _reporter(progress: bool) -> Reporter:
    return Reporter(quiet=not progress, words=in_python)


@speaks_python
def extract(
    dataset: str,
    backbone: str = "rn12",
    *,
    data: str | Path | None = None,
    split_file: str | Path | None = None,
    split_fractions: Sequence[float] | None = None,
    split_seed: int | None = None,
    min_images: int | None = None,
    weights: str | Path | None = None,
    random_weights: int | None = None,
    pretrained: bool = False,
    transform: str | None = None,
    crops: int = 1,
    precision: str = "fp32",
    skip_broken: bool = False,
    out: str | Path = "features",
    tag: str = "",
    force: bool = False,
    device: str = "auto",
    batch: int | None = None,
    workers: int | None = None,
    data_dir: str | Path = "data",
    weights_dir: str | Path = "weights",
    progress: bool = False,
) -> FeatureFile:
    """Run a backbone over the images of a data set, as `fsbench extract` does; only what is missing is computed.

    Args:
        dataset: `mini`, `tiered`, `cub`, `fc100`, `cifarfs` or `glyphs`; with `data`, a name for your own images.
        backbone: `rn12`, `rn18`, `wrn`, `conv4` or `timm/NAME`.
        data: A folder of your own images, with one folder per class.
        split_file: With `data`: json or csv that divides the classes.
        split_fractions: With `data`: shares of base, val and novel classes, such as (0.64, 0.16, 0.2).
        split_seed: Random seed of the draw by fractions; 0 unless given.
        min_images: With `data`: leave out classes with fewer images than this.
        weights: A checkpoint; else `weights_dir/DATASET/BACKBONE.*`.
        random_weights: Instead of a checkpoint: fresh weights of this seed.
        pretrained: For `timm/NAME`: use the published weights, and let timm download them if need be.
        transform: Name of a transform that replaces the backbone's own.
        crops: Average the features of that many random crops.
        precision: `fp32`, `tf32`, `bf16` or `fp16`.
        skip_broken: Leave out images that cannot be read, and record it.
        out: Folder of feature files, or the file itself if it ends in `.h5`.
        tag: A word at the end of the file's name, to keep features of two networks apart.
        force: Replace a file of other features; compute the same ones again.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        batch: Images per forward pass.
        workers: Processes that read images.
        data_dir: Folder of data sets.
        weights_dir: Folder of checkpoints.
        progress: Show progress and notes on stderr.

    Example:
        >>> import fsbench
        >>> shares = (0.5, 0.25, 0.25)
        >>> file = fsbench.extract("photos", "rn12", data="photos", split_fractions=shares, weights="my.pth")
        >>> print(file.path, file.dimension, list(file.splits))
        features/photos-rn12.h5 120 ['base', 'val', 'novel']
    """
    refuse_unknown(backbone)
    shares = ",".join(map(str, split_fractions)) if split_fractions is not None else None
    folder, splits, own_weights = (Path(given) if given else None for given in (data, split_file, weights))
    own = OwnData.given(folder, splits, shares, min_images, split_seed)
    if own is None and "," in dataset:
        raise FsbenchError(f"One data set at a time, got {dataset!r}.", "Call extract once for each.")
    cache, where, reporter = pixel_cache(Path(data_dir)), choose_device(device), _reporter(progress)
    settings = Settings(crops, 0, precision, transform, batch, workers, skip_broken, tag, cache=cache)
    source = Weights(backbone, own_weights, random_weights, Path(weights_dir), pretrained)
    datasets = choose_datasets(dataset, own, Path(data_dir), reporter)
    if own and "novel" in datasets[0].splits:
        reporter.say(f"{datasets[0].name}: {feasible_settings(datasets[0].splits['novel'])}")
    return extract_all(datasets, source, settings, where, Path(out), reporter, force=force)[0]
