"""Features of the embedded data set, for machines that have nothing else yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fsbench.data.choose import EMBEDDED, choose_datasets
from fsbench.features.extract import Settings
from fsbench.features.extract_all import Weights, extract_all
from fsbench.ranks import ALONE

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.features.store import FeatureFile
    from fsbench.ranks import Ranks
    from fsbench.report.progress import Reporter

BACKBONE = "rn12"


def embedded_features(
    data: Path, weights: Path, features: Path, reporter: Reporter, ranks: Ranks = ALONE
) -> FeatureFile:
    """Render the data set, extract it with the shipped weights, and give the feature file; only what is missing."""
    datasets = ranks.first_alone(lambda: choose_datasets(EMBEDDED, None, data, reporter))
    chosen = Weights(BACKBONE, None, None, weights)
    (file,) = extract_all(datasets, chosen, Settings(), torch.device("cpu"), features, reporter, ranks=ranks)
    return file
