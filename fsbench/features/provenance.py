"""Where features come from, as a feature file tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - read when a file is checked
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.features.hdf5 import REMAKE

if TYPE_CHECKING:
    from pathlib import Path

    import h5py

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Provenance:
    """Where features come from; what is not known is empty.

    Attributes:
        dataset: Name of the data set.
        backbone: Name on the command line.
        family: Network and origin, such as `wrn-s2m2`.
        weights: Name of the weights file, or "none, seed s".
        weights_sha256: Of that file.
        split_digest: Of the class lists.
        transform: From image to tensor, as JSON.
        image_size: Side of the tensor, in pixels.
        crops: Crops per image whose features were averaged.
        precision: Of the forward pass.
        libraries: Versions.
        notes: What else is worth knowing, such as images that were left out.
        fingerprint: Of everything that determines the features.
        imported: Where features come from that fsbench did not extract: file, sha256, format and splits of each.
    """

    dataset: str
    backbone: str
    family: str = ""
    weights: str = ""
    weights_sha256: str = ""
    split_digest: str = ""
    transform: str = ""
    image_size: int = 0
    crops: int = 1
    precision: str = "float32"
    libraries: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    fingerprint: str = ""
    imported: Sequence[Mapping[str, str]] = ()


def read_provenance(file: h5py.File, path: Path) -> Provenance:
    """Read and check what a file says of its origin."""
    from pydantic import TypeAdapter, ValidationError

    try:
        provenance = TypeAdapter(Provenance).validate_json(file.attrs["provenance"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FsbenchError(f"{path} has no readable provenance: {where}: {first['msg']}.", REMAKE) from error
    except (KeyError, TypeError, ValueError) as error:
        raise FsbenchError(f"{path} has no readable provenance: {error}.", REMAKE) from error
    if not is_name(provenance.dataset) or not is_name(provenance.backbone):
        raise FsbenchError(f"{path} does not name its data set and backbone.", REMAKE)
    return provenance


def is_name(text: str) -> bool:
    """Whether a text can name a data set, a backbone or a method: one line, no control characters, not endless."""
    return text.isprintable() and 0 < len(text) <= _LONGEST_NAME
