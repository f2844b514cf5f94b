"""Figures of features: what is drawn where, and that the same figure is the same file."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.report.plots.studies import Spectrum, draw_spectra
from fsbench.report.plots.style import line_look, save, short_name
from tests.synthetic import Features, make_features


def test_any_name_can_be_drawn_and_the_same_figure_is_the_same_file(features: Features, tmp_path: Path) -> None:
    assert len({tuple(line_look(number).values()) for number in range(32)}) == 32
    assert short_name("a" * 20 + "b" * 20) == "a" * 11 + "…" + "b" * 12
    names = ("_漢字", "$formula$", "a\\b ^_{")
    for file in ("spectrum.svg", "spectrum.png", "spectrum.PDF"):
        for copy in ("one", "other"):
            figure = draw_spectra([Spectrum(name, features.statistics, 20.0) for name in names])
            save(figure, tmp_path / f"{copy}-{file}")
        assert (tmp_path / f"one-{file}").read_bytes() == (tmp_path / f"other-{file}").read_bytes()
    assert all(f"<!-- {name}: " in (tmp_path / "one-spectrum.svg").read_text() for name in names)


def test_spectrum_draws_eigenvalues_and_clamped_scalings(features: Features) -> None:
    base = features.statistics
    sigma = float(base.eigenvalues[30] ** -0.5) * 1.0001  # directions 31 and later scale more
    figure = draw_spectra([Spectrum("own", base, sigma)])
    left, right = figure.axes
    curve, dot = (np.asarray(line.get_xydata()) for line in left.get_lines())
    np.testing.assert_allclose(curve[:, 1], base.eigenvalues)
    assert dot[0, 0] == pytest.approx(base.effective_rank)
    free, clamped, line = (np.asarray(line.get_ydata()) for line in right.get_lines())
    np.testing.assert_allclose(free, base.eigenvalues**-0.5)
    np.testing.assert_allclose(clamped, np.minimum(free, sigma))
    assert line[0] == sigma
    (words,) = (text.get_text() for text in figure.legends[0].get_texts())
    assert words == f"own: effective rank {base.effective_rank:.1f} of 48; σ = {sigma:g} clamps 17 directions"


def test_spectrum_without_clamp_and_with_empty_directions() -> None:
    data = make_features(dimension=12, seed=2)
    data.base.features[:, 3] = 0.0  # a feature that never fires
    base = data.statistics
    figure = draw_spectra([Spectrum("dead", base, float("inf")), Spectrum("dead", base, 3.0)])
    left, right = figure.axes
    assert len(np.asarray(left.get_lines()[0].get_xydata())) == 11
    assert np.asarray(right.get_lines()[3].get_ydata())[-1] == 3.0  # without scatter the scaling is the clamp
    assert "clamps 0 directions" in figure.legends[0].get_texts()[0].get_text()
    flat = dataclasses.replace(base, eigenvalues=torch.zeros(12, dtype=torch.float64))
    with pytest.raises(FsbenchError, match="no scatter"):
        draw_spectra([Spectrum("flat", flat, 20.0)])
