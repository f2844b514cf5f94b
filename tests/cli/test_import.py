import json
from pathlib import Path

import numpy as np

from fsbench.features.store import FeatureFile
from tests.cli import run, succeed
from tests.workspace import write_pickles


def test_a_pair_of_pickles_is_imported(here: Path) -> None:
    write_pickles(here)
    line = ("import", "base=base_cub.plk", "novel=cub.plk", "--dataset", "cub-200", "--backbone")
    assert "features/cub-rn18.h5: cub, rn18, D = 48" in succeed(*line, "rn18").stdout
    assert json.loads(run(*line, "again", "--json", "-q").stdout)["file"] == "features/cub-again.h5"
    files = [FeatureFile.open(Path("features") / f"cub-{name}.h5") for name in ("rn18", "again")]
    assert np.array_equal(files[0].read("novel").features, files[1].read("novel").features)
