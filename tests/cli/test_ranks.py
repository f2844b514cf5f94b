"""Every command under torchrun ends with what one process gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.backbones.load import load_backbone, save_backbone
from fsbench.features.store import FeatureFile
from fsbench.results.predictions import load_predictions
from fsbench.results.record import load_record
from tests.cli import run
from tests.cli.torchrun import IMAGES_PER_SHARD, ROOT, torchrun
from tests.images import write_images
from tests.unit.train.stripes import write_stripes

if TYPE_CHECKING:
    from tests.synthetic import Features

CLASSES = {"base": ["b0", "b1"], "val": ["v0", "v1"], "novel": ["n0", "n1"]}
EXTRACT = ("extract", "--data", "photos", "--weights", "tiny.safetensors", "--device", "cpu", "--batch", "8")
METHODS = "ncm,baseline++,laplacianshot,pt-map,tim-adm,soft-kmeans,bavardage:released"  # one of every kind
COMPARE = ("compare", "--methods", METHODS, "--shots", "1", "--device", "cpu")
TRAIN = ("train", "--data", "stripes", "--width", "1", "--epochs", "1", "--batch", "24", "--device", "cpu")
BAD = """
import os
from dataclasses import dataclass
from fsbench.errors import FsbenchError
from fsbench.methods.base import MethodInfo
from fsbench.methods.ncm import NearestClassMean

@dataclass(frozen=True)
class Bad(NearestClassMean):
    info = MethodInfo("bad", "Bad", "nobody", transductive=False, prior="none")

    def embed(self, features, base):
        if os.environ["RANK"] == "1":
            raise FsbenchError("Process 1 cannot do it.")
        return super().embed(features, base)
