from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import fsbench
import fsbench.api

if TYPE_CHECKING:
    from tests.synthetic import Features


def test_the_documented_example_runs() -> None:
    assert doctest.testmod(fsbench.api, raise_on_error=True).attempted > 5


def test_every_public_name_is_there_and_no_other() -> None:
    for name in fsbench.__all__:
        assert getattr(fsbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fsbench.nothing


def test_load_backbone_gives_features() -> None:
    shipped = Path(__file__).parents[2] / "weights" / "glyphs" / "wrn.safetensors"
    network = fsbench.load_backbone("wrn", weights=shipped)
    assert not network.training
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 64)


def test_importing_is_free() -> None:
    code = "import sys, fsbench; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]


def test_tensors_in_tensors_out_arrays_in_arrays_out(features: Features) -> None:
    x = features.novel.features
    support, query, labels = x[None, :5], x[None, 10:30], np.arange(5)[None]
    array = fsbench.predict("ncm", support, labels, query, base=features.statistics)
    there = torch.from_numpy
    tensor = fsbench.predict("ncm", there(support), there(labels), there(query), base=features.statistics)
    assert isinstance(array, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor, array, atol=1e-6)
