"""Writes a backbone as safetensors, whole or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from safetensors.torch import save

from fsbench.files import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fsbench.backbones.info import Extractor


def save_backbone(backbone: Extractor, path: Path, metadata: Mapping[str, str]) -> None:
    """Writes the weights under this package's key names, so that `load_backbone` reads them back.

    The header entry `fsbench` is a JSON object with the backbone, its family, its widths and depth, its
    feature dimension, and whatever the caller adds: the data set, the image size, how it was trained.

    Args:
        backbone: As returned by `load_backbone`.
        path: The file to write; an older one is replaced in a single step.
        metadata: Further facts for the header.
    """
    info = backbone.info
    facts = {
        **metadata,
        "backbone": info.name,
        "family": info.family,
        "feature_dim": info.feature_dim,
        **info.architecture,
    }
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in backbone.network.state_dict().items()}
    content = save(state, metadata={"fsbench": json.dumps(facts, sort_keys=True)})
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
