"""Where weights are found, and where to get those that are missing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fsbench.backbones.families import BACKBONES
from fsbench.data.catalog import DATASETS
from fsbench.errors import FsbenchError

SUFFIXES = re.compile(r"\.(safetensors|pt\d*|pth|ckpt|bin|tar|pt\.tar|pth\.tar)")


@dataclass(frozen=True)
class PublishedCheckpoint:
    """One public checkpoint, as an entry of the manifest describes it."""

    dataset: str  # whose base classes it was trained on
    backbone: str
    variant: str  # the family that the file is recognised as
    repository: str
    source: str  # the address that the repository gives
    file: str  # the name of the file in the download
    target: str  # the name to give it under `weights/`
    rows: tuple[str, ...]  # those of the article computed with it, "table data-set backbone"; none for an alternative
    licence: str
    note: str


def shipped_weights() -> Path:
    """The weights that come with fsbench: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "_weights"
    return installed if installed.is_dir() else package.parent / "weights"


def read_manifest() -> tuple[PublishedCheckpoint, ...]:
    """The list of public checkpoints."""
    entries = tomllib.loads((shipped_weights() / "manifest.toml").read_text(encoding="utf-8")).get("checkpoint", [])
    return tuple(PublishedCheckpoint(**{**entry, "rows": tuple(entry["rows"])}) for entry in entries)


def find_weights(root: Path, dataset: str, backbone: str) -> Path:
    """Find `<root>/<dataset>/<backbone>.*`, else the small network of that name that comes with fsbench."""
    files = candidates(root, dataset, backbone) or candidates(shipped_weights(), dataset, backbone)
    if not files:
        raise _missing(root, dataset, backbone)
    if len(files) > 1:
        files = [path for path in files if not _comes_with_fsbench(path)] or files
    if len(files) > 1:
        message = f"Several weights for {backbone} on {dataset}: {', '.join(map(str, files))}."
        raise FsbenchError(message, "Choose one with --weights FILE, or keep only one of them there.")
    return files[0]


def _comes_with_fsbench(file: Path) -> bool:
    """Whether it is one of the small networks, which in a clone lie where users put theirs, and yield to them."""
    has_card = file.suffix == ".safetensors" and file.with_suffix(".json").is_file()
    return has_card and file.parents[1].resolve() == shipped_weights().resolve()


def candidates(root: Path, dataset: str, backbone: str) -> list[Path]:
    """The files `<root>/<dataset>/<backbone>.*` that can be weights."""
    folder, name = (root / dataset / backbone).parent, Path(backbone).name
    if not folder.is_dir():
        return []
    named = (path for path in folder.iterdir() if path.name.startswith(name))
    return sorted(path for path in named if SUFFIXES.fullmatch(path.name.removeprefix(name)) and path.is_file())


def _missing(root: Path, dataset: str, backbone: str) -> FsbenchError:
    """The error for weights that are not there, with all ways to get some."""
    published = [entry for entry in read_manifest() if (entry.dataset, entry.backbone) == (dataset, backbone)]
    steps = []
    for entry in published:
        tables = ", ".join(dict.fromkeys(row.partition(" ")[0] for row in entry.rows))
        purpose = f"For {tables} of the article" if tables else "As an alternative"
        end = "." if entry.target.startswith(f"{entry.dataset}/{entry.backbone}.") else ", and give it with --weights."
        source = f"{entry.source} ({entry.repository}, licence: {entry.licence})"
        steps.append(f"{purpose}: download {entry.file} from {source} and save it as {root / entry.target}{end}")
    steps.append(f"Put a checkpoint of your own at {root / dataset / backbone}.pth, or give it with --weights FILE.")
    if backbone in BACKBONES:
        images = f"--dataset {dataset}" if dataset in DATASETS else "--data FOLDER"
        steps.append(f"Train one: fsbench train --backbone {backbone} {images}")
    steps.append("To try things out without trained weights: --random-weights 0")
    message = f"No weights for {backbone} on {dataset}: expected {root / dataset / backbone}.* and found none."
    return FsbenchError(message, "\n".join(steps))