"""
BY_CHANCE = {"seconds", "peak_memory", "created", "ranks", "sha256"}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """72 images: five shards."""
    monkeypatch.chdir(tmp_path)
    save_backbone(load_backbone("rn12", random_seed=0, width=4), tmp_path / "tiny.safetensors", {})
    monkeypatch.setattr("fsbench.features.shards.IMAGES_PER_SHARD", IMAGES_PER_SHARD)
    return write_images(tmp_path / "photos", CLASSES, images=12)


@pytest.fixture
def synthetic(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return features.write(tmp_path / "features" / "synthetic-none.h5")


def digests(path: str) -> list[str]:
    return [split.digest for split in FeatureFile.open(path).splits.values()]


def records(folder: str) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}


def results(folder: str) -> dict[str, dict[str, Any]]:
    """What records say, without what differs from run to run."""
    return {
        name: {field: value for field, value in record.items() if field not in BY_CHANCE}
        for name, record in records(folder).items()
    }


@pytest.mark.usefixtures("synthetic")
def test_compare_of_unequal_processes_gives_one_table_and_the_records_of_one_process() -> None:
    few = ("--tasks", "40", "--save-predictions")
    done = torchrun(3, *COMPARE, *few, trouble="unequal")  # in memory, threads and speed
    assert done.returncode == 0, done.stderr
    assert {record["ranks"] for record in records("results").values()} == {3}
    assert len(records("results")) == 14
    reused = run(*COMPARE, *few)
    assert done.stdout == reused.stdout
    assert {record["ranks"] for record in records("results").values()} == {3}
    run(*COMPARE, *few, "--results-dir", "alone")
    assert results("alone") == results("results")
    for name in records("results"):
        found = [
            load_predictions(path.with_suffix(".h5"), load_record(path))
            for path in (Path("alone", name), Path("results", name))
        ]
        assert np.array_equal(found[0].rows, found[1].rows)
        np.testing.assert_allclose(found[0].probabilities, found[1].probabilities, atol=2e-3, err_msg=name)


@pytest.mark.usefixtures("photos")
def test_a_killed_process_ends_the_run_and_one_process_goes_on_with_what_is_finished() -> None:
    done = torchrun(2, *EXTRACT, "--out", "f.h5", trouble="killed")
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr
    assert not Path("f.h5").exists()
    finished = sum(len(np.load(path)) for path in Path().glob(".f.h5.*.parts/*.npy"))
    assert 8 <= finished < 72
    resumed = run(*EXTRACT, "--out", "f.h5")
    assert resumed.returncode == 0, resumed.stderr
    assert f"Resuming: {finished} of 72 images" in resumed.stderr
    run(*EXTRACT, "--out", "whole.h5")
    assert digests("f.h5") == digests("whole.h5")


@pytest.mark.usefixtures("synthetic")
def test_an_error_in_one_process_is_shown_once() -> None:
    Path("bad.py").write_text(BAD)
    done = torchrun(2, "compare", "--methods", "bad.py:Bad", "--baseline", "ncm", "--tasks", "40", "--device", "cpu")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("error: Process 1 cannot do it.") == 1
    assert f"{ROOT}/fsbench" not in done.stderr  # no traceback of ours
    assert "has ended" not in done.stderr  # the other process has nothing to add


@pytest.mark.slow
@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_features_are_the_same_for_any_number_of_processes(processes: int) -> None:
    done = torchrun(processes, *EXTRACT, "--out", "f.h5")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(*EXTRACT, "--out", "f.h5").stdout  # it is there already
    run(*EXTRACT, "--out", "alone.h5")
    assert digests("f.h5") == digests("alone.h5")
    assert {path.name for path in Path().iterdir()} == {"photos", "tiny.safetensors", "f.h5", "alone.h5"}


@pytest.mark.slow
def test_a_broken_image_that_one_process_meets_is_shown_once(photos: Path) -> None:
    (photos / "val" / "v1" / "003.png").write_bytes(b"no image")
    done = torchrun(2, *EXTRACT)
    assert done.returncode == 1
    assert done.stderr.count("error: An image of") == 1
    assert "val/v1/003.png" in done.stderr
    assert f"{ROOT}/fsbench" not in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("photos")
def test_killed_with_two_processes_three_go_on() -> None:
    assert torchrun(2, *EXTRACT, "--out", "f.h5", trouble="killed").returncode == 1
    done = torchrun(3, *EXTRACT, "--out", "f.h5", trouble="slow")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Resuming") == 1
    run(*EXTRACT, "--out", "whole.h5")
    assert digests("f.h5") == digests("whole.h5")


@pytest.mark.slow
@pytest.mark.usefixtures("synthetic")
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_tuning_and_solving_end_the_same_for_any_number_of_processes(processes: int) -> None:
    solve = ("solve", "--method", "soft-kmeans", "--tune", "--tasks", "300", "--device", "cpu")
    done = torchrun(processes, *solve)
    assert done.returncode == 0, done.stderr
    tuned = Path("features/synthetic-none.tuned.json")
    found, table = tuned.read_bytes(), done.stdout
    assert run(*solve).stdout == table
    for path in (tuned, *Path("results").glob("*.json"), Path("features/synthetic-none.scatter.h5")):
        path.rename(path.with_suffix(".first"))
    assert run(*solve).returncode == 0
    assert tuned.read_bytes() == found
    for path in Path("results").glob("*.first"):
        first, alone = (json.loads(file.read_text()) for file in (path, path.with_suffix(".json")))
        assert first["ranks"] == processes
        assert first["correct"] == alone["correct"]
        assert first["queries"] == alone["queries"]


@pytest.mark.slow
def test_scatter_shares_the_files(synthetic: Path, features: Features) -> None:
    for name in ("a", "b", "c"):
        features.write(synthetic.with_name(f"{name}.h5"))
    done = torchrun(2, "scatter", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == len(list(synthetic.parent.glob("*.scatter.h5"))) == 4
    assert run("scatter", "--json").stdout == done.stdout


@pytest.mark.slow
def test_an_error_while_training_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_stripes(tmp_path / "stripes", 16, {"base": (3, 8), "val": (5, 20)})
    (min((folder / "base").iterdir()) / "extra.png").write_bytes(b"no image")
    done = torchrun(2, *TRAIN)
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    assert "extra.png" in done.stderr
    assert f"{ROOT}/fsbench" not in done.stderr


@pytest.mark.usefixtures("photos")
def test_methods_on_images_give_the_records_of_one_process() -> None:
    """Images are decoded by one process, whose file the others read."""
    assert run(*EXTRACT, "--out", "f.h5").returncode == 0
    method = f"{ROOT}/tests/unit/evaluation/own_image_methods.py:MeanOfNetwork"
    few = ("--shots", "1", "--ways", "2", "--queries", "10", "--tasks", "12", "--device", "cpu")
    ask = ("compare", "f.h5", "--methods", method, *few, "--data-dir", ".", "--weights-dir", ".")
    done = torchrun(2, *ask, trouble="unequal")
    assert done.returncode == 0, done.stderr
    assert len(list(Path(".pixels").glob("*.npy"))) == 1
    assert run(*ask, "--results-dir", "alone").returncode == 0
    assert results("alone") == results("results")
    refused = torchrun(2, *ask, "--data-dir", "nowhere", "--force")
    assert refused.returncode == 1
    assert refused.stderr.count("error: MeanOfNetwork works on images.") == 1
