"""Methods on images run on the same tasks as methods on features, and give what the same features would give."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

import fsbench
from fsbench.backbones.load import load_backbone, save_backbone
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.errors import FsbenchError
from fsbench.evaluation import engine
from fsbench.evaluation.compare import compare
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.spec import Spec
from fsbench.features.extract import Settings, Weights, extract_all
from fsbench.features.store import FeatureFile, make_split, write_features
from fsbench.methods import registry
from fsbench.reporter import Reporter
from fsbench.results.record import load_record
from tests.cli import Done, run
from tests.comparing import CPU, QUIET, runner

if TYPE_CHECKING:
    from fsbench.results.record import RunRecord
    from tests.synthetic import Features

METHODS = Path(__file__).with_name("own_image_methods.py")
CLASSES = {"base": ["b0", "b1"], "val": ["v0", "v1", "v2"], "novel": ["n0", "n1", "n2", "n3"]}


def write_faint_images(root: Path, images: int = 12) -> None:
    """Classes that differ by a little colour, so that methods make mistakes."""
    rng = np.random.default_rng(0)
    for split, names in CLASSES.items():
        for name in names:
            (root / split / name).mkdir(parents=True)
            tint = rng.integers(0, 12, size=3)
            for i in range(images):
                tone = tint + rng.integers(0, 20, size=3)
                noise = rng.integers(0, 100, size=(40, 40, 3))
                Image.fromarray((tone + noise).astype(np.uint8)).save(root / split / name / f"{i}.png")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a data set, a small network for it, and its features."""
    root = tmp_path_factory.mktemp("images")
    write_faint_images(root / "data" / "tints")
    backbone = load_backbone("rn12", random_seed=0, width=4)
    (root / "weights" / "tints").mkdir(parents=True)
    for name, seed in (("colours", 0), ("colours-other", 1)):
        other = load_backbone("rn12", random_seed=seed, width=4)
        save_backbone(other, root / "weights" / "tints" / f"{name}.safetensors", {"image_size": "24"})
    save_backbone(backbone, root / "weights" / "tints" / "rn12.safetensors", {})
    datasets = choose_datasets(None, OwnData(root / "data" / "tints"), root, QUIET)
    weights = Weights("rn12", root / "weights" / "tints" / "rn12.safetensors", None, root)
    extract_all(datasets, weights, Settings(transform="simpleshot"), CPU, root / "features", QUIET)
    return root


def file_of(place: Path) -> FeatureFile:
    return FeatureFile.open(place / "features" / "tints-rn12.h5")


def ran(
    place: Path,
    *methods: str,
    data: Path | None = None,
    weights: Path | None = None,
    file: FeatureFile | None = None,
    run: Any = (),
    **words: Any,
) -> dict[str, RunRecord]:
    """The records of methods on 20 tasks of 3 classes, by their labels."""
    names = [f"{METHODS}:{name}" if name[0].isupper() else name for name in methods]
    options = {"baseline": "", "shots": 2, "settings": "unbalanced", "ways": 3, "queries": 9, "tasks": 20, **words}
    spec = Spec.from_words(methods="all" if names == ["all"] else names, published=False, **options)
    images = ImagePlaces(data or place / "data", weights or place / "weights")
    table = compare(spec, [file or file_of(place)], runner(**dict(run), images=images))
    return {label: cell.record for (label, _), cell in table.groups[0].cells.items() if cell.record}


def test_a_method_on_images_gives_what_the_same_features_give(place: Path) -> None:
    found = ran(place, "MeanOfNetwork", "simpleshot:L2N")
    images, features = found["MeanOfNetwork"], found["simpleshot:L2N"]
    assert images.correct == features.correct
    assert 40 < features.accuracy < 100
    assert (images.key.features_sha256, images.queries) == (features.key.features_sha256, features.queries)
    made = file_of(place).provenance
    assert images.key.params == {"weights": f"rn12.safetensors@{made.weights_sha256[:8]}"}


@pytest.mark.parametrize(("variant", "weights"), [("usual", "colours"), ("other", "colours-other"), ("plain", "")])
def test_a_variant_has_its_own_network_or_none(place: Path, variant: str, weights: str) -> None:
    (record,) = ran(place, "MeanColour", options={"variant": variant}).values()
    assert record.key.params["variant"] == variant
    assert record.key.params.get("weights", "").partition(".")[0] == weights


