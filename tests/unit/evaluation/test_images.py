"""Methods on images run on the same tasks as methods on features, and give what the same features would give."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsbench.backbones.load import Weights, encode_backbone, load_backbone
from fsbench.cli.verify import Verifier
from fsbench.data.scan import OwnData, choose_datasets
from fsbench.errors import FsbenchError
from fsbench.evaluation.compare import compare
from fsbench.evaluation.spec import NO_BASELINE, Spec, parse_methods, with_options
from fsbench.features.extract import Settings, extract_all
from fsbench.features.store import FeatureFile, make_split
from fsbench.methods import registry
from fsbench.methods.images.loader import ImageLoader
from fsbench.reporter import Reporter
from fsbench.results.record import Record
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import CPU, QUIET, runner
from tests.synthetic import Features, feature_file

METHODS = Path(__file__).with_name("own_image_methods.py")
RULES = (TaskProtocol(ways=3, shots=2, queries=9),)
CLASSES = [f"{split}/{split[0]}{n}" for split, count in (("base", 2), ("val", 3), ("novel", 4)) for n in range(count)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a data set, a small network for it, and its features."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for folder in (root / "data" / "tints" / name for name in CLASSES):
        folder.mkdir(parents=True)
        tint = rng.integers(0, 12, size=3)  # classes differ by a little colour, so that methods make mistakes
        for i in range(12):
            pixels = tint + rng.integers(0, 20, size=3) + rng.integers(0, 100, size=(40, 40, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    folder = root / "weights" / "tints"
    folder.mkdir(parents=True)
    for name, seed, about in (("colours", 0, {"image_size": "24"}), ("colours-other", 1, {"image_size": "24"}),
                              ("rn12", 0, {})):  # fmt: skip
        network = load_backbone("rn12", random_seed=seed, width=4)
        (folder / f"{name}.safetensors").write_bytes(encode_backbone(network, about))
    datasets = choose_datasets(None, OwnData(root / "data" / "tints"), root, QUIET)
    weights = Weights("rn12", folder / "rn12.safetensors", None, root)
    extract_all(datasets, weights, Settings(transform="simpleshot"), CPU, root / "features", QUIET)
    return root


def file_of(place: Path) -> FeatureFile:
    return FeatureFile.open(place / "features" / "tints-rn12.h5")


def ran(
    place: Path, *methods: str, data: Path | None = None, weights: Path | None = None, file: FeatureFile | None = None,
    run: Any = (), options: Any = (),
) -> dict[str, Record]:  # fmt: skip
    """The records of methods on 20 tasks of 3 classes, by their labels."""
    names = ",".join(f"{METHODS}:{name}" if name[0].isupper() else name for name in methods)
    choices = tuple(with_options(choice, dict(options)) for choice in parse_methods(names))
    spec = Spec(methods=choices, protocols=RULES, baseline=NO_BASELINE, tasks=20, all_methods=names == "all")
    images = ImageLoader(data or place / "data", weights or place / "weights")
    table = compare(spec, [file or file_of(place)], runner(**dict(run), images=images))
    return {label: cell.record for (label, _), cell in table.groups[0].cells.items()}


def test_a_method_on_images_gives_what_the_same_features_give(place: Path) -> None:
    records = ran(place, "MeanOfNetwork", "simpleshot:L2N")
    images, features = records["MeanOfNetwork"], records["simpleshot:L2N"]
    np.testing.assert_array_equal(images.answers.predicted, features.answers.predicted)
    assert 40 < features.accuracy < 100
    assert (images.run.features, images.run.tasks_digest) == (features.run.features, features.run.tasks_digest)
    digest = file_of(place).provenance.weights_sha256
    assert images.run.params == {"weights": f"rn12.safetensors@{digest[:8]}"}
    assert ran(place, "MeanOfNetwork", run={"batch": 7})["MeanOfNetwork"].answers == images.answers
    loader = ImageLoader(place / "data", place / "weights")
    verifier = Verifier([file_of(place)], [f"{METHODS}:MeanOfNetwork"], None, 0, runner(images=loader))
    assert verifier.verify(images).state == "equal"


def test_a_variant_has_its_own_network_or_none(place: Path) -> None:
    for variant, weights in (("usual", "colours"), ("other", "colours-other"), ("plain", "")):
        (record,) = ran(place, "MeanColour", options={"variant": variant}).values()
        assert str(record.run.params.get("weights", "")).partition(".")[0] == weights


def refusal(place: Path, *methods: str, **words: Any) -> str:
    with pytest.raises(FsbenchError) as caught:
        ran(place, *methods, **words)
    return str(caught.value)


def test_missing_and_other_images_are_refused(place: Path, tmp_path: Path) -> None:
    assert "not in" in refusal(place, "MeanOfNetwork", data=tmp_path / "none")
    shutil.copytree(place / "data" / "tints", tmp_path / "tints")
    image = tmp_path / "tints" / "novel" / "n1" / "3.png"
    image.unlink()
    told = refusal(place, "MeanOfNetwork", data=tmp_path)
    assert all(words in told for words in ("1 of 48 images", "novel/n1/3.png", "--data-dir"))
    Image.new("RGB", (40, 40)).save(image)
    told = refusal(place, "MeanOfNetwork", data=tmp_path)
    assert all(words in told for words in ("are not those that", "novel/n1/3.png"))


def test_missing_and_other_weights_or_names_are_refused(place: Path, features: Features, tmp_path: Path) -> None:
    told = refusal(place, "MeanColour", weights=tmp_path)
    assert f"No weights colours for tints: expected {tmp_path / 'tints' / 'colours.safetensors'}" in told
    (tmp_path / "tints").mkdir()
    shutil.copy(place / "weights" / "tints" / "colours-other.safetensors", tmp_path / "tints" / "rn12.safetensors")
    told = refusal(place, "MeanOfNetwork", weights=tmp_path)
    assert all(words in told for words in ("rn12.safetensors with SHA-256", "--weights-dir"))
    file = FeatureFile.open(features.write(tmp_path / "mine.h5", "tints"))
    assert "does not say which weights" in refusal(place, "MeanOfNetwork", file=file)
    named = replace(file_of(place).read("novel"), hashes=())  # as of an import
    file = feature_file(tmp_path / "named.h5", file_of(place).provenance, novel=named)
    assert "does not say which images" in refusal(place, "MeanColour", file=file)


def test_images_in_another_order_are_matched_by_name(place: Path, tmp_path: Path) -> None:
    """As after an import of rows, or with images that were left out as broken."""
    split = file_of(place).read("novel")
    order = np.random.default_rng(0).permutation(len(split.features))[5:]
    images, hashes = ([values[i] for i in order] for values in (split.images, split.hashes))
    shuffled = make_split(split.features[order], split.labels[order], split.class_names, images, hashes)
    file = feature_file(tmp_path / "shuffled.h5", file_of(place).provenance, novel=shuffled)
    records = ran(place, "MeanOfNetwork", "simpleshot:L2N", file=file)
    one, other = records.values()
    np.testing.assert_array_equal(one.answers.predicted, other.answers.predicted)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry with two fast methods, and the methods on images."""
    module = "tests.unit.evaluation.own_image_methods"
    own = {"mean-of-network": f"{module}:MeanOfNetwork", "mean-colour": f"{module}:MeanColour"}
    monkeypatch.setattr(registry, "METHODS", {name: registry.METHODS[name] for name in ("ncm", "simpleshot")} | own)


