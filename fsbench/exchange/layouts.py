"""What the arrays in a file mean: rows with labels, vectors by class, or classes × images × features.

Rows with labels stand under names that say what they are: npz, dicts of tensors, TIM's pickles, S2M2's HDF5. A name
may carry its split (`novel_features`, `X_train`). Vectors by class are the pickles of S2M2, PT-MAP, SimpleShot and
LaplacianShot; EASY stacks all classes in one tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbench.data.catalog import DATASETS, SPLIT_WORDS, SPLITS, DatasetInfo, dataset_info
from fsbench.errors import FsbenchError
from fsbench.exchange.containers import open_file, reading, text_of

_EXPECTED = (
    "Recognised are: rows with labels (npz, dicts of tensors, S2M2's HDF5), vectors by class (pickles of S2M2, "
    "PT-MAP, SimpleShot), and tensors (classes, images, D) as EASY's."
)
_WORDS = {
    "features": "features feature feats feat all_feats concat_features embeddings embedding x",
    "labels": "labels label all_labels concat_labels targets target y",
    "class_names": "class_names classes names",
    "images": "images image_names filenames paths",
    "count": "count",
    "text": "text text_features text_weights zeroshot_weights prototypes",
    "templates": "templates",
}
_ROLES = {word: role for role, words in _WORDS.items() for word in words.split()}
_ROUND_OFF = 1e-4
Fields = dict[tuple[str, str], "NDArray[Any]"]


@dataclass(frozen=True)
class Part:
    """Rows of one split."""

    split: str  # `base`, `val` or `novel`; empty if the file does not say
    features: NDArray[Any]  # (M, D)
    labels: NDArray[Any]  # (M,) whole numbers or names
    class_names: tuple[str, ...] = ()  # of the classes 0, 1, …, where the file gives them
    images: tuple[str, ...] = ()  # M names, or none


@dataclass(frozen=True)
class Recognised:
    """The rows that a layout recognises in a file, and remarks on them."""

    parts: Sequence[Part]
    remarks: tuple[str, ...] = ()


def read_file(path: Path, dataset: str, split: str = "") -> tuple[str, Recognised]:
    """What a file is, in words, and the rows in it.

    The data set tells how stacked classes divide; `split` is the user's word on which split the file holds, if any.
    """
    container, content = open_file(path)
    with reading(path, container):
        for name, read in LAYOUTS.items():
            if (recognised := read(content, dataset, split)) is not None:
                return f"{container.partition(' ')[2]}: {name}", recognised
        listed = ", ".join(str(text_of(key) or key) for key in content) if isinstance(content, Mapping) else ""
        holds = f"it holds {listed[:200] or f'a {type(content).__name__}'}"
        raise FsbenchError(f"{path} is {container} without features that fsbench recognises; {holds}.", _EXPECTED)


def _is_table(value: object) -> bool:
    """Whether a value is an array of real numbers with two axes."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f"


def _rows(content: object, dataset: str, split: str) -> Recognised | None:
    """The rows of every split that the names speak of, if there are features under a known name."""
    arrays, others = _fields(content)
    if not any(role == "features" and array.ndim == 2 for (_, role), array in arrays.items()):
        return None
    remarks = [f"left out, as no features or labels: {', '.join(others[:5])}"] if others else []
    if any(role == "text" for _, role in arrays):
        remarks.append("its text prototypes are left out: give them as text=FILE")
    parts = []
    for name in dict.fromkeys(name for name, role in arrays if role in {"features", "labels"}):
        part, dropped = _part(name, {role: array for (split, role), array in arrays.items() if split == name})
        parts.append(part)
        remarks += [f"{dropped} rows of padding after the first {len(part.features)} are left out"] if dropped else []
    return Recognised(parts, tuple(remarks))


def _fields(content: object) -> tuple[Fields, list[str]]:
    """Arrays by split and role, and the names of those without a recognised role."""
    fields: Fields = {}
    others = []
    for word, value in content.items() if isinstance(content, Mapping) else ():
        key, array = text_of(word), value
        if isinstance(value, list) and all(isinstance(item, str | bytes) for item in value):
            array = np.array([text_of(item) for item in value], dtype=np.str_)
        if key is None or not isinstance(array, np.ndarray):
            continue
        meaning = _meaning(key)
        if meaning is None:
            others.append(key)
        elif meaning in fields:
            both = " ".join(meaning).strip()
            raise FsbenchError(f"Two arrays could be the {both}, one of them {key!r}.", "Keep one.")
        else:
            fields[meaning] = array
    return fields, others