def test_batches_and_resuming_change_nothing(place: Path, tmp_path: Path) -> None:
    (whole,) = ran(place, "MeanOfNetwork").values()
    (batches,) = ran(place, "MeanOfNetwork", run={"batch": 7}).values()
    ran(place, "MeanOfNetwork", tasks=8, run={"results": tmp_path})
    (resumed,) = ran(place, "MeanOfNetwork", run={"results": tmp_path}).values()
    assert whole.correct == batches.correct == resumed.correct


def copied(place: Path, tmp_path: Path) -> Path:
    shutil.copytree(place / "data" / "tints", tmp_path / "tints")
    return tmp_path


def refusal(place: Path, *methods: str, **words: Any) -> str:
    with pytest.raises(FsbenchError) as caught:
        ran(place, *methods, **words)
    return str(caught.value)


def test_missing_and_other_images_are_refused(place: Path, tmp_path: Path) -> None:
    assert "not in" in refusal(place, "MeanOfNetwork", data=tmp_path / "none")
    data = copied(place, tmp_path)
    (data / "tints" / "novel" / "n1" / "3.png").unlink()
    told = refusal(place, "MeanOfNetwork", data=data)
    assert "1 of 48 images" in told
    assert "novel/n1/3.png" in told
    assert "--data-dir" in told
    Image.new("RGB", (40, 40)).save(data / "tints" / "novel" / "n1" / "3.png")
    told = refusal(place, "MeanOfNetwork", data=data)
    assert "are not those that" in told
    assert "novel/n1/3.png" in told


def test_missing_and_other_weights_are_refused(place: Path, tmp_path: Path) -> None:
    told = refusal(place, "MeanColour", weights=tmp_path)
    assert "No weights colours for tints" in told
    assert str(tmp_path / "tints" / "colours.safetensors") in told
    (tmp_path / "tints").mkdir()
    shutil.copy(place / "weights" / "tints" / "colours-other.safetensors", tmp_path / "tints" / "rn12.safetensors")
    told = refusal(place, "MeanOfNetwork", weights=tmp_path)
    assert "rn12.safetensors with SHA-256" in told
    assert "--weights-dir" in told


def test_features_without_names_of_images_are_refused(place: Path, features: Features, tmp_path: Path) -> None:
    file = FeatureFile.open(features.write(tmp_path / "mine.h5"))
    assert "does not say which weights" in refusal(place, "MeanOfNetwork", file=file)
    provenance = replace(file.provenance, dataset="tints")
    write_features(tmp_path / "named.h5", provenance, {"novel": features.novel})
    told = refusal(place, "MeanColour", file=FeatureFile.open(tmp_path / "named.h5"))
    assert "does not name its images" in told


