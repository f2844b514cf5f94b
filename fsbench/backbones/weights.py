"""A choice of weights: where those of a backbone come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.backbones.families import TIMM
from fsbench.backbones.find_weights import find_weights
from fsbench.backbones.load import load_backbone
from fsbench.backbones.timm_models import find_timm_weights
from fsbench.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.backbones.base import Extractor


@dataclass(frozen=True)
class Weights:
    """A backbone by name, and where its weights come from."""

    backbone: str
    file: Path | None  # a checkpoint of the user's
    seed: int | None  # random weights of this seed instead
    root: Path  # folder that is searched for `<dataset>/<backbone>.*` if there is neither
    pretrained: bool = False  # the published weights of a timm model, which timm downloads

    def __post_init__(self) -> None:
        if self.pretrained and (self.file or self.seed is not None or not self.backbone.startswith(TIMM)):
            raise UsageError("pretrained", "downloads the published weights of timm/NAME, and takes no others")

    def load(self, dataset: str) -> Extractor:
        """The backbone for a data set."""
        file = self.file
        if self.file is None and self.seed is None and self.backbone.startswith(TIMM):
            file = find_timm_weights(self.root, dataset, self.backbone, pretrained=self.pretrained)
        elif self.file is None and self.seed is None:
            file = find_weights(self.root, dataset, self.backbone)
        return load_backbone(self.backbone, file, random_seed=self.seed)