def _meaning(key: str) -> tuple[str, str] | None:
    """The split, if any, and the role that a name stands for."""
    parts = re.split(r"[^a-z0-9]+", re.sub(r"meta[-_]?(?=tr|va|te)", "", key.lower()))
    splits = [part for part in parts if part in SPLIT_WORDS]
    role = _ROLES.get("_".join(part for part in parts if part not in SPLIT_WORDS))
    if role is None or len(splits) > 1:
        return None
    return SPLIT_WORDS[splits[0]] if splits else "", role


def _part(split: str, arrays: dict[str, NDArray[Any]]) -> tuple[Part, int]:
    """The rows of a split, and how many are left out: S2M2 pads its last batch with zeros and states the count."""
    features, labels = arrays.get("features"), arrays.get("labels")
    if features is None or labels is None:
        missing = "features" if features is None else "labels"
        raise FsbenchError(f"There are no {split} {missing}.".replace("  ", " "), _EXPECTED)
    if not _is_table(features):
        message = f"{split} features are {features.dtype} of shape {features.shape}, expected real numbers (M, D)."
        raise FsbenchError(message.lstrip(), "One row per image.")
    if labels.shape == (len(features), 1):
        labels = labels[:, 0]
    if labels.shape[:1] != features.shape[:1]:
        raise FsbenchError(f"There are {len(features)} rows of features, but labels of shape {labels.shape}.")
    names, images = _texts(arrays.get("class_names")), _texts(arrays.get("images"))
    count = arrays.get("count", np.array(len(features)))
    rows = int(count.item()) if count.size == 1 and count.dtype.kind in "iu" else -1
    if not 0 <= rows <= len(features):
        raise FsbenchError(f"The count is {count}, but there are {len(features)} rows.")
    return Part(split, features[:rows], labels[:rows], names, images[:rows]), len(features) - rows


def read_text(path: Path) -> tuple[str, NDArray[Any], tuple[str, ...], tuple[str, ...]]:
    """The text prototypes in a file, one per row or column: its kind in words, the table, class names, templates."""
    container, content = open_file(path)
    arrays = {role: array for (_, role), array in _fields(content)[0].items()}
    table = content if isinstance(content, np.ndarray) else arrays.get("text", arrays.get("features"))
    if table is None or not _is_table(table):
        message = f"{path} is {container} without a table of text prototypes, (classes, D) or (D, classes)."
        raise FsbenchError(message, "Save it with numpy.savez(FILE, text=…, class_names=…).")
    named = [_texts(arrays.get(role)) for role in ("class_names", "templates")]
    return f"{container.partition(' ')[2]}: text prototypes", table, named[0], named[1]


def _texts(array: NDArray[Any] | None) -> tuple[str, ...]:
    """The names in an array of strings, if it is one."""
    if array is None or array.ndim != 1 or array.dtype.kind not in "US":
        return ()
    return tuple(str(text_of(item)) for item in array.tolist())


def _by_class(content: object, dataset: str, split: str) -> Recognised | None:
    """All rows with the key of their class, from a dict of several tables or lists of vectors."""
    if not isinstance(content, Mapping) or len(content) < 2 or not all(map(_is_class, content.values())):
        return None
    rows = {key: list(value) for key, value in content.items()}
    if not any(rows.values()):
        return None
    empty = [str(text_of(key) or key) for key, vectors in rows.items() if not vectors]
    remarks = (f"classes without any vector are left out: {', '.join(empty[:5])}",) if empty else ()
    sizes = {vector.size: key for key, vectors in rows.items() for vector in vectors}
    if len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        message = f"Vectors differ in length: {first} in class {one}, {second} in class {other}."
        raise FsbenchError(message, "All must come from one backbone.")
    labels = np.repeat(_labels(list(rows)), [len(vectors) for vectors in rows.values()])
    features = np.stack([np.ravel(vector) for vectors in rows.values() for vector in vectors])
    return Recognised([Part("", features, labels)], remarks)


