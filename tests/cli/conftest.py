from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features


@pytest.fixture
def folder(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with one feature file, and a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    features.write(tmp_path / "features" / "synthetic-none.h5")
    return tmp_path
