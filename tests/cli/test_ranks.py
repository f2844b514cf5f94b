"""Every command under torchrun ends with what one process gives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.backbones.load import encode_backbone, load_backbone
from fsbench.features.store import FeatureFile
from fsbench.results.record import Record, load_record
from tests.cli import run, succeed
from tests.cli.torchrun import IMAGES_PER_BLOCK, ROOT, torchrun
from tests.comparing import PLUGIN
from tests.images import write_images

CLASSES = {"base": ["b0", "b1"], "val": ["v0", "v1"], "novel": ["n0", "n1"]}
EXTRACT = ("extract", "--data", "photos", "--weights", "tiny.safetensors", "--device", "cpu", "--batch", "8")
OWN = f"{ROOT}/tests/unit/evaluation/own_image_methods.py:MeanOfNetwork"  # on images
METHODS = f"ncm,baseline++,laplacianshot,pt-map,tim-adm,soft-kmeans,bavardage:released,{OWN}"  # one of every kind
COMPARE = (
    "compare", "f.h5", "--methods", METHODS, "--shots", "1", "--ways", "2", "--queries", "10", "--tasks", "40",
    "--device", "cpu", "--data-dir", ".", "--weights-dir", ".",
)  # fmt: skip
FAILS = f"""{PLUGIN}
    def embed(self, features, base):
        import os
        from fsbench.errors import FsbenchError
        if os.environ["RANK"] == "1":
            raise FsbenchError("Process 1 cannot do it.")
        return super().embed(features, base)
"""


@pytest.fixture
def photos(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """72 images: five blocks."""
    monkeypatch.setenv("COLUMNS", "100")
    (here / "tiny.safetensors").write_bytes(encode_backbone(load_backbone("rn12", random_seed=0, width=4), {}))
    monkeypatch.setattr("fsbench.features.extract.IMAGES_PER_BLOCK", IMAGES_PER_BLOCK)
    return write_images(here / "photos", CLASSES, images=12)


def digests(path: str) -> list[str]:
    return [split.digest for split in FeatureFile.open(path).splits.values()]


def records(folder: str) -> dict[str, Record]:
    """Records without what differs from run to run."""
    by_chance: dict[str, Any] = {"seconds": 1.0, "peak_memory": 0, "created": "", "device": ""}
    return {path.name: load_record(path).model_copy(update=by_chance) for path in Path(folder).glob("*.h5")}


@pytest.mark.usefixtures("photos")
def test_compare_of_unequal_processes_gives_one_table_and_the_records_of_one_process() -> None:
    """Images are decoded by one process, whose file the others read."""
    succeed(*EXTRACT, "--out", "f.h5")
    done = torchrun(2, *COMPARE, trouble="unequal")  # in blocks, threads and speed
    assert done.returncode == 0, done.stderr
    assert [record.ranks for record in records("results").values()] == [2] * 16
    assert len(list(Path(".pixels").glob("*.npy"))) == 1
    assert done.stdout == run(*COMPARE).stdout  # reused
    run(*COMPARE, "--results-dir", "alone")
    shared = {name: record.model_copy(update={"ranks": 1}) for name, record in records("results").items()}
    assert records("alone") == shared


@pytest.mark.usefixtures("photos")
def test_a_killed_process_ends_the_run_and_one_process_goes_on_with_what_is_finished() -> None:
    done = torchrun(2, *EXTRACT, "--out", "f.h5", trouble="killed")
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr
    assert not Path("f.h5").exists()
    finished = sum(len(np.load(path)["keys"]) for path in Path().glob(".f.h5.*.rows/*.npz"))
    assert 8 <= finished < 72
    resumed = succeed(*EXTRACT, "--out", "f.h5")
    assert f"Resuming: the features of {finished} of 72 images" in resumed.stderr
    run(*EXTRACT, "--out", "whole.h5", "--force")  # reuses nothing
    assert digests("f.h5") == digests("whole.h5")


@pytest.mark.usefixtures("folder")
def test_an_error_in_one_process_is_shown_once() -> None:
    Path("bad.py").write_text(FAILS)
    done = torchrun(2, "compare", "--methods", "bad.py:Mine", "--baseline", "ncm", "--tasks", "40", "--device", "cpu")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("error: Process 1 cannot do it.") == 1
    assert f"{ROOT}/fsbench" not in done.stderr  # no traceback of ours
    assert "has ended" not in done.stderr  # the other process has nothing to add
