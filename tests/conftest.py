"""Small seeded features that every test can use."""

from __future__ import annotations

import os

import pytest
import torch

from tests.synthetic import Features, make_features

if os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def features() -> Features:
    return make_features()