def test_images_in_another_order_are_matched_by_name(place: Path, tmp_path: Path) -> None:
    """As after an import of rows, or with images that were left out as broken."""
    split = file_of(place).read("novel")
    order = np.random.default_rng(0).permutation(len(split.features))[5:]
    images, marks = ([values[i] for i in order] for values in (split.images, split.marks))
    shuffled = make_split(split.features[order], split.labels[order], split.class_names, images, marks)
    write_features(tmp_path / "shuffled.h5", file_of(place).provenance, {"novel": shuffled})
    found = ran(place, "MeanOfNetwork", "simpleshot:L2N", file=FeatureFile.open(tmp_path / "shuffled.h5"))
    assert found["MeanOfNetwork"].correct == found["simpleshot:L2N"].correct


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry with two fast methods, and the methods on images."""
    module = "tests.unit.evaluation.own_image_methods"
    own = {"mean-of-network": f"{module}:MeanOfNetwork", "mean-colour": f"{module}:MeanColour"}
    monkeypatch.setattr(registry, "METHODS", {name: registry.METHODS[name] for name in ("ncm", "simpleshot")} | own)


@pytest.mark.usefixtures("registered")
def test_all_leaves_out_what_lacks_images_or_weights(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loud = {"reporter": Reporter()}
    assert [*ran(place, "all", run=loud)] == ["ncm", "simpleshot", "mean-of-network", "mean-colour"]
    capsys.readouterr()
    assert [*ran(place, "all", run=loud, weights=tmp_path)] == ["ncm", "simpleshot"]
    told = capsys.readouterr().err
    assert told.count("Left out") == 2
    assert "Left out, as it works on images: mean-colour. No weights colours for tints" in told


@pytest.mark.usefixtures("registered")
def test_all_adapts_networks_to_a_part_of_the_tasks(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsbench.evaluation.compare.NETWORK_TASKS", 6)
    run = {"results": tmp_path, "reporter": Reporter()}
    found = ran(place, "all", run=run)
    assert {label: record.key.tasks for label, record in found.items()} == {
        "ncm": 20, "simpleshot": 20, "mean-of-network (6 tasks)": 6, "mean-colour": 20
    }  # fmt: skip
    assert "mean-of-network: 6 of 20 tasks" in capsys.readouterr().err
    assert load_record(next(tmp_path.glob("*mean-of-network*"))).asked == 20
    named = ran(place, "mean-of-network", run=run)
    assert named["mean-of-network"].key.tasks == 20
    again = ran(place, "all", run=run)
    assert again["mean-of-network"].correct == named["mean-of-network"].correct


def test_memory_is_checked_before_the_first_task(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "available_memory", lambda: 4 * 10**9)
    told = refusal(place, "Greedy", options={"megabytes": 300.0})
    assert "Greedy takes about 4.5 GB of memory for a task of 15 images, and 4.0 GB are free." in told
    assert told.endswith("Lower --set megabytes=1.")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    side_by_side: list[int] = []
    solved = engine._side_by_side

    def watched(pool: Any, workers: int, *rest: Any) -> Any:
        side_by_side.append(workers)
        return solved(pool, workers, *rest)

    monkeypatch.setattr(engine, "_side_by_side", watched)
    loud = {"reporter": Reporter()}
    (few,) = ran(place, "Greedy", options={"megabytes": 100.0}, run=loud).values()
    assert "2 instead of 3 tasks are solved side by side, as each takes about 1.5 GB" in capsys.readouterr().err
    (many,) = ran(place, "Greedy", options={"megabytes": 1.0}, run=loud).values()
    assert "side by side" not in capsys.readouterr().err
    assert side_by_side == [2, 3]
    assert few.correct == many.correct


def test_the_first_chunks_of_a_network_are_single_tasks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    run = engine.solve_tasks
    monkeypatch.setattr(
        "fsbench.evaluation.run.solve_tasks",
        lambda *args, progress, **kwargs: run(*args, progress=lambda done: seen.append(done), **kwargs),
    )
    ran(place, "MeanOfNetwork", "MeanColour")
    assert seen[:20] == [1] * 20
    assert seen[20] == 1
    assert sum(seen) == 40
    assert max(seen[20:]) > 1


def test_python_takes_the_folders_and_refuses_images_without_a_file(place: Path) -> None:
    folders = {"data_dir": place / "data", "weights_dir": str(place / "weights")}
    name, words = f"{METHODS}:MeanOfNetwork", {"shots": 2, "ways": 3, "queries": 9, "tasks": 5}
    record = fsbench.evaluate(name, place / "features" / "tints-rn12.h5", **words, **folders)  # type: ignore[arg-type]
    (same,) = ran(place, "MeanOfNetwork", tasks=5).values()
    assert record.correct == same.correct
    rows = np.random.default_rng(0).random((1, 4, 8))
    with pytest.raises(FsbenchError, match="works on images, and there are only features here"):
        fsbench.predict(name, rows, np.array([[0, 0, 1, 1]]), rows)


def test_gradients_can_be_computed_within_a_task(place: Path) -> None:
    (record,) = ran(place, "Adapting", tasks=3).values()
    assert record.accuracy > 30


def test_a_comparison_of_features_loads_neither_images_nor_networks(features: Features, tmp_path: Path) -> None:
    features.write(tmp_path / "mine.h5")
    code = (
        "import atexit, sys; from fsbench.cli.app import main\n"
        "names = 'PIL', 'timm', 'torchvision', 'fsbench.methods.networks'\n"
        "atexit.register(lambda: print([name for name in names if name in sys.modules]))\n"
        "main()"
    )
    words = ["compare", "mine.h5", "--methods", "ncm,simpleshot", "--tasks", "2", "--shots", "1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "simpleshot" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.usefixtures("registered")
def test_all_keeps_methods_on_images_for_the_files_that_have_them(
    place: Path, features: Features, tmp_path: Path
) -> None:
    other = FeatureFile.open(features.write(tmp_path / "mine.h5"))
    words = {"shots": 2, "settings": "unbalanced", "ways": 3, "queries": 9, "tasks": 4}
    spec = Spec.from_words(methods="all", baseline="ncm", published=False, **words)  # type: ignore[arg-type]
    table = compare(spec, [other, file_of(place)], runner(images=ImagePlaces(place / "data", place / "weights")))
    found = [[label for (label, _), cell in group.cells.items() if cell.record] for group in table.groups]
    assert found == [["ncm", "simpleshot"], ["ncm", "simpleshot", "mean-of-network", "mean-colour"]]
    with pytest.raises(FsbenchError, match="mean-colour works on images"):
        compare(replace(spec, baseline="mean-colour"), [other], runner())


def command(place: Path, name: str, *words: str) -> Done:
    """A command with the folders of the data set, in a small setting."""
    folders = {"features": "features", "data": "data", "weights": "weights", "results": "results"}
    options = [word for option, folder in folders.items() for word in (f"--{option}-dir", str(place / folder))]
    return run(name, *options, "--device", "cpu", *words)


SMALL = ("--shots", "2", "--ways", "3", "--queries", "9", "--tasks", "6")


def test_commands_run_methods_on_images(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = f"{METHODS}:MeanOfNetwork"
    done = command(place, "compare", "--methods", f"{own},ncm", *SMALL, "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert "MeanOfNetwork" in done.stdout
    solved = command(place, "solve", "--method", own, *SMALL, "--json")
    assert "MeanOfNetwork" in solved.stdout, solved.stderr
    verified = command(place, "verify", "--methods", own)
    assert verified.returncode == 0, verified.stdout
    assert "not verified" not in verified.stdout
    monkeypatch.setenv("FSBENCH_DATA", str(place / "data"))
    monkeypatch.setenv("FSBENCH_WEIGHTS", str(place / "weights"))
    swept = run(
        "sweep", str(file_of(place).path), "--methods", own, "--over", "shots=1,2", *SMALL[2:], "--device", "cpu",
        "--results-dir", str(place / "results"),
    )  # fmt: skip
    assert swept.returncode == 0, swept.stderr
    tuned = run(
        "tune", str(file_of(place).path), "--method", f"{METHODS}:Greedy", "--over", "megabytes=1,2", *SMALL,
        "--device", "cpu", "--results-dir", str(place / "results"),
    )  # fmt: skip
    assert "Greedy tuned on val" in tuned.stdout, tuned.stderr


def test_verify_says_which_weights_differ(place: Path, tmp_path: Path) -> None:
    own = f"{METHODS}:MeanColour"
    options = (*SMALL, "--results-dir", str(tmp_path / "results"))
    assert command(place, "solve", "--method", own, *options).returncode == 0
    shutil.copytree(place / "weights", tmp_path / "weights")
    folder = tmp_path / "weights" / "tints"
    shutil.copy(folder / "colours-other.safetensors", folder / "colours.safetensors")
    verified = command(
        place, "verify", str(tmp_path / "results"), "--methods", own, "--weights-dir", str(tmp_path / "weights")
    )
    assert "its weights are colours.safetensors@" in verified.stdout


def test_a_run_file_knows_what_is_left_of_methods_on_images(place: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    folders = "\n".join(f'{name}_dir = "{place / name}"' for name in ("features", "data", "weights"))
    study.write_text(
        f'[compare]\nmethods = "{METHODS}:MeanOfNetwork,ncm"\nbaseline = "ncm"\nshots = 2\nways = 3\nqueries = 9\n'
        f'tasks = 5\nresults_dir = "{tmp_path / "results"}"\n{folders}\n'
    )
    assert "4 cells: 0 recorded, 4 to compute" in run("run", str(study), "--dry-run").stdout
    assert run("run", str(study), "--quiet").returncode == 0
    assert "4 cells: 4 recorded" in run("run", str(study), "--dry-run").stdout
