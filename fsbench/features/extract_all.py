"""One backbone over several data sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fsbench.backbones.load import load_backbone
from fsbench.backbones.weights import find_weights
from fsbench.errors import FsbenchError
from fsbench.features.extract import extract
from fsbench.ranks import ALONE

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from fsbench.backbones.info import Extractor
    from fsbench.data.listing import ImageDataset
    from fsbench.features.extract import Settings
    from fsbench.features.store import FeatureFile
    from fsbench.ranks import Ranks
    from fsbench.report.progress import Reporter


@dataclass(frozen=True)
class Weights:
    """A backbone by name, and where its weights come from.

    Attributes:
        backbone: Name on the command line.
        file: A checkpoint given by the user.
        seed: Fresh weights of this seed instead.
        root: Folder that is searched for `<dataset>/<backbone>.*`.
    """

    backbone: str
    file: Path | None
    seed: int | None
    root: Path

    def load(self, dataset: str) -> Extractor:
        """The backbone for a data set."""
        if self.seed is not None and self.file is None:
            return load_backbone(self.backbone, random_seed=self.seed)
        file = self.file or find_weights(self.root, dataset, self.backbone)
        return load_backbone(self.backbone, file, random_seed=self.seed)


def extract_all(
    datasets: list[ImageDataset],
    weights: Weights,
    settings: Settings,
    device: torch.device,
    out: Path,
    reporter: Reporter,
    *,
    force: bool = False,
    ranks: Ranks = ALONE,
) -> list[FeatureFile]:
    """Extract every data set; one that fails does not keep the others from being done, and is told at the end.

    Args:
        datasets: To extract.
        weights: The backbone.
        settings: How.
        device: Where.
        out: A folder, or the file itself if it ends in `.h5`.
        reporter: For progress.
        force: Extract again what is there.
        ranks: Processes that share the images.
    """
    if out.suffix == ".h5" and len(datasets) > 1:
        raise FsbenchError(f"{len(datasets)} data sets do not fit into one file {out}.", "Choose one with --dataset.")
    files, failures = [], []
    for dataset in datasets:
        name = f"{dataset.name}-{weights.backbone.replace('/', '_')}.h5"
        path = out if out.suffix == ".h5" else out / name
        try:
            backbone = ranks.first_alone(partial(weights.load, dataset.name))
            files.append(extract(dataset, backbone, path, settings, device, reporter, force=force, ranks=ranks))
        except FsbenchError as failure:
            if len(datasets) == 1 or not ranks.can_go_on_after(failure):
                raise
            reporter.warn(f"{dataset.name} could not be extracted: {failure.message}")
            failures.append((dataset.name, failure))
    if failures:
        names = ", ".join(name for name, _ in failures)
        raise FsbenchError(
            f"{len(failures)} of {len(datasets)} data sets could not be extracted: {names}. The others are done.",
            failures[0][1].hint,
        )
    return files
