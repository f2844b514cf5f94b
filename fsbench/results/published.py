"""Published numbers of the BAVARDAGE article and its sources, and the runs to compare them with.

`published.csv` has one row per number. Its column `backbone` is the published name of a family (see
`fsbench.backbones.families`), with a star where features are averaged over random crops. Every row can be matched by
some run of fsbench.

`published_text.csv` has those of methods with text, by data set, backbone and protocol as users name them. Most of that
literature prints means over eleven data sets, which belong to no single run: docs/text.md has them.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from fsbench.backbones.families import FAMILIES, first_family
from fsbench.tasks.protocol import ALL

if TYPE_CHECKING:
    from fsbench.results.comparison import Column
    from fsbench.results.record import Record

PUBLISHED_ON = {  # data sets of the catalog, with the very splits that were used
    "mini": "mini-imagenet", "tiered": "tiered-imagenet", "cub": "cub", "fc100": "fc100", "cifarfs": "cifar-fs",
}  # fmt: skip
_AXES = {
    "prior_alpha": "alpha_o", "shots": "L", "queries": "Q", "t_km": "T_km", "t_vb": "T_vb", "s_max": "s_max",
    "beta": "beta_o",
}  # fmt: skip
CROPS = 30  # behind the numbers with a star


@dataclass(frozen=True)
class Published:
    """One published accuracy in percent; notes say why it may not compare like for like, and what other sources say."""

    accuracy: float
    ci95: float | None
    source: str
    notes: tuple[str, ...] = ()


Row = dict[str, str]


def _with_text(record: Record) -> Published | None:
    """The same for features with text."""
    protocol = record.run.protocol
    wanted = {
        "dataset": record.dataset, "backbone": record.backbone, "protocol": protocol.name,
        "classes": str(len(record.class_names)), "present": str(protocol.present or ""), "shots": str(protocol.shots),
    }  # fmt: skip
    rows = [row for row in text_rows() if row["method"] in record.method.published_as and wanted.items() <= row.items()]
    usual = protocol.ways in (ALL, len(record.class_names)) and protocol.queries == protocol.preset.queries
    if not rows or not usual or record.run.split != "novel":
        return None
    note = f"{rows[0]['method']}: {rows[0]['note']}" if rows[0]["note"] else ""
    return Published(float(rows[0]["accuracy"]), None, rows[0]["source"], tuple(filter(None, [note])))


@cache
def text_rows() -> tuple[Row, ...]:
    """All rows of methods with text."""
    with resources.files("fsbench.results").joinpath("published_text.csv").open(encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))


@cache
def published_rows() -> tuple[Row, ...]:
    """All rows, the article's own tables first, and of those the one that gives intervals."""
    with resources.files("fsbench.results").joinpath("published.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    rank = {"table3": 0, "table1": 1, "table2": 2}
    return tuple(sorted(rows, key=lambda row: rank.get(row["table"], 3)))


def published(record: Record) -> Published | None:
    """The published accuracy to compare a run with, or None."""
    if record.provenance.text_encoder:
        return _with_text(record)
    if record.run.split != "novel" or record.dataset not in PUBLISHED_ON or _other_base(record):
        return None
    rows = _matching(record.method.published_as, {**_setting(record), "param": "", "split": "test"})
    overlap = record.run.protocol.preset.overlap
    rows = [row for row in rows if _of_veilleux(row) or not overlap]
    if not rows:
        return None
    first, *others = rows
    notes = ["" if overlap else _note(first), *map(_other_note, others)]
    if not record.provenance.family and (family := first_family(record.backbone)):
        unknown = "the family of the network is not known; the published numbers are of"
        notes.append(f"{record.dataset} {record.backbone}: {unknown} {family.name}")
    accuracy, ci95 = float(first["accuracy"]), float(first["ci95"]) if first["ci95"] else None
    return Published(accuracy, ci95, f"{first['source']} {first['table']}", tuple(note for note in notes if note))


def _other_base(record: Record) -> bool:
    """Whether base classes of another data set, or the images of each task, take the place of the usual ones."""
    return bool(record.base_dataset) or record.run.base == "pool"


def published_curve(record: Record, axis: str) -> list[tuple[float, float]]:
    """The published points (value of the axis, accuracy) of the curve that a run is a point of; empty if none."""
    protocol, origins = record.run.protocol, record.origins
    given = [name for name, one in origins.params.items() if one in ("given", "tuned") and name != origins.variant]
    unlike = record.network or record.images or not record.provenance.family or protocol.preset.overlap
    if unlike or _other_base(record) or len(given) > (not hasattr(protocol, axis)):  # more than the axis itself
        return []
    split = "test" if record.run.split == "novel" else record.run.split
    wanted = {**_setting(record), "param": _AXES.get(axis, "none"), "split": split}
    wanted.pop(axis, None)
    rows = _matching(record.method.published_as, wanted)
    return sorted((float(row["param_value"]), float(row["accuracy"])) for row in rows)


def article_number(dataset: str, backbone: str, method: str, column: Column) -> float | None:
    """The accuracy that a table of the article has in one cell."""
    wanted = {
        "source": "arXiv:2209.08527", "dataset": PUBLISHED_ON.get(dataset, "none"), "backbone": backbone, "param": "",
        "split": "test", "setting": "balanced" if column.balanced else "dirichlet", "shots": str(column.shots),
    }  # fmt: skip
    rows = [row for row in _matching([method], wanted) if row["table"].startswith("table")]
    return float(rows[0]["accuracy"]) if rows else None


def _matching(names: Collection[str], wanted: Row) -> list[Row]:
    return [row for row in published_rows() if row["method"] in names and wanted.items() <= row.items()]


def _setting(record: Record) -> Row:
    """The columns of the rows that belong to the features and the protocol of a run."""
    protocol, made = record.run.protocol, record.provenance
    # Features whose family is not known are looked up by the name of the backbone.
    family = FAMILIES.get(made.family) if made.family else first_family(made.backbone)
    usual = protocol.ways == 5 and protocol.support == "equal" and protocol.present is None
    name = family.published if family and usual and not (protocol.unknown or protocol.pooled) else ""
    return {
        "dataset": PUBLISHED_ON.get(record.dataset, "none"),
        "backbone": (name or "none") + {1: "", CROPS: "*"}.get(made.crops, " with other crops"),
        "setting": "balanced" if protocol.alpha is None else "dirichlet",
        "alpha": "" if protocol.alpha is None else f"{protocol.alpha:g}",
        "shots": str(protocol.shots),
        "queries": str(protocol.queries),
    }


def _of_veilleux(row: Row) -> bool:
    """Whether a number was measured by the protocol `veilleux`, as were those that Table 1 copies."""
    copied = row["table"] == "table1" and row["method"] not in {"BAVARDAGE", "Soft-KMEANS"}
    return copied or row["source"].startswith("oveilleux")


def _note(row: Row) -> str:
    """What is known against a row itself, beside tasks whose support and queries do not overlap."""
    if _of_veilleux(row):
        return f"{row['method']}: measured by Veilleux et al., whose sampler lets support and queries overlap"
    if row["dataset"] == "cub" and row["backbone"].startswith("RN12"):
        return "cub RN12: the article does not say which split of CUB its network uses; FEAT's is likely"
    key = (row["method"], row["dataset"], row["backbone"], row["setting"], row["shots"])
    if key == ("Soft-KMEANS", "mini-imagenet", "WRN", "dirichlet", "5"):
        return "Soft-KMEANS, mini WRN unbalanced 5-shot: 82.41 in the article's Table 3, but 82.91 in its Fig. 4"
    return ""


def _other_note(row: Row) -> str:
    """What another source prints for the same run."""
    setting = "balanced" if row["setting"] == "balanced" else "unbalanced"
    return (
        f"{row['method']}, {row['dataset']} {row['backbone']} {setting} {row['shots']}-shot: "
        f"{row['accuracy']} in the {row['table']} of {row['source']}"
    )
