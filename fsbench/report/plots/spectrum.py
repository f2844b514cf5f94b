"""The spectrum of the base classes' scatter, and what the clamp of BAVARDAGE makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics
from fsbench.report.plots.style import Paper, Width, in_powers, line_look, short_name

_ROUNDING = 1e-12  # eigenvalues below this share of the largest are zero but for rounding
_CAPTION = (
    "Spread: how far images of one class differ in each direction of the features, the widest first; the dot marks "
    "how many directions matter (effective rank). Factors: narrow directions tell classes apart and are stretched; "
    "those with hardly any spread are mostly noise, so none is stretched by more than σ (faint: without this limit)."
)


class Spectrum(NamedTuple):
    """The base statistics of one feature file, and the largest scaling σ that BAVARDAGE admits there."""

    name: str
    base: BaseStatistics
    sigma: float

    def label(self) -> str:
        """A line of the legend."""
        directions = len(self.base.eigenvalues)
        clamped = round(self.base.share_clamped(self.sigma) * directions)  # those whose λ^(-1/2) exceeds σ
        label = f"{short_name(self.name, 60)}: effective rank {self.base.effective_rank:.1f} of {directions}"
        return f"{label}; σ = {self.sigma:g} clamps {clamped} directions"


def draw_spectra(spectra: list[Spectrum], width: Width = "page") -> Figure:
    """Eigenvalues of S_w, and next to them (in a column: below) the scalings with their clamp; one line per file."""
    for name in (spectrum.name for spectrum in spectra if not float(spectrum.base.eigenvalues[0]) > 0):
        raise FsbenchError(
            f"The base classes of {name} have no scatter: the images of a class do not differ.",
            "Base classes need several different images each.",
        )
    paper = Paper(width)
    shape = (1, 2) if width == "page" else (2, 1)
    labels = [paper.wrapped(spectrum.label(), paper.inches - 0.5) for spectrum in spectra]
    note = paper.wrapped(_CAPTION)
    lines = sum(1 + text.count("\n") for text in (*labels, note))
    with paper.figure(2.5 * shape[0] + paper.line * lines) as figure:
        left, right = figure.subplots(*shape)
        for number, (spectrum, label) in enumerate(zip(spectra, labels, strict=True)):
            values, rank, look = spectrum.base.eigenvalues.numpy(), spectrum.base.effective_rank, line_look(number)
            values = np.where(values > _ROUNDING * values[0], values, 0.0)
            positive = np.flatnonzero(values)
            left.plot(positive + 1, values[positive], label=label, **look)
            height = np.exp(np.interp(rank, positive + 1, np.log(values[positive])))
            left.plot(rank, height, marker="o", color=look["color"], markeredgecolor="black", markersize=4)
            scaling = 1 / np.sqrt(values, out=np.full_like(values, np.nan), where=values > 0)
            directions = np.arange(1, len(values) + 1)
            right.plot(directions, scaling, alpha=0.35, **look)
            right.plot(directions, np.fmin(scaling, spectrum.sigma), **look)
            if np.isfinite(spectrum.sigma):
                right.axhline(spectrum.sigma, color=look["color"], linewidth=0.7, linestyle=":")
                right.annotate(f"σ = {spectrum.sigma:g}", (1, spectrum.sigma), (0, 3), textcoords="offset points")
        left.set(xlabel="direction i", ylabel="eigenvalue λ of S_w")
        left.set_title("Spread within a class")
        right.set(xlabel="direction i", ylabel="scaling min(1/√λ, σ)")
        right.set_title("Factors of BAVARDAGE (Eq. 7)")
        for axes in (left, right):
            in_powers(axes)
        legend: dict[str, Any] = {"title": note, "alignment": "left", "frameon": False}
        figure.legend(handles=left.get_lines()[::2], loc="outside lower left", **legend)
    return figure
