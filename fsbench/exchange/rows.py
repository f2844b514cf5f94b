"""Rows with labels under names that say what they are: npz and dicts of tensors, TIM's pickles, S2M2's HDF5.

A name may carry its split (`novel_features`, `X_train`), or lie in a dict or group of that name (`novel/features`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.data.catalog import SPLIT_WORDS, canonical_split
from fsbench.errors import FsbenchError
from fsbench.exchange.containers import Layout, Part, Recognised, is_table, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_WORDS = {
    "features": "features feature feats feat all_feats concat_features embeddings embedding x",
    "labels": "labels label all_labels concat_labels targets target y",
    "class_names": "class_names classes names",
    "images": "images image_names filenames paths",
    "count": "count",
}
_ROLES = {word: role for role, words in _WORDS.items() for word in words.split()}
Fields = dict[tuple[str, str], "NDArray[Any]"]


def _recognise(content: object) -> bool:
    """Whether there are features under a known name, or a single array, or a pair of features and labels."""
    if isinstance(content, np.ndarray):
        return is_table(content) or (content.ndim == 1 and content.dtype.kind in "iuUS")
    if isinstance(content, list) and len(content) == 2:
        return is_table(content[0]) and isinstance(content[1], np.ndarray) and content[1].ndim == 1
    return any(role == "features" and array.ndim == 2 for (_, role), array in _fields(content)[0].items())


def _read(content: Any, dataset: str, split: str) -> Recognised:
    """The rows of every split that the names speak of."""
    others: list[str] = []
    arrays: Fields
    if isinstance(content, np.ndarray):
        arrays = {("", "labels" if content.ndim == 1 else "features"): content}
    elif isinstance(content, list):
        arrays = {("", "features"): content[0], ("", "labels"): content[1]}
    else:
        arrays, others = _fields(content)
    parts: list[Part] = []
    remarks = [f"left out, as no features or labels: {', '.join(others[:5])}"] if others else []
    for name in dict.fromkeys(name for name, _ in arrays):
        part, remark = _part(name, {role: array for (split, role), array in arrays.items() if split == name})
        parts += part
        remarks += remark
    return Recognised(parts, tuple(remarks))


def _fields(content: object) -> tuple[Fields, list[str]]:
    """Arrays by split and role, and the names of those without a recognised role."""
    fields: Fields = {}
    others = []
    for key, array in _flat(content):
        meaning = _meaning(key)
        if meaning is None:
            others.append(key)
        elif meaning in fields:
            both = " ".join(meaning).strip()
            raise FsbenchError(f"Two arrays could be the {both}, one of them {key!r}.", "Keep one.")
        else:
            fields[meaning] = array
    return fields, others


def _flat(content: object, before: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays by name, those of dicts inside the first one included; lists of names become arrays."""
    for key, value in content.items() if isinstance(content, Mapping) else ():
        name = text_of(key)
        if name is None:
            continue
        if isinstance(value, Mapping) and not before:
            yield from _flat(value, f"{name}/")
        elif isinstance(value, np.ndarray):
            yield before + name, value
        elif isinstance(value, list) and value and all(isinstance(item, str | bytes) for item in value):
            yield before + name, np.array([text_of(item) for item in value], dtype=np.str_)


def _meaning(key: str) -> tuple[str, str] | None:
    """The split, if any, and the role that a name stands for."""
    parts = re.split(r"[^a-z0-9]+", re.sub(r"meta[-_]?(?=tr|va|te)", "", key.lower()))
    splits = [part for part in parts if part in SPLIT_WORDS]
    role = _ROLES.get("_".join(part for part in parts if part not in SPLIT_WORDS))
    if role is None or len(splits) > 1:
        return None
    return canonical_split(splits[0]) if splits else "", role


def _part(split: str, arrays: dict[str, NDArray[Any]]) -> tuple[list[Part], list[str]]:
    features, labels = arrays.get("features"), arrays.get("labels")
    if features is None and labels is None:
        return [], []
    if features is not None and not is_table(features):
        raise FsbenchError(
            f"{split} features are {features.dtype} of shape {features.shape}, expected real numbers (M, D).".lstrip(),
            "One row per image.",
        )
    if labels is not None and features is not None and labels.shape == (len(features), 1):
        labels = labels[:, 0]
    names, images = _texts(arrays.get("class_names")), _texts(arrays.get("images"))
    remarks = []
    if "count" in arrays and features is not None and labels is not None:
        # S2M2 fills its last batch with zeros and says how many rows are real.
        count = arrays["count"]
        rows = int(count.item()) if count.size == 1 and count.dtype.kind in "iu" else -1
        if not 0 < rows <= len(features):
            raise FsbenchError(f"The count is {count}, but there are {len(features)} rows.")
        if rows < len(features):
            remarks.append(f"{len(features) - rows} rows of padding after the first {rows} are left out")
        features, labels, images = features[:rows], labels[:rows], images[:rows]
    return [Part(split, features, labels, names, images)], remarks


def _texts(array: NDArray[Any] | None) -> tuple[str, ...]:
    """The names in an array of strings, if it is one."""
    if array is None or array.ndim != 1 or array.dtype.kind not in "US":
        return ()
    return tuple(str(text_of(item)) for item in array.tolist())


ROWS = Layout("rows with labels", _recognise, _read)
