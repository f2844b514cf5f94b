import json
from pathlib import Path

import numpy as np

from fsbench.features.store import FeatureFile
from tests.cli import run, succeed
from tests.workspace import write_pickles


def test_a_pair_of_pickles_is_imported_exported_and_imported_again(here: Path) -> None:
    write_pickles(here)
    done = succeed("import", "base=base_cub.plk", "novel=cub.plk", "--dataset", "cub-200", "--backbone", "rn18")
    assert "features/cub-rn18.h5: cub, rn18, D = 48" in done.stdout
    done = run("export", "features/cub-rn18.h5", "--out", "all.npz", "--json")
    assert json.loads(done.stdout) == {"file": "all.npz"}
    succeed("export", "features/cub-rn18.h5", "--out", "all.npz", "--force")
    named = run("import", "all.npz", "--dataset", "cub", "--backbone", "again", "--json", "-q")
    assert json.loads(named.stdout)["file"] == "features/cub-again.h5"
    files = [FeatureFile.open(Path("features") / f"cub-{name}.h5") for name in ("rn18", "again")]
    assert np.array_equal(files[0].read("novel").features, files[1].read("novel").features)
