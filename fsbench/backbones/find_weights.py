"""Where weights are found, and where to get those that are missing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fsbench.backbones.families import BACKBONES, FAMILIES
from fsbench.data.catalog import dataset_names
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of

SUFFIXES = re.compile(r"\.(safetensors|pt\d*|pth|ckpt|bin|tar|pt\.tar|pth\.tar)")


@dataclass(frozen=True)
class PublishedCheckpoint:
    """One public checkpoint, as an entry of the manifest describes it.

    Attributes:
        dataset: Whose base classes it was trained on.
        variant: The family that the file is recognised as.
        source: The address that the repository gives.
        file: The name of the file in the download.
        target: The name to give it under `weights/`.
        rows: The rows of the article computed with it, as "table data-set backbone"; empty for an alternative.
        sha256: Of the file; empty until known.
    """

    dataset: str
    backbone: str
    variant: str
    repository: str
    source: str
    file: str
    target: str
    rows: tuple[str, ...]
    licence: str
    sha256: str
    note: str


def shipped_weights() -> Path:
    """The weights that come with fsbench: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "_weights"
    return installed if installed.is_dir() else package.parent / "weights"


def read_manifest(path: Path | None = None) -> tuple[PublishedCheckpoint, ...]:
    """Read and check the list of public checkpoints; without a path, the one that comes with fsbench."""
    path = path or shipped_weights() / "manifest.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FsbenchError(f"The manifest {path} cannot be read: {error}.", "Reinstall fsbench.") from error
    entries = content.get("checkpoint", [])
    if set(content) - {"checkpoint"} or not isinstance(entries, list):
        raise FsbenchError(f"The manifest {path} must consist of [[checkpoint]] entries.")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, start=1))


def _entry(path: Path, number: int, entry: Any) -> PublishedCheckpoint:
    where = f"{path}, checkpoint {number}"
    names = {item.name for item in fields(PublishedCheckpoint)}
    if not isinstance(entry, dict) or set(entry) != names:
        wrong = ", ".join(sorted(names ^ set(entry if isinstance(entry, dict) else ())))
        raise FsbenchError(f"{where}: missing or unknown entries: {wrong}.")
    rows = entry["rows"]
    texts = [value for name, value in entry.items() if name != "rows"]
    if not isinstance(rows, list) or not all(isinstance(value, str) for value in [*texts, *rows]):
        raise FsbenchError(f"{where}: every entry is a text, and rows is a list of texts.")
    if not re.fullmatch(r"([0-9a-f]{64})?", entry["sha256"]):
        raise FsbenchError(f"{where}: sha256 is 64 hexadecimal digits, or empty.")
    if getattr(FAMILIES.get(entry["variant"]), "backbone", None) != entry["backbone"]:
        raise FsbenchError(f"{where}: {entry['variant']!r} is not a family of the backbone {entry['backbone']!r}.")
    target = Path(entry["target"])
    if target.is_absolute() or ".." in target.parts or target.parent != Path(entry["dataset"]):
        raise FsbenchError(f"{where}: target must be {entry['dataset']}/<file>, found {entry['target']!r}.")
    return PublishedCheckpoint(**{**entry, "rows": tuple(rows)})


def find_weights(root: Path, dataset: str, backbone: str, manifest: Path | None = None) -> Path:
    """Find `<root>/<dataset>/<backbone>.*`, else the small network of that name that comes with fsbench.

    Raises:
        FsbenchError: There is none (the hint says what to put where, and from where), there are several, or
            the file is not the published one of that name.
    """
    files = candidates(root, dataset, backbone) or candidates(shipped_weights(), dataset, backbone)
    published = read_manifest(manifest)
    if not files:
        raise _missing(root, dataset, backbone, published)
    if len(files) > 1:
        files = [file for file in files if not _comes_with_fsbench(file)] or files
    if len(files) > 1:
        message = f"Several weights for {backbone} on {dataset}: {', '.join(map(str, files))}."
        raise FsbenchError(message, "Choose one with --weights FILE, or keep only one of them there.")
    found = files[0]
    for entry in published:
        same_name = found.parts[-2:] == Path(entry.target).parts[-2:]
        if entry.sha256 and same_name and (digest := sha256_of(found)) != entry.sha256:
            message = f"{found} is not the file of {entry.repository}: expected sha256 {entry.sha256}, found {digest}."
            raise FsbenchError(message, "Download it again, or use your own file with --weights FILE.")
    return found


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
