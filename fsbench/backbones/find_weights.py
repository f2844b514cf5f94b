"""Where weights are found, and where to get those that are missing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fsbench.backbones.families import BACKBONES
from fsbench.data.catalog import dataset_names
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of

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
    sha256: str  # of the file; empty until known
    note: str


def shipped_weights() -> Path:
    """The weights that come with fsbench: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "_weights"
    return installed if installed.is_dir() else package.parent / "weights"


def read_manifest(path: Path | None = None) -> tuple[PublishedCheckpoint, ...]:
    """The list of public checkpoints; without a path, the one that comes with fsbench."""
    text = (path or shipped_weights() / "manifest.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text).get("checkpoint", [])
    return tuple(PublishedCheckpoint(**{**entry, "rows": tuple(entry["rows"])}) for entry in entries)


def find_weights(root: Path, dataset: str, backbone: str, manifest: Path | None = None) -> Path:
    """Find `<root>/<dataset>/<backbone>.*`, else the small network of that name that comes with fsbench.

    Several files are refused, and one that is not the published file of its name.
    """
    files = candidates(root, dataset, backbone) or candidates(shipped_weights(), dataset, backbone)
    published = read_manifest(manifest)
    if not files:
        raise _missing(root, dataset, backbone, published)
    if len(files) > 1:
        files = [path for path in files if not _comes_with_fsbench(path)] or files
    if len(files) > 1:
        message = f"Several weights for {backbone} on {dataset}: {', '.join(map(str, files))}."
        raise FsbenchError(message, "Choose one with --weights FILE, or keep only one of them there.")
    file = files[0]
    for entry in published:
        same_name = file.parts[-2:] == Path(entry.target).parts[-2:]
        if entry.sha256 and same_name and (digest := sha256_of(file)) != entry.sha256:
            message = f"{file} is not the file of {entry.repository}: expected sha256 {entry.sha256}, found {digest}."
            raise FsbenchError(message, "Download it again, or use your own file with --weights FILE.")
    return file


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


def _missing(root: Path, dataset: str, backbone: str, published: tuple[PublishedCheckpoint, ...]) -> FsbenchError:
    wanted = [entry for entry in published if (entry.dataset, entry.backbone) == (dataset, backbone)]
    benchmark = dataset in dataset_names()
    if not benchmark:  # features of own images come from a network that has seen others
        wanted = [entry for entry in published if entry.backbone == backbone and entry.rows][:1]
    steps = [_instruction(root, entry, benchmark) for entry in wanted]
    steps.append(f"Put a checkpoint of your own at {root / dataset / backbone}.pth, or give it with --weights FILE.")
    if here := [file for known in dataset_names() for file in candidates(root, known, backbone)]:
        steps.append(f"Use weights of another data set that are here: --weights {here[0]}")
    if backbone in BACKBONES:
        images = f"--dataset {dataset}" if benchmark else "--data FOLDER"
        steps.append(f"Train one: fsbench train --backbone {backbone} {images}")
    steps.append("To try things out without trained weights: --random-weights 0")
    message = f"No weights for {backbone} on {dataset}: expected {root / dataset / backbone}.* and found none."
    return FsbenchError(message, "\n".join(steps))


def _instruction(root: Path, entry: PublishedCheckpoint, benchmark: bool) -> str:
    own_name = benchmark and entry.target.startswith(f"{entry.dataset}/{entry.backbone}.")
    end = "." if own_name else ", and give it with --weights."
    tables = ", ".join(dict.fromkeys(row.partition(" ")[0] for row in entry.rows))
    purpose = f"For {tables} of the article" if tables else "As an alternative"
    purpose = purpose if benchmark else f"For features of a network that was trained on {entry.dataset}"
    return (
        f"{purpose}: download {entry.file} from {entry.source} ({entry.repository}, licence: "
        f"{entry.licence}) and save it as {root / entry.target}{end}"
    )
