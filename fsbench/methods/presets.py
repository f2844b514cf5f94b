"""Parameters of Soft-KMEANS and BAVARDAGE: the defaults, and the article's presets, which are used only on request.

The presets are those of the article's appendix on tuning, in its units. They belong to the article's networks: on
other features of the same images they can end far below Soft-KMEANS. The scale-free defaults do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fsbench.data.catalog import benchmark_of
from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from fsbench.methods.base import Context


class Preset(NamedTuple):
    """T_km, T_vb and s_max in the article's units."""

    t_km: float
    t_vb: float
    s_max: float


_MINI = {"balanced": Preset(10, 50, 2), "unbalanced": Preset(50, 50, 1)}
PRESETS = {
    "mini": _MINI,
    "fc100": _MINI,
    "cifarfs": _MINI,
    "tiered": {"balanced": Preset(10, 100, 2), "unbalanced": Preset(100, 100, 1)},
    "cub": {"balanced": Preset(10, 4, 5), "unbalanced": Preset(10, 4, 5)},
}

ARTICLE_UNITS = {"t_vb": "tau", "s_max": "sigma"}  # options in the article's units, and the parameters they set
CHOICES = ("", "article")  # what `--preset` takes; empty is the scale-free defaults
TAU = 0.3
SIGMA = 20.0
T_KM = {"balanced": 10.0, "unbalanced": 50.0}


def benchmark_with_preset(dataset: str) -> str:
    """The benchmark that a data set is a split of, if the article has a preset for it; else an error."""
    benchmark = benchmark_of(dataset)
    if benchmark not in PRESETS:
        raise FsbenchError(
            f"The article has no preset for {dataset or 'a data set without a name'}.",
            f"Use the defaults, which need none. Presets exist for {', '.join(PRESETS)}.",
        )
    return benchmark


def preset_of(context: Context) -> Preset | None:
    """The preset that the context asks for, in its setting; None if it asks for none."""
    if not context.preset:
        return None
    if context.preset not in PRESETS:
        raise unknown_name("preset", context.preset, PRESETS)
    return PRESETS[context.preset][_setting(context)]


def temperature_of(context: Context) -> float:
    """T_km for the context."""
    preset = preset_of(context)
    return float(preset.t_km) if preset else T_KM[_setting(context)]


def _setting(context: Context) -> str:
    return "balanced" if context.balanced else "unbalanced"
