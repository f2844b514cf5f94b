"""From images to features: `fsbench extract` as a function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.backbones.load import refuse_unknown
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError
from fsbench.features.extract import Settings
from fsbench.features.extract_all import Weights, extract_all
from fsbench.report.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbench.features.store import FeatureFile


def extract(
    dataset: str,
    backbone: str = "rn12",
    *,
    data: str | Path | None = None,
    split_file: str | Path | None = None,
    split_fractions: Sequence[float] | None = None,
    weights: str | Path | None = None,
    random_weights: int | None = None,
    transform: str | None = None,
    crops: int = 1,
    precision: str = "fp32",
    skip_broken: bool = False,
    out: str | Path = "features",
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
        backbone: `rn12`, `rn18`, `wrn` or `timm/NAME`.
        data: A folder of your own images, with one folder per class.
        split_file: With `data`: json or csv that divides the classes.
        split_fractions: With `data`: shares of base, val and novel classes, such as (0.64, 0.16, 0.2).
        weights: A checkpoint; else `weights_dir/DATASET/BACKBONE.*`.
        random_weights: Instead of a checkpoint: fresh weights of this seed.
        transform: Name of a transform that replaces the backbone's own.
        crops: Average the features of that many random crops.
        precision: `fp32`, `bf16` or `fp16`.
        skip_broken: Leave out images that cannot be read, and record it.
        out: Folder of feature files, or the file itself if it ends in `.h5`.
        force: Extract again what is there.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        batch: Images per forward pass.
        workers: Processes that read images.
        data_dir: Folder of data sets.
        weights_dir: Folder of checkpoints.
        progress: Show bars and remarks on stderr.

    Example:
        >>> import fsbench
        >>> shares = (0.5, 0.25, 0.25)
        >>> file = fsbench.extract("photos", "rn12", data="photos", split_fractions=shares, weights="my.pth")
        >>> print(file.path, file.dimension, list(file.splits))
        features/photos-rn12.h5 120 ['base', 'val', 'novel']
    """
    refuse_unknown(backbone)
    reporter = Reporter(quiet=not progress)
    shares = ",".join(map(str, split_fractions)) if split_fractions is not None else None
    own = OwnData.given(Path(data) if data else None, Path(split_file) if split_file else None, shares)
    if own is None and "," in dataset:
        raise FsbenchError(f"One data set at a time, got {dataset!r}.", "Call extract once for each.")
    settings = Settings(crops, 0, precision, transform, batch, workers, skip_broken)
    source = Weights(backbone, Path(weights) if weights else None, random_weights, Path(weights_dir))
    datasets = choose_datasets(dataset, own, Path(data_dir), reporter)
    (file,) = extract_all(datasets, source, settings, choose_device(device), Path(out), reporter, force=force)
    return file
