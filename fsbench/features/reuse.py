"""What a feature file has in common with one that is asked for: how they differ, and which rows can be reused.

Features belong to images; base, val and novel are a view of them. A row is reused if the same network saw an image of
the same name and mark in the same way.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.data.dataset import counted, first_names
from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.data.dataset import ImageSplit
    from fsbench.features.store import Provenance

Place = tuple[str, str, int | None]  # of an image: its split, its class, and its mark if it is known


def known_rows(
    out: Path, library: Path | None, asked: Provenance, splits: Sequence[ImageSplit]
) -> dict[int, NDArray[np.float32]]:
    """Features of images that an earlier state of `out`, files beside it or in the library have already.

    They are (D,) each, by row in the order of the splits. There are none if the very same file is to be made again.
    """
    with contextlib.suppress(FsbenchError):
        if FeatureFile.open(out).provenance.fingerprint == asked.fingerprint:
            return {}
    rows = {(name, mark): row for row, (name, (_, _, mark)) in enumerate(asked_places(splits))}
    known: dict[int, NDArray[np.float32]] = {}
    folders = {folder.resolve(): folder for folder in (out.parent, library) if folder}
    beside = [path for folder in folders.values() for path in sorted(folder.glob("*.h5")) if path != out]
    for path in (out, *beside):
        if len(known) == len(rows):
            break
        if path.name.endswith(".scatter.h5"):
            continue
        try:
            file = FeatureFile.open(path)
            if file.provenance.imported or _differing(file.provenance, asked):
                continue
            for name in file.splits:
                split = file.read(name)
                for image, feature in zip(zip(split.images, split.marks, strict=False), split.features, strict=False):
                    if image in rows:
                        known.setdefault(rows[image], feature)
        except FsbenchError:  # a damaged file has nothing to offer
            continue
    return known


def asked_places(splits: Sequence[ImageSplit]) -> list[tuple[str, Place]]:
    """The name of every image, and where it belongs."""
    return [
        (split.image_name(i), (split.name, split.class_names[split.labels[i]], split.image_mark(i)))
        for split in splits
        for i in range(len(split))
    ]


def _stored_places(file: FeatureFile) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for name, summary in file.splits.items():
        images, marks = file.images(name)
        labels = np.repeat(summary.class_names, np.diff(summary.offsets)).tolist()
        known: Sequence[int | None] = marks or [None] * len(images)
        for image, label, mark in zip(images, labels, known, strict=False):
            places[image] = name, label, mark
    return places


def differences(file: FeatureFile, asked: Provenance, splits: Sequence[ImageSplit]) -> list[str]:
    """How a finished file differs from what is asked for, in words; empty if it merely lacks images or classes."""
    found = [f"{aspect}: {there} there, {here} asked for" for aspect, there, here in _differing(file.provenance, asked)]
    stored, wanted = _stored_places(file), dict(asked_places(splits))
    if not stored:
        return found or ["images: those of the file have no names"]
    gone = [name for name in stored if name not in wanted]
    both = [name for name in stored if name in wanted]
    moved = {stored[name][:2]: wanted[name][:2] for name in both if stored[name][:2] != wanted[name][:2]}
    changed = [name for name in both if stored[name][2] not in {None, wanted[name][2]}]
    if moved:
        texts = (f"{label} ({split} → {_other(label, *to)})" for (split, label), to in moved.items())
        found.append(f"{counted(len(moved), 'class moves', 'classes move')}: {first_names(texts)}")
    if gone:
        found.append(f"{counted(len(gone), 'image', 'images')} of the file not asked for: {first_names(gone)}")
    if changed:
        found.append(f"{counted(len(changed), 'image has', 'images have')} changed: {first_names(changed)}")
    unsure = any(mark is None for *_, mark in stored.values())
    return found or (["images: the file does not say which ones it was made of"] if unsure else [])


def _other(label: str, split: str, name: str) -> str:
    return split if label == name else f"{name} of {split}"


def _differing(stored: Provenance, asked: Provenance) -> list[tuple[str, str, str]]:
    """What determines a feature beside its image, where two origins differ: the aspect, and both values in words."""
    mine, theirs = _aspects(stored), _aspects(asked)
    if stored.weights_sha256 and stored.weights_sha256 == asked.weights_sha256:
        mine["weights"] = theirs["weights"]  # the same file under two names
    if not stored.architecture:  # not recorded by earlier versions
        mine["network"] = theirs["network"]
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    return [(name, mine.get(name) or "none", theirs.get(name) or "none") for name in names]


def _aspects(made: Provenance) -> dict[str, str]:
    try:
        transform: dict[str, Any] = json.loads(made.transform or "{}")
    except ValueError:
        transform = {"": made.transform}
    return {
        "data set": made.dataset,
        "backbone": made.backbone,
        "family": made.family,
        "weights": made.named_weights,
        "network": made.architecture,
        **{f"transform {name}".strip(): str(value) for name, value in transform.items()},
        "crops": str(made.crops),
        "precision": made.precision,
    }