@pytest.mark.usefixtures("registered")
def test_all_leaves_out(place: Path, features: Features, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What lacks images or weights."""
    everything = ["ncm", "simpleshot", "mean-of-network", "mean-colour"]
    other = FeatureFile.open(features.write(tmp_path / "mine.h5"))
    spec = Spec(methods=tuple(parse_methods("all")), protocols=RULES, baseline="ncm", tasks=4, all_methods=True)
    images = ImageLoader(place / "data", place / "weights")
    table = compare(spec, [other, file_of(place)], runner(images=images))
    assert [[label for label, _ in group.cells] for group in table.groups] == [everything[:2], everything]
    with pytest.raises(FsbenchError, match="mean-colour cannot run here"):
        compare(replace(spec, baseline="mean-colour"), [other], runner())
    capsys.readouterr()
    assert [*ran(place, "all", run={"reporter": Reporter()}, weights=tmp_path)] == everything[:2]
    assert "Left out: mean-colour. No weights colours for tints" in capsys.readouterr().err


@pytest.mark.usefixtures("registered")
def test_all_adapts_networks_to_a_part_of_the_tasks(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsbench.evaluation.compare.NETWORK_TASKS", 6)
    run = {"results": tmp_path, "reporter": Reporter()}
    records = ran(place, "all", run=run)
    assert {label: record.tasks for label, record in records.items()} == {
        "ncm": 20, "simpleshot": 20, "mean-of-network": 6, "mean-colour": 20
    }  # fmt: skip
    assert "mean-of-network: 6 of 20 tasks" in capsys.readouterr().err
    named = ran(place, "mean-of-network", run=run)["mean-of-network"]
    assert named.tasks == 20
    assert ran(place, "all", run=run)["mean-of-network"].answers == named.answers[:6]
