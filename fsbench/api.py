"""The Python interface: methods on arrays in memory, on feature files, and extraction of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from fsbench.backbones.load import Weights, refuse_unknown
from fsbench.data.scan import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.options import ComparingInPython, Evaluating, ExtractingInPython, LabellingInPython
from fsbench.evaluation.run import Runner
from fsbench.evaluation.source import base_named
from fsbench.evaluation.spec import NO_BASELINE, Spec
from fsbench.features.extract import Settings, extract_all
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Arrays, FeatureFile, described, is_arrays, opened
from fsbench.labelling.run import Labels, label_images
from fsbench.methods.base import Context
from fsbench.methods.images.loader import ImageLoader
from fsbench.methods.pool import POOL, on_pool
from fsbench.methods.registry import method_class, split_variant
from fsbench.options import takes_options
from fsbench.ranks import ALONE
from fsbench.report.comparison import ComparisonTable
from fsbench.reporter import Reporter
from fsbench.results.record import Record
from fsbench.tasks.batch import batch_of, by_name
from fsbench.tasks.sampling import feasible_settings

Array = TypeVar("Array", Tensor, NDArray[Any])
Features = str | Path | FeatureFile | Arrays


def predict(
    method: str,
    support: Tensor | NDArray[Any] | None,
    support_labels: Tensor | NDArray[Any] | None,
    query: Array,
    *,
    base: BaseStatistics | Literal["pool"] | None = None,
    text: Tensor | NDArray[Any] | None = None,
    balanced: bool = False,
    preset: str = "",
    **params: Any,
) -> Array:
    """Class probabilities of the queries of a batch of tasks.

    Args:
        method: `bavardage`, `bavardage:released`, `soft-kmeans`, `ncm`, …
        support: (B, S, D) raw features; the method's own pre-processing is applied. None for zero shots.
        support_labels: (B, S) labels in 0..K-1, every class with at least one sample.
        query: (B, Q, D) raw features.
        base: Statistics of the base classes, `BaseStatistics.fit(features, labels)`; or `pool`: of each task itself.
        text: (B, K, D) or (K, D) text prototypes of the classes, for methods that use them.
        balanced: Whether the method may assume that the classes are equally frequent among the queries.
        preset: `mini`, `tiered`, `cub`, `fc100` or `cifarfs` for the published parameters of that benchmark; else the
            scale-free ones.
        **params: Parameters of the method, e.g. `variant="released", t_km=10, t_vb=4, s_max=5`.

    Returns:
        (B, Q, K), a NumPy array or a tensor like the queries. On the CPU everything is computed in float64.

    Examples:
        >>> import numpy as np, fsbench
        >>> rng = np.random.default_rng(0)
        >>> base = fsbench.BaseStatistics.fit(rng.random((300, 16)), np.repeat(np.arange(10), 30))
        >>> support, query = rng.random((2, 5, 16)), rng.random((2, 75, 16))
        >>> labels = np.tile(np.arange(5), (2, 1))
        >>> fsbench.predict("bavardage", support, labels, query, base=base).shape
        (2, 75, 5)
    """
    if base is not None and not isinstance(base, BaseStatistics) and base != POOL:
        hint = "Compute them with BaseStatistics.fit(features, labels)."
        raise UsageError("base", f"expected BaseStatistics, got {described(base)}", hint)
    batch, known = batch_of(support, support_labels, query, text), base if isinstance(base, BaseStatistics) else None
    if known is not None and len(known.mean) != batch.rows.shape[2]:
        raise UsageError("base", f"has {len(known.mean)} features per image, support has {batch.rows.shape[2]}")
    name, variant = split_variant(method)
    info = method_class(name).info
    if (info.text == "needed" and batch.text is None) or not (batch.support_size or info.zero_shot):
        raise UsageError("text" if batch.support_size else "support", f"{name} needs it, and there is none")
    context = Context(balanced=balanced, preset=preset, base=known, shots=batch.support_size // batch.ways)
    configured = method_class(name).configure(context, **{**variant, **params})
    if base == POOL and configured.info.needs_base_for(configured.params()):
        tasks = on_pool(configured, batch)
    else:
        spaces = by_name(configured.embed(batch.rows.flatten(end_dim=1), known))
        tasks = batch.with_rows({name: space.unflatten(0, batch.rows.shape[:2]) for name, space in spaces.items()})
    probabilities = configured.calibrated(configured.classify(tasks))
    if isinstance(query, torch.Tensor):
        return probabilities.to(query.dtype) if query.is_floating_point() else probabilities
    return probabilities.numpy()


@takes_options(Evaluating)
def evaluate(
    method: str, features: Features, *, base: Features | Literal["pool"] | None = None, **options: Any
) -> Record:
    """Run one method over sampled tasks, as `fsbench solve` does, without a baseline.

    Args:
        method: `bavardage`, `bavardage:released`, `soft-kmeans`, … or `path/to/file.py:CLASS`.
        features: A feature file, or arrays in memory: `{"base": (features, labels), "novel": (features, labels)}`.
        base: Feature file whose base classes to use, if not the file's own; `pool` for the images of each task.
        **options: Options of `fsbench solve`, as keywords, and parameters of the method: `shots=5, tau=0.3`.

    Returns:
        The record: `accuracy` and `ci95` in percent, `per_task` (T,), `answers`, `signature`, and more.

    Examples:
        >>> import fsbench
        >>> record = fsbench.evaluate("bavardage", "features/glyphs-rn12.h5", shots=5, tasks=100)
        >>> 20 < record.accuracy < 100, record.per_task.shape
        (True, (100,))
        >>> print(record)  # doctest: +ELLIPSIS
        bavardage on glyphs rn12, unbalanced α=2 5-shot: ... ± ... % over 100 tasks
    """
    own = {name: value for name, value in options.items() if name in Evaluating.model_fields}
    parameters = {name: value for name, value in options.items() if name not in own}
    cls: Any = method_class(split_variant(method)[0])
    if both := own.keys() & {one.name for one in fields(cls)}:
        raise UsageError(min(both), f"is an option and a parameter of {method}", "Rename the parameter.")
    chosen = Evaluating(**own)
    spec = Spec.of(chosen, [method], parameters, baseline=NO_BASELINE, published=False)
    return compare_files(spec, opened(features, "features"), _runner(chosen), base_named(base)).records[0]


@takes_options(ComparingInPython)
def compare(
    methods: str | Sequence[str],
    features: Features | Sequence[Features],
    *,
    base: Features | None = None,
    **options: Any,
) -> ComparisonTable:
    """Compare methods on the same tasks, as `fsbench compare` does.

    Args:
        methods: Names, or one text with commas between them; `all` is every method.
        features: One feature file or several, or arrays in memory.
        base: Feature file whose base classes to use, if not the files' own; `pool` for the images of each task.
        **options: Options of `fsbench compare`, as keywords; there are no others.

    Returns:
        The table: `print(it)`, `it.show("markdown")`, `it.records`.

    Examples:
        >>> import fsbench
        >>> table = fsbench.compare(["soft-kmeans", "bavardage"], "features/glyphs-rn12.h5", shots=1, tasks=50)
        >>> len(table.records)
        4
        >>> table.show("csv")  # doctest: +ELLIPSIS
        dataset,backbone,method,...
    """
    several = isinstance(features, Sequence) and not isinstance(features, str) and not is_arrays(features)
    listed = list(features) if several else [features]  # type: ignore[arg-type]
    if not listed:
        raise FsbenchError("There is no feature file to compare on.", "Give one, or several.")
    chosen = ComparingInPython(**{**options, "methods": methods})
    spec = Spec.of(chosen, chosen.methods, {})
    return ComparisonTable(compare_files(spec, opened(listed, "features"), _runner(chosen), base_named(base)))


def _runner(options: Evaluating | ComparingInPython) -> Runner:
    return Runner(
        choose_device(options.device),
        options.batch,
        ALONE,
        Reporter(quiet=not options.progress),
        options.results,
        options.force,
        images=ImageLoader(options.data_dir, options.weights_dir),
    )


@takes_options(ExtractingInPython)
def extract(dataset: str, backbone: str = "rn12", **options: Any) -> FeatureFile:
    """Run a backbone over the images of a data set, as `fsbench extract` does; only what is missing is computed.

    Args:
        dataset: `mini`, `tiered`, `cub`, `fc100`, `cifarfs` or `glyphs`; with `data`, a name for your own images.
        backbone: `rn12`, `rn18`, `wrn`, `conv4` or `timm/NAME`.
        **options: Options of `fsbench extract`, as keywords; there are no others.

    Examples:
        >>> import fsbench
        >>> shares = (0.5, 0.25, 0.25)
        >>> file = fsbench.extract("photos", "rn12", data="photos", split_fractions=shares, weights="my.pth")
        >>> print(file.path, file.dimension, list(file.splits))
        features/photos-rn12.h5 120 ['base', 'val', 'novel']
    """
    chosen = ExtractingInPython(backbone=backbone, **options)
    refuse_unknown(backbone)
    own = OwnData.given(chosen)
    if own is None and "," in dataset:
        raise FsbenchError(f"One data set at a time, got {dataset!r}.", "Call extract once for each.")
    reporter = Reporter(quiet=not chosen.progress)
    same = {name: getattr(chosen, name) for name in Settings.__annotations__ if hasattr(chosen, name)}
    settings = Settings(**same)
    weights = Weights(backbone, chosen.weights, chosen.random_weights, chosen.weights_dir, chosen.pretrained)
    datasets = choose_datasets(dataset, own, chosen.data_dir, reporter)
    if own and "novel" in datasets[0].splits:
        reporter.say(f"{datasets[0].name}: {feasible_settings(datasets[0].splits['novel'])}")
    device = choose_device(chosen.device)
    out = chosen.out or Path("features")
    return extract_all(datasets, weights, settings, device, out, reporter, force=chosen.force)[0]


@takes_options(LabellingInPython)
def label(unlabelled: str | Path, support: str | Path | Sequence[str | Path] = (), **options: Any) -> Labels:
    """Label images, given a few labelled ones of each class, as `fsbench label` does; only features are stored.

    Args:
        unlabelled: A folder of images, or a text file with a path per line.
        support: A folder with one folder per class, or a CSV file with the columns file,label; or several of them.
        **options: Options of `fsbench label`, as keywords; there are no others.

    Returns:
        The labels: `table` and `to_csv(path)`, `expected` (print it, or `expected.interval`), `suggested`.

    Examples:
        >>> import fsbench
        >>> labels = fsbench.label("photos", "labelled", backbone="rn12", weights="my.pth")
        >>> labels.table[0]["file"], 0 < labels.table[0]["confidence"] <= 1
        ('photos/bird00/000.png', True)
        >>> labels.to_csv("labels.csv")
    """
    chosen = LabellingInPython(**options)
    several = [support] if isinstance(support, str | Path) else support
    return label_images(str(unlabelled), [*map(Path, several)], chosen, Reporter(quiet=not chosen.progress))
