from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import fsbench
from fsbench.backbones.find_weights import find_weights
from fsbench.backbones.load import load_backbone
from fsbench.data.published_transforms import transform_for
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from fsbench.train.run import Trained, default_output, train_backbone
from fsbench.train.settings import Execution, TrainSettings
from fsbench.train.validate import Validation
from tests.unit.train.stripes import stripes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fsbench.data.dataset import ImageDataset

SETTINGS = TrainSettings("rn12", 1, epochs=3, batch=24, lr=0.05, seed=7, rotation=True, mixup=True)


class Listener(Reporter):
    """Remembers what was said, and stops the training at a certain line as Ctrl-C would."""

    def __init__(self, stop_at: str = "never") -> None:
        super().__init__(quiet=True)
        self.stop_at, self.said, self.warned = stop_at, list[str](), list[str]()

    def say(self, text: str) -> None:
        self.said.append(text)
        if text.startswith(self.stop_at):
            raise KeyboardInterrupt

    def warn(self, text: str) -> None:
        self.warned.append(text)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    return stripes(tmp_path_factory.mktemp("stripes"))


def train(
    dataset: ImageDataset,
    out: Path,
    settings: TrainSettings = SETTINGS,
    reporter: Listener | None = None,
    *,
    eval_every: int = 2,
    save_every: float = 5,
    force: bool = False,
) -> Trained:
    execution = Execution(torch.device("cpu"), reporter or Listener(), eval_every=eval_every, save_every=save_every)
    return train_backbone(dataset, settings, execution, out, force=force)


@pytest.fixture(scope="module")
def unbroken(dataset: ImageDataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained, Listener]:
    out = default_output(tmp_path_factory.mktemp("weights"), "stripes", "rn12")
    listener = Listener()
    return out, train(dataset, out, reporter=listener), listener


