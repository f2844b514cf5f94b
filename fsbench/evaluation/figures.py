"""The curves of the article's figures 3, 4 and 5, on the user's own features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.evaluation.axes import Axis
from fsbench.evaluation.compare import parse_methods
from fsbench.evaluation.sweep import Plan, plan_sweep
from fsbench.methods.base import Context
from fsbench.methods.presets import preset_of
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, FIVE = TaskProtocol(shots=1), TaskProtocol(shots=5)


def figure(number: int, dataset: str) -> list[Plan]:
    """The panels of a figure, for features of a data set."""
    if number not in FIGURES:
        raise FsbenchError(f"There is no sweep for figure {number}.", f"Figures: {', '.join(map(str, FIGURES))}.")
    return FIGURES[number](dataset)


def _prior_against_imbalance(dataset: str) -> list[Plan]:
    """Fig. 3: the prior α_o against the imbalance α* of the tasks."""
    axes = [Axis("prior_alpha", (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)), Axis("alpha", (1.0, 2.0, 4.0))]
    return plan_sweep(parse_methods("bavardage"), axes, ["novel"], [ONE, FIVE], {})


def _settings(dataset: str) -> list[Plan]:
    """Fig. 4: shots, and queries."""
    methods = parse_methods("soft-kmeans,bavardage")
    return [
        *plan_sweep(methods, [Axis("shots", (1, 5, 10, 20))], ["novel"], [ONE], {}),
        *plan_sweep(methods, [Axis("queries", (20, 50, 75, 100, 150))], ["novel"], [ONE], {}),
    ]


def _tuning(dataset: str) -> list[Plan]:
    """Fig. 5: T_km, T_vb, s_max and β_o on val and novel.

    Departs from Fig. 5: where the article has no preset, its T_vb and s_max mean nothing, so τ and σ vary instead.
    """
    units = [
        Axis("t_vb", (30.0, 40.0, 50.0, 60.0, 80.0, 100.0)),
        Axis("s_max", (0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0)),
    ]
    if preset_of(Context(balanced=False, dataset=dataset)) is None:
        units = [
            Axis("tau", (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)),
            Axis("sigma", (5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 80.0, 120.0)),
        ]
    axes = [
        Axis("t_km", (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0)),
        *units,
        Axis("beta", (0.0, 2.0, 5.0, 10.0, 15.0, 20.0)),
    ]
    methods = parse_methods("bavardage")
    return [
        plan
        for protocol in (ONE, FIVE)
        for axis in axes
        for plan in plan_sweep(methods, [axis], ["val", "novel"], [protocol], {})
    ]


FIGURES: dict[int, Callable[[str], list[Plan]]] = {3: _prior_against_imbalance, 4: _settings, 5: _tuning}
