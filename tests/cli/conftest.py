from pathlib import Path

import pytest

from fsbench.cli.doctor import Environment
from tests.synthetic import Features

ENVIRONMENT = Environment({"python": "3.11.7", "torchvision": ""}, "They do not work together.", {"cpu": "2 threads"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty, a wide terminal, and a machine that need not be looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("fsbench.cli.doctor.probe_environment", lambda: ENVIRONMENT)
    for root in ("DATA", "WEIGHTS", "FEATURES", "RESULTS"):
        monkeypatch.delenv(f"FSBENCH_{root}", raising=False)
    return tmp_path


@pytest.fixture
def folder(features: Features, here: Path) -> Path:
    """The current folder, with one feature file."""
    features.write(here / "features" / "synthetic-none.h5")
    return here
