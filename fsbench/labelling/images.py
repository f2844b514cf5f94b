"""What is labelled and what is to be labelled: files, their classes, and their features in one cache."""

from __future__ import annotations

import csv
import difflib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fsbench.backbones.networks import Extractor
from fsbench.data import dataset as data
from fsbench.data.dataset import counted, first_names, is_image
from fsbench.data.layouts import images_below, read_image_rows, visible_folders
from fsbench.errors import FsbenchError, UsageError
from fsbench.features.extract import Settings, extract
from fsbench.features.store import FeatureFile
from fsbench.reporter import Reporter

CHECKED, NONE = "checked", "none of these"  # flags of rows that a person has decided
_NEAR_NAME = 0.85  # similarity of names that may be one, misspelt
_NOT_READ = (".heic", ".heif", ".avif", ".jxl", ".svg", ".psd", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng")
_CLASS_FOLDERS = "Make one folder per class with its images inside, or give a CSV file with the columns file,label."
_MARK = "blake2b:"  # begins what tells the content of an image, so that a spreadsheet does not take it for a number
_GUARDED = ("=", "+", "-", "@", "'")  # a spreadsheet takes what starts so for a formula


def unlabelled_files(source: str, reporter: Reporter) -> list[str]:
    """The images in a folder and below it, or those that a text file or standard input (`-`) lists, sorted."""
    folder = Path(source)
    if source == "-" or not folder.is_dir():
        files = _listed(source)
    else:
        files = [str(folder / name) for name in images_below(folder, folder)]
        others = [path.name for path in folder.rglob("*") if path.suffix.lower() in _NOT_READ]
        _tell(reporter, others, "image is", "images are", "left out, in a format that is not read: convert to JPEG")
    if not files:
        raise FsbenchError(f"There is no image to label in {source}.", "Check the path; folders inside are searched.")
    return sorted(set(files))


def _tell(reporter: Reporter, names: Sequence[str], one: str, many: str, what: str) -> None:
    """Warn of files or folders, if there are any."""
    if names:
        reporter.warn(f"{counted(len(names), one, many)} {what}: {first_names(sorted(names))}.")


def _listed(source: str) -> list[str]:
    if is_image(source):
        raise FsbenchError(f"{source} is one image.", "Give a folder of images, or a text file with a path per line.")
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{source} is neither a folder nor a text file of paths: {error}."
        raise FsbenchError(message, "Check the path of the unlabelled images.") from error
    names = [line.strip() for line in text.splitlines() if line.strip()]
    return _located(names, [Path(), Path(source).parent], source)


def _located(names: Sequence[str], roots: Sequence[Path], source: object) -> list[str]:
    """The files of these names in the first of the folders that has them; missing and ambiguous ones are errors."""
    places = {name: [root / name for root in roots if os.path.isfile(root / name)] for name in names}  # noqa: PTH113
    for name, paths in places.items():
        if len(paths) > 1 and len({path.read_bytes() for path in paths}) > 1:
            message = f"{name} of {source} is several images: {first_names(map(str, paths))}."
            raise FsbenchError(message, "Give paths that start from the folder in which the command runs.")
    files = [str(places[name][0]) if places[name] else "" for name in names]
    if missing := [name for name, file in zip(names, files, strict=True) if not file]:
        message = (
            f"{counted(len(missing), 'file', 'files')} that {source} names cannot be found: {first_names(missing)}."
        )
        raise FsbenchError(message, "Run the command in the folder that the paths start from, or repair the paths.")
    return files


def labelled_files(sources: Sequence[Path], unlabelled: str, reporter: Reporter) -> dict[str, str]:
    """Files and their classes, from class folders and CSV files; an empty class means none of the others."""
    labels: dict[str, str] = {}
    roots = [Path(), *([Path(unlabelled)] if Path(unlabelled).is_dir() else [])]
    for source in sources:
        read = _from_folders(source, reporter) if source.is_dir() else _from_csv(source, roots, reporter)
        for file, label in read.items():
            if labels.setdefault(file, label) != label:
                raise FsbenchError(f"{file} is labelled {labels[file]!r} and {label!r}.", "Keep one of the two labels.")
    return labels


def class_names(labels: Iterable[str], named: str, reporter: Reporter) -> tuple[str, ...]:
    """All classes, sorted: those of labelled images, and names given as a list or in a text file."""
    if is_file := os.path.isfile(named):  # noqa: PTH113 - a long list is no path, which Path raises OSError for
        try:
            named = Path(named).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError("classes", f"{named} is not a text file: {error}") from error
    names = [name.strip() for name in (named.splitlines() if is_file else named.split(","))]
    counts = Counter(labels)
    classes = tuple(sorted({*counts, *names} - {""}))
    lonely = [name for name in classes if counts[name] == 1]
    folded = {name.casefold(): name for name in sorted(classes, key=lambda one: counts[one])}
    for name in lonely if 2 * len(lonely) < len(classes) else ():  # where most have more, it may be misspelt
        near = difflib.get_close_matches(name.casefold(), folded, 2, _NEAR_NAME)
        for other in [folded[one] for one in near if folded[one] != name][:1]:
            reporter.warn(f"{name} has one labelled image and {other} a similar name: is it the same class?")
    if len(classes) < 2:
        hint = f"{_CLASS_FOLDERS} Or name the classes with --classes."
        raise FsbenchError(f"At least two classes are needed, there is {classes[0] if classes else 'none'}.", hint)
    return classes


def _from_folders(root: Path, reporter: Reporter) -> dict[str, str]:
    images = {folder.name: images_below(folder, root) for folder in visible_folders(root)}
    loose = [entry.name for entry in root.iterdir() if is_image(entry.name) and entry.is_file()]
    _tell(reporter, loose, "image is", "images are", f"left out, in {root} but in no class folder")
    empty = [name for name, files in images.items() if not files]
    _tell(reporter, empty, "class folder is", "class folders are", "left out, without an image to learn from")
    return {str(root / file): name for name, files in images.items() for file in files}


def _from_csv(path: Path, roots: Sequence[Path], reporter: Reporter) -> dict[str, str]:
    """The rows of a CSV; of one that fsbench wrote those that a person has checked."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            read = list(csv.DictReader(stream))
        rows = [{key.strip().lower(): unguarded(cell or "") for key, cell in row.items() if key} for row in read]
        rows = [row | {"flag": row["flag"].strip().lower()} if "flag" in row else row for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FsbenchError(f"{path} is neither a folder nor a CSV file: {error}.", _CLASS_FOLDERS) from error
    if not rows or not {"file", "label"} <= rows[0].keys():
        if rows and "outlier_score" in rows[0]:
            raise FsbenchError(
                f"{path} holds answers of fsbench under other names.", "Call its columns file and label."
            )
        rows = [{"file": file, "label": label} for _, file, label in read_image_rows(path)]
    if rows[0].keys() & {"confidence", "outlier_score", "flag"}:  # those of labels.csv
        checked = [row for row in rows if row.get("flag") in (CHECKED, NONE)]
        reporter.say(f"{path}: {len(checked):,} of {len(rows):,} rows are checked; the others are not used as labels.")
        if not checked:
            hint = f"Check some in labels.html and download it, or write `{CHECKED}` into the column flag."
            raise FsbenchError(f"{path} holds answers of fsbench, none of them checked by a person.", hint)
        rows = checked
    if unnamed := [row["file"] for row in rows if not row["label"].strip() and row.get("flag") != NONE]:
        raise FsbenchError(f"{path} has no label for {first_names(unnamed)}.", "Fill in the column label.")
    files = _located([row["file"] for row in rows], [*roots, path.parent], path)
    labels: dict[str, str] = {}
    changed = []
    for file, row in zip(files, rows, strict=True):
        image = row.get("image", "")
        if image.startswith(_MARK) and image != mark(data.content_hash(data.FolderImages(Path()).content(file))):
            changed.append(file)
            continue
        label = "" if row.get("flag") == NONE else row["label"].strip()
        if labels.setdefault(file, label) != label:
            raise FsbenchError(f"{path} has two labels for {file}.", "Keep one of the two labels.")
    _tell(reporter, changed, "image has", "images have", f"changed since {path} was written; the label is not used")
    return labels


def mark(value: str) -> str:
    """What labels.csv knows an image by: the start of the hash of its content."""
    return value and f"{_MARK}{value[:12]}"


def guarded(text: str) -> str:
    """A cell that a spreadsheet does not take for a formula; `unguarded` takes the mark away again."""
    return f"'{text}" if text.startswith(_GUARDED) else text


def unguarded(text: str) -> str:
    """A cell as it was before `guarded`."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(_GUARDED) else text


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features, and the files that could be read with their rows and the hashes of their content."""

    features: NDArray[np.float32]  # (M, D)
    rows: Mapping[str, int]
    hashes: Mapping[str, str]
    file: FeatureFile
    text: Tensor | None = None  # (K, D) unit text prototypes of the classes


def features_of(
    files: Iterable[str], backbone: Extractor, out: Path, settings: Settings, device: torch.device, reporter: Reporter
) -> FeatureTable:
    """The features of all files, from the feature file `out` as far as it has them; new ones are added to it."""
    root = Path(Path.cwd().anchor)
    names = {file: os.path.abspath(file)[len(root.anchor) :].replace(os.sep, "/") for file in files}  # noqa: PTH100
    every = {"novel": {"images": [*{*names.values()}]}}
    listing = data.Listing(root, "labelled and unlabelled", data.FolderImages(root), every)
    if out.exists():
        old = FeatureFile.open(out).splits
        if {name: one.class_names for name, one in old.items()} != {"novel": ("images",)}:
            raise FsbenchError(f"{out} holds features that fsbench label has not made.", "Choose another --out.")
    stored = extract(data.build_dataset(listing, out.stem), backbone, out, settings, device, reporter)
    split = stored.read("novel")
    places = {name: row for row, name in enumerate(split.images)}
    rows = {file: places[name] for file, name in names.items() if name in places}
    hashes = {file: split.hashes[row] for file, row in rows.items()}
    return FeatureTable(split.features, rows, hashes, stored)


def why_broken(file: str) -> str:
    """Why an image has no features, in words."""
    try:
        data.open_image(Path(file))
    except FsbenchError as error:
        return str(getattr(error, "reason", error.message)).rstrip(".")
    return "it could not be used"
