"""Published numbers: those of the BAVARDAGE article and of the repositories it draws on, with their sources."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from fsbench.data.catalog import benchmark_of
from fsbench.methods.registry import installed_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsbench.tasks.protocol import TaskProtocol


_DATASETS = {
    "mini": "mini-imagenet",
    "tiered": "tiered-imagenet",
    "cub": "cub",
    "fc100": "fc100",
    "cifarfs": "cifar-fs",
}
_BACKBONES = {"rn12": "RN12", "rn18": "RN18", "wrn": "WRN"}
_AXES = {
    "prior_alpha": "alpha_o", "shots": "L", "queries": "Q", "t_km": "T_km", "t_vb": "T_vb", "s_max": "s_max",
    "beta": "beta_o",
}  # fmt: skip
ONLY_PUBLISHED = ("MAML", "Versa")
_COPIED = "Table 1 copies it from Veilleux et al., whose sampler lets support and queries overlap"
_NETWORK = "adapts or trains the network itself, so it has no counterpart on frozen features"


@dataclass(frozen=True)
class Published:
    """One published accuracy.

    Attributes:
        accuracy: In percent.
        ci95: Half-width of its interval, where one is given.
        source: Article or repository, and table.
        note: Why it may not compare like for like; empty if nothing is known.
    """

    accuracy: float
    ci95: float | None
    source: str
    note: str = ""


@cache
def _rows() -> tuple[dict[str, str], ...]:
    found: list[dict[str, str]] = []
    for name in ("published.csv", "published_other.csv"):
        with resources.files("fsbench.results").joinpath(name).open(encoding="utf-8") as stream:
            found += csv.DictReader(stream)
    # The article's own tables first, and of those the one that gives intervals.
    rank = {"table3": 0, "table1": 1, "table2": 2}
    return tuple(sorted(found, key=lambda row: rank.get(row["table"], 3)))


def published(
    method: str,
    dataset: str,
    backbone: str,
    *,
    balanced: bool,
    alpha: float | None,
    shots: int,
    queries: int,
    crops: int,
    params: Mapping[str, Any] | None = None,
) -> Published | None:
    """The published accuracy of a method in a setting, or None. A method may also be a published name such as MAML."""
    names = [method] if method in ONLY_PUBLISHED else _names(method, params or {})
    wanted = {
        **_features(dataset, backbone, crops),
        **_setting(alpha if not balanced else None),
        "shots": str(shots),
        "queries": str(queries),
        "param": "",
        "split": "test",
    }
    for row in _rows():
        if row["method"] in names and all(row[key] == value for key, value in wanted.items()):
            ci95 = float(row["ci95"]) if row["ci95"] else None
            return Published(float(row["accuracy"]), ci95, f"{row['source']} {row['table']}", _note(row))
    return None


def published_curve(
    method: str, dataset: str, backbone: str, axis: str, split: str, protocol: TaskProtocol, crops: int
) -> list[tuple[float, float]]:
    """The published points (value of the axis, accuracy) of a curve; empty if there is none."""
    wanted = {
        **_features(dataset, backbone, crops),
        **_setting(protocol.alpha),
        "shots": str(protocol.shots),
        "queries": str(protocol.queries),
        "param": _AXES.get(axis, "none"),
        "split": "test" if split == "novel" else split,
    }
    wanted.pop(axis, None)
    names = _names(method, {}) if protocol.ways == 5 else []
    rows = [row for row in _rows() if row["method"] in names and all(row[key] == wanted[key] for key in wanted)]
    return sorted((float(row["param_value"]), float(row["accuracy"])) for row in rows)


def _names(method: str, params: Mapping[str, Any]) -> list[str]:
    """The names that published tables give to a method with some parameters, the others having their defaults."""
    found = installed_class(method)
    if found is None:
        return []
    return [
        name
        for name, needed in found.info.published.items()
        if all(params.get(key, getattr(found, key)) == value for key, value in needed.items())
    ]


def _features(dataset: str, backbone: str, crops: int) -> dict[str, str]:
    return {
        "dataset": _DATASETS.get(benchmark_of(dataset), "none"),
        "backbone": _BACKBONES.get(backbone, "none") + ("*" if crops > 1 else ""),
    }


def _setting(alpha: float | None) -> dict[str, str]:
    balanced = alpha is None
    return {"setting": "balanced" if balanced else "dirichlet", "alpha": "" if balanced else f"{alpha:g}"}


def _note(row: dict[str, str]) -> str:
    if row["method"] in {*ONLY_PUBLISHED, "Entropy-min"}:
        return f"{row['method']}: {_NETWORK}"
    if row["table"] == "table1" and row["method"] not in {"BAVARDAGE", "Soft-KMEANS"}:
        return f"{row['method']}: {_COPIED}"
    key = (row["method"], row["dataset"], row["backbone"], row["setting"], row["shots"])
    if key == ("Soft-KMEANS", "mini-imagenet", "WRN", "dirichlet", "5"):
        return "Soft-KMEANS, mini WRN unbalanced 5-shot: 82.41 in the article's Table 3, but 82.91 in its Fig. 4"
    return ""