def same(one: Path, other: Path) -> bool:
    mine, theirs = load_file(one), load_file(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def facts(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        found: dict[str, str] = json.loads(file.metadata()["fsbench"])
        return found


@pytest.mark.parametrize("stop_at", ["epoch 1 of 3", "epoch 2 of 3"])
def test_a_stopped_training_ends_with_the_very_same_weights(
    dataset: ImageDataset, tmp_path: Path, unbroken: tuple[Path, Trained, Listener], stop_at: str
) -> None:
    out = tmp_path / "rn12.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, reporter=Listener(stop_at))
    assert not out.exists()
    listener = Listener()
    resumed = train(dataset, out, reporter=listener, eval_every=3 if stop_at == "epoch 1 of 3" else 2)
    assert listener.said[0] == f"Resuming: {stop_at[6]} of 3 epochs are done."
    assert len([line for line in listener.said if line.startswith("epoch")]) == 3 - int(stop_at[6])
    assert same(out, unbroken[0])
    assert resumed.history[-1] == unbroken[1].history[-1]
    if stop_at == "epoch 2 of 3":  # evaluations from before the stop are not forgotten
        assert resumed.history == unbroken[1].history
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rn12.json", "rn12.safetensors"]


class StopsAfterSteps(Listener):
    """Stops the training as Ctrl-C would, after a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Any]:
        def advance(done: int, total: int | None = None) -> None:
            if label.startswith("epoch") and done:
                self.steps -= 1
                if not self.steps:
                    raise KeyboardInterrupt

        yield advance


@pytest.mark.parametrize(
    ("steps", "save_every", "kept"),
    [
        (2, 0, "Kept: 1 step, in {}. Lost: 1 step after the last checkpoint."),
        (5, 0, "Kept: 1 epoch and 1 step, in {}. Lost: 1 step after the last checkpoint."),
        (5, 5, "Kept: 1 epoch, in {}. Lost: 2 steps after the last checkpoint."),
        (2, 5, "Stopped after 2 steps, before the first checkpoint, so nothing is kept yet."),
    ],
)
def test_a_training_stopped_within_an_epoch_says_what_is_kept_and_resumes_there(
    dataset: ImageDataset,
    tmp_path: Path,
    unbroken: tuple[Path, Trained, Listener],
    steps: int,
    save_every: float,
    kept: str,
) -> None:
    out, stopped = tmp_path / "rn12.safetensors", StopsAfterSteps(steps)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, reporter=stopped, save_every=save_every)
    checkpoints = list(tmp_path.glob(".*.training"))
    assert stopped.warned == [kept.format(*checkpoints)]
    listener = Listener()
    train(dataset, out, reporter=listener)
    if checkpoints:
        epochs, steps = (steps - 1) // 3, (steps - 1) % 3 if not save_every else 0
        within = f" and {steps} of 3 steps of the next one" if steps else ""
        assert listener.said[0] == f"Resuming: {epochs} of 3 epochs{within} are done."
    assert same(out, unbroken[0])


def test_a_card_beside_the_weights_says_how_they_were_made(unbroken: tuple[Path, Trained, Listener]) -> None:
    out, trained, _ = unbroken
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert card["command"] == facts(out)["command"]
    assert (card["dataset"], card["backbone"], card["seed"], card["base_images"]) == ("stripes", "rn12", "7", 72)
    assert card["val_accuracy"] == str(trained.history[-1])
    assert card["seconds"]["cpu"] >= 0


def test_weights_are_in_half_precision_and_were_evaluated_so(
    dataset: ImageDataset, unbroken: tuple[Path, Trained, Listener]
) -> None:
    out, trained, _ = unbroken
    tensors = load_file(out)
    assert {tensor.dtype for tensor in tensors.values() if tensor.ndim > 1} == {torch.float16}
    assert {tensor.dtype for tensor in tensors.values() if tensor.ndim == 1} == {torch.float32}
    backbone = load_backbone("rn12", out)
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    transform = transform_for("easy", None, 16)
    again = Validation(dataset.splits["val"], transform, 0)(backbone.network, torch.device("cpu"), 3)
    assert again.accuracy[1].mean == pytest.approx(trained.history[-1].accuracy[1].mean, abs=0.1)


def test_a_checkpoint_of_other_settings_is_left_alone(
    dataset: ImageDataset, tmp_path: Path, unbroken: tuple[Path, Trained, Listener]
) -> None:
    out = tmp_path / "rn12.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, replace(SETTINGS, lr=0.01), Listener("epoch 1"))
    (other,) = tmp_path.iterdir()
    content = other.read_bytes()
    train(dataset, out)
    assert same(out, unbroken[0])
    assert other.read_bytes() == content


@pytest.mark.parametrize("damage", ["cut", "pickle", "foreign"])
def test_a_damaged_checkpoint_is_refused(dataset: ImageDataset, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "rn12.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, reporter=Listener("epoch 1"))
    (checkpoint,) = tmp_path.iterdir()
    content = torch.load(checkpoint, weights_only=True)
    if damage == "cut":
        checkpoint.write_bytes(checkpoint.read_bytes()[:-2000])
    elif damage == "pickle":
        torch.save({**content, "epochs": Listener}, checkpoint)
    else:
        torch.save({**content, "fingerprint": "0" * 64}, checkpoint)
    with pytest.raises(FsbenchError, match="damaged or belongs to another training") as caught:
        train(dataset, out)
    assert str(checkpoint) in caught.value.message
    assert "Remove it" in caught.value.hint


def test_extract_finds_the_weights_and_the_header_tells_how_they_came_about(
    dataset: ImageDataset, unbroken: tuple[Path, Trained, Listener]
) -> None:
    out, trained, _ = unbroken
    assert find_weights(out.parents[1], "stripes", "rn12") == out
    backbone = load_backbone("rn12", out)
    assert (backbone.info.family, backbone.info.feature_dim, backbone.info.image_size) == ("rn12-easy", 10, 32)
    found = facts(out)
    assert found["command"] == (
        f"fsbench train --backbone rn12 --dataset stripes --data {dataset.root} --width 1 --epochs 3 --batch 24 "
        "--lr 0.05 --seed 7 --rotation --mixup --flip --no-small-first"
    )
    assert (found["dataset"], found["seed"], found["epochs"], found["width"]) == ("stripes", "7", "3", "1")
    assert found["val_accuracy"] == str(trained.history[-1])
    assert found["split_digest"] == dataset.split_digest
    assert json.loads(found["versions"])["fsbench"] == fsbench.__version__
    assert json.loads(found["training"])["lr"] == 0.05


def test_progress_is_told_epoch_by_epoch(unbroken: tuple[Path, Trained, Listener]) -> None:
    out, trained, listener = unbroken
    assert [found.epoch for found in trained.history] == [2, 3]
    lines = listener.said
    assert len(lines) == 3
    assert all(" images/s" in line and "loss " in line for line in lines)
    assert ["left" in line for line in lines] == [True, True, False]
    assert [f"val {found}" in line for line in lines[1:] for found in trained.history] == [True, False, False, True]
    description = "\n".join(trained.describe())
    assert str(out) in description
    assert f"trained in 0:00:{round(trained.seconds):02d}" in description
    assert "after epoch" in description
    assert "last epoch" in description


def test_it_learns(dataset: ImageDataset, tmp_path: Path) -> None:
    listener = Listener()
    settings = replace(SETTINGS, width=2, epochs=6, batch=12, mixup=False)
    trained = train(dataset, tmp_path / "x.safetensors", settings, listener)
    losses = [float(line.partition("loss ")[2].partition(",")[0]) for line in listener.said]
    assert losses[-1] < 0.75 * losses[0]
    assert trained.history[-1].accuracy[1].mean > 60  # chance is 20


def test_finished_weights_are_not_trained_again_and_others_not_replaced(
    dataset: ImageDataset, tmp_path: Path, unbroken: tuple[Path, Trained, Listener]
) -> None:
    out = tmp_path / "rn12.safetensors"
    shutil.copy(unbroken[0], out)
    stamp = out.stat().st_mtime_ns
    listener = Listener()
    assert train(dataset, out, reporter=listener).describe() == [str(out)]
    assert listener.said == [f"{out} exists already, trained in the same way."]
    other = replace(SETTINGS, epochs=1)
    with pytest.raises(FsbenchError, match="made in another way") as caught:
        train(dataset, out, other)
    assert "--force" in caught.value.hint
    assert out.stat().st_mtime_ns == stamp
    train(dataset, out, other, force=True)
    assert facts(out)["epochs"] == "1"
    (tmp_path / "rn18.pth.tar").write_bytes(b"")
    with pytest.raises(FsbenchError, match=r"rn18\.pth\.tar exists already"):
        train(dataset, tmp_path / "rn18.safetensors", replace(SETTINGS, backbone="rn18"))
    with pytest.raises(FsbenchError, match=r"ends in \.safetensors"):
        train(dataset, tmp_path / "rn12.pth")


def test_a_training_that_diverges_stops_and_leaves_no_weights(dataset: ImageDataset, tmp_path: Path) -> None:
    out = tmp_path / "rn12.safetensors"
    with pytest.raises(FsbenchError, match="diverged in epoch 1: the loss") as caught:
        train(dataset, out, replace(SETTINGS, lr=1e30))
    assert "Lower --lr, which is 1e+30" in caught.value.hint
    single_step = replace(SETTINGS, lr=1e30, batch=72, epochs=1)  # no loss is computed after it
    with pytest.raises(FsbenchError, match="diverged in epoch 1: features"):
        train(dataset, out, single_step)
    assert not list(tmp_path.iterdir())


def test_without_enough_val_classes_it_trains_all_the_same(tmp_path: Path) -> None:
    for number, (counts, words) in enumerate(
        [({"base": (2, 6)}, "no val classes"), ({"base": (2, 6), "val": (3, 20)}, "5 ways asked for")]
    ):
        listener = Listener()
        out = tmp_path / f"{number}.safetensors"
        settings = replace(SETTINGS, epochs=1, batch=64)  # larger than the data set
        trained = train(stripes(tmp_path / str(number), 16, counts), out, settings, listener)
        assert trained.history == ()
        assert words in listener.warned[0]
        assert "val_accuracy" not in facts(out)


def test_one_base_class_is_not_enough(tmp_path: Path) -> None:
    for counts, words in [({"base": (1, 6)}, "has 1"), ({"val": (5, 20)}, "has none")]:
        data = stripes(tmp_path / words, 16, counts)
        with pytest.raises(FsbenchError, match=words):
            train(data, tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backbone": "rn21"}, "Unknown backbone"),
        ({"epochs": 0}, "at least one epoch"),
        ({"lr": float("nan")}, "learning rate"),
        ({"lr": 0.0}, "learning rate"),
        ({"seed": -1}, "random seed"),
        ({"batch": 9, "ranks": 2}, "cannot be divided among 2"),
        ({"batch": 2, "ranks": 2}, "too small for 2"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(FsbenchError, match=words):
        replace(SETTINGS, **changes)  # type: ignore[arg-type]
