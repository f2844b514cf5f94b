"""Parameters of Soft-KMEANS and BAVARDAGE per data set and setting, and the defaults for everything else.

The presets are those of the article's appendix on tuning, in its units. They belong to their data sets: on other
features they can end far below Soft-KMEANS. The scale-free defaults do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fsbench.data.catalog import benchmark_of

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

TAU = 0.3
SIGMA = 20.0
T_KM = {"balanced": 10.0, "unbalanced": 50.0}


def preset_of(context: Context) -> Preset | None:
    """The article's preset for the context's data set and setting, if it has one."""
    presets = PRESETS.get(benchmark_of(context.dataset))
    return presets[_setting(context)] if presets else None


def temperature_of(context: Context) -> float:
    """T_km for the context."""
    preset = preset_of(context)
    return float(preset.t_km) if preset else T_KM[_setting(context)]


def _setting(context: Context) -> str:
    return "balanced" if context.balanced else "unbalanced"