def _is_class(value: object) -> bool:
    return _is_table(value) or (isinstance(value, list) and all(map(_is_vector, value)))


def _is_vector(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size == max(value.shape, default=0)


def _labels(keys: list[Any]) -> NDArray[Any]:
    """Keys as whole numbers if all of them are, else as names."""
    if all(isinstance(key, int) and not isinstance(key, bool) and abs(key) < 1 << 62 for key in keys):
        return np.array(keys, dtype=np.int64)
    if all(isinstance(key, int | str | bytes) for key in keys):
        names = np.array([str(key) if (text := text_of(key)) is None else text for key in keys], dtype=np.str_)
        values, counts = np.unique(names, return_counts=True)
        if counts.max() > 1:
            same = f"Two classes have the same name, {values[counts.argmax()]}, once as a number."
            raise FsbenchError(same, "Keep one key for each class.")
        return names
    raise FsbenchError(f"A class is neither a number nor a name: {keys[0]!r}.")


def _simpleshot(content: object, dataset: str, split: str) -> Recognised | None:
    """The classes of a list of four, where they are third, or of two, where they are second; no means, no logits."""
    if not isinstance(content, list) or len(content) not in {2, 4}:
        return None
    return _by_class(content[len(content) // 2], dataset, split)


def _stacked(content: object, dataset: str, split: str) -> Recognised | None:
    """Rows without padding, cut into splits by the data set's numbers of classes, if one array is all there is."""
    tensor = next(iter(content.values())) if isinstance(content, Mapping) and len(content) == 1 else content
    if not isinstance(tensor, np.ndarray) or tensor.ndim != 3 or tensor.dtype.kind != "f" or not tensor.size:
        return None
    info = dataset_info(dataset) if dataset in DATASETS else None
    sizes = {name: len(info.splits[name]) for name in SPLITS} if info else {}
    if split:
        sizes = {split: len(tensor)}
    elif sum(sizes.values()) != len(tensor):
        known = " + ".join(map(str, sizes.values())) or "an unknown number"
        message = f"It holds {len(tensor)} classes in one tensor, but {dataset} has {known}."
        raise FsbenchError(message, "If all are of one split, say which: novel=FILE.")
    with np.errstate(all="ignore"):  # rows that are not finite are named later, with their class
        counts = np.array([_true_count(rows) for rows in tensor])
    parts, start = [], 0
    for name, classes in sizes.items():
        numbers = np.arange(start, start + classes)
        labels = np.repeat(numbers, counts[numbers])
        rows = np.concatenate([tensor[c, : counts[c]] for c in numbers])
        if len(rows):
            parts.append(Part(name, rows, labels))
        start += classes
    return Recognised(parts, tuple(_remarks(tensor.shape[1], counts, dataset, None if split else info)))


def _true_count(rows: NDArray[Any]) -> int:
    """Images of a class, without the repeats of its last image, or zeros, that fill it up."""
    filled = np.flatnonzero(rows.any(axis=1))
    if not len(filled):
        return 0
    rows = rows[: filled[-1] + 1].astype(np.float64)
    distances = np.linalg.norm(rows[:-1] - rows[-1], axis=1)
    others = np.flatnonzero(~(distances <= _ROUND_OFF * np.linalg.norm(rows[-1])))
    return int(others[-1]) + 2 if len(others) else 1


def _remarks(images: int, counts: NDArray[np.int64], dataset: str, info: DatasetInfo | None) -> list[str]:
    if (counts < images).any():
        rows = (images - counts).sum()
        return [f"{rows} rows that repeat the last image of their class, or are zero, are left out as padding"]
    short = sum(size < images for split in SPLITS for size in info.splits[split].values()) if info else 0
    if not short:
        return []
    return [
        f"{short} classes of {dataset} have fewer than {images} images, but no repeated rows were found: features "
        "of augmented samples (AS) look like that; their padding cannot be told from images and stays in"
    ]


# From the content, the name of the data set, and the split that the user states; None if it is another layout.
LAYOUTS: Mapping[str, Callable[[object, str, str], Recognised | None]] = {
    "rows with labels": _rows,
    "base mean and vectors by class (SimpleShot, LaplacianShot)": _simpleshot,
    "vectors by class": _by_class,
    "classes × images × features (EASY)": _stacked,
}
