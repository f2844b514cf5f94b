"""The spectrum of the base classes' scatter, and what the clamp of BAVARDAGE makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fsbench.errors import FsbenchError
from fsbench.report.plots.style import WIDTHS, Width, line_look, short_name, style_of, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.features.scatter import BaseStatistics

_ROUNDING = 1e-12  # eigenvalues below this share of the largest are zero but for rounding


@dataclass(frozen=True)
class Spectrum:
    """The base statistics of one feature file, and the largest scaling σ that BAVARDAGE admits there."""

    name: str
    base: BaseStatistics
    sigma: float

    def __post_init__(self) -> None:
        if not float(self.base.eigenvalues[0]) > 0:
            raise FsbenchError(
                f"The base classes of {self.name} have no scatter: the images of a class do not differ.",
                "Base classes need several different images each.",
            )

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """(D,) of S_w, in descending order; 0 where there is nothing but rounding."""
        values: NDArray[np.float64] = self.base.eigenvalues.numpy()
        return np.where(values > _ROUNDING * values[0], values, 0.0)


def draw_spectra(spectra: list[Spectrum], width: Width = "page") -> Figure:
    """Eigenvalues of S_w, and next to them (in a column: below) the scalings with their clamp; one line per file."""
    inches = WIDTHS[width]
    shape = (1, 2) if width == "page" else (2, 1)
    with mpl.rc_context(style_of(inches)):
        labels = sum(1 + wrapped(_label(spectrum), inches - 0.5).count("\n") for spectrum in spectra)
        figure = Figure(figsize=(inches, 2.5 * shape[0] + 0.15 * labels), layout="constrained")
        left, right = figure.subplots(*shape)
        for number, spectrum in enumerate(spectra):
            label = wrapped(_label(spectrum), inches - 0.5)
            _eigenvalues(left, spectrum, {**line_look(number), "label": label})
            _scalings(right, spectrum, line_look(number))
        left.set(yscale="log", xlabel="direction i", ylabel="eigenvalue λ")
        left.set_title("Scatter within base classes (dot: effective rank)")
        right.set(yscale="log", xlabel="direction i", ylabel="scaling min(1/√λ, σ)")
        right.set_title("Scalings of Eq. 7 (faint: without the clamp σ)")
        for axes in (left, right):
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
        figure.legend(handles=left.get_lines()[::2], loc="outside lower left", frameon=False)
    return figure


def _label(spectrum: Spectrum) -> str:
    """A line of the legend."""
    directions = len(spectrum.eigenvalues)
    clamped = round(spectrum.base.share_clamped(spectrum.sigma) * directions)  # those whose λ^(-1/2) exceeds σ
    label = f"{short_name(spectrum.name, 60)}: effective rank {spectrum.base.effective_rank:.1f} of {directions}"
    return f"{label}; σ = {spectrum.sigma:g} clamps {clamped} directions"


def _eigenvalues(axes: Axes, spectrum: Spectrum, look: dict[str, Any]) -> None:
    """The curve, and a dot on it where the effective rank is."""
    values = spectrum.eigenvalues
    shown = np.flatnonzero(values)
    rank = spectrum.base.effective_rank
    height = np.exp(np.interp(rank, shown + 1, np.log(values[shown])))
    axes.plot(shown + 1, values[shown], **look)
    axes.plot(rank, height, marker="o", color=look["color"], markeredgecolor="black", markersize=4)


def _scalings(axes: Axes, spectrum: Spectrum, look: dict[str, Any]) -> None:
    """The scalings with and without clamp, and the clamp itself."""
    values = spectrum.eigenvalues
    scaling = 1 / np.sqrt(values, out=np.full_like(values, np.nan), where=values > 0)
    directions = np.arange(1, len(values) + 1)
    axes.plot(directions, scaling, alpha=0.35, **look)
    axes.plot(directions, np.fmin(scaling, spectrum.sigma), **look)
    if np.isfinite(spectrum.sigma):
        axes.axhline(spectrum.sigma, color=look["color"], linewidth=0.7, linestyle=":")
        text = f"σ = {spectrum.sigma:g}"
        axes.annotate(text, (1, spectrum.sigma), (0, 3), textcoords="offset points")
