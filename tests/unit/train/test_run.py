from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from fsbench.backbones.load import load_backbone
from fsbench.data.dataset import ImageDataset
from fsbench.data.pixels import decode
from fsbench.data.scan import OwnData
from fsbench.data.transforms import transform_for
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from fsbench.results.statistics import Interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from fsbench.train.images import Keys, make_views, mixing
from fsbench.train.loop import Objective, learning_rate
from fsbench.train.run import Evaluation, Plan, Trained, Validation, best_of, default_output, train_backbone
from fsbench.train.settings import Execution, TrainSettings
from tests.cli.torchrun import torchrun
from tests.comparing import CPU
from tests.unit.train.tints import facts, tints, write_tints

SETTINGS = TrainSettings("rn12", 1, epochs=3, batch=24, lr=0.05, seed=7, rotation=True, mixup=True)


class Listener(Reporter):
    """Remembers what was said, and stops the training as Ctrl-C would: at a certain line, or after some steps."""

    def __init__(self, stop_at: str = "never", steps: int = 0) -> None:
        super().__init__(quiet=True)
        self.stop_at, self.steps, self.said, self.warned = stop_at, steps, list[str](), list[str]()

    def say(self, text: str) -> None:
        self.said.append(text)
        if text.startswith(self.stop_at):
            raise KeyboardInterrupt

    def warn(self, text: str) -> None:
        self.warned.append(text)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Any]:
        def advance(done: int, total: int | None = None) -> None:
            self.steps -= label.startswith("epoch")
            if label.startswith("epoch") and self.steps == 0:
                raise KeyboardInterrupt

        yield advance


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    return tints(tmp_path_factory.mktemp("tints"))


def train(
    dataset: ImageDataset,
    out: Path,
    settings: TrainSettings = SETTINGS,
    reporter: Listener | None = None,
    *,
    eval_every: int = 2,
    force: bool = False,
) -> Trained:
    execution = Execution(torch.device("cpu"), reporter or Listener(), eval_every=eval_every)
    return train_backbone(dataset, settings, execution, out, force=force)


Unbroken = tuple[Path, Trained, Listener]


@pytest.fixture(scope="module")
def unbroken(dataset: ImageDataset, tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    out = default_output(tmp_path_factory.mktemp("weights"), "tints", "rn12")
    listener = Listener()
    return out, train(dataset, out, reporter=listener), listener


def same(one: Path, other: Path) -> bool:
    mine, theirs = load_file(one), load_file(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(("steps", "epochs"), [(2, 0), (8, 2)])
def test_a_stopped_training_ends_with_the_very_same_weights(
    dataset: ImageDataset, tmp_path: Path, unbroken: Unbroken, steps: int, epochs: int
) -> None:
    out, resumed = tmp_path / "rn12.safetensors", Listener()
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, reporter=Listener(steps=steps))
    assert not out.exists()
    trained = train(dataset, out, reporter=resumed)
    assert not epochs or resumed.said[0] == f"Resuming: {epochs} of 3 epochs are done."
    assert len([line for line in resumed.said if line.startswith("epoch")]) == 3 - epochs
    assert same(out, unbroken[0])
    assert trained.progress.history == unbroken[1].progress.history  # those before the stop are not forgotten
    assert [path.name for path in tmp_path.iterdir()] == ["rn12.safetensors"]


def test_weights_are_in_half_precision_and_were_evaluated_so(dataset: ImageDataset, unbroken: Unbroken) -> None:
    out, trained, _ = unbroken
    assert {tensor.dtype for tensor in load_file(out).values() if tensor.ndim > 1} == {torch.float16}
    backbone = load_backbone("rn12", out)
    transform, split = transform_for("easy", None, 16), dataset.splits["val"]
    pixels = decode(split, transform, None, Listener()).pixels
    again = Validation(split, pixels, transform, torch.device("cpu")).of_backbone(backbone.network, 3)
    assert again.accuracy[1].mean == pytest.approx(trained.progress.history[-1].accuracy[1].mean, abs=0.1)


def test_a_training_is_bound_to_its_settings_and_to_the_content_of_its_images(tmp_path: Path) -> None:
    """Unfinished or finished: what changed is named, and nothing is overwritten unless that is asked for."""
    out, root = tmp_path / "rn12.safetensors", tmp_path / "images"
    dataset, settings = tints(root, 16, {"base": (2, 6)}), replace(SETTINGS, epochs=2, batch=12)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, settings, Listener("epoch 1"))
    image = root / "base" / "base1" / "003.png"
    original = image.read_bytes()
    for finished in (False, True):
        Image.new("RGB", (16, 16)).save(image)  # under the same name
        with pytest.raises(FsbenchError, match=r"content of base images: \w{16} there, \w{16} now") as caught:
            train(OwnData(root).load("tints"), out, settings)
        assert "names of" not in caught.value.message
        image.write_bytes(original)
        with pytest.raises(FsbenchError, match=r"lr: 0\.05 there, 0\.01 now"):
            train(dataset, out, replace(settings, lr=0.01))
        listener = Listener()
        train(dataset, out, settings, listener)
        assert finished == (listener.said == [f"{out} exists already, trained in the same way."])
    train(dataset, out, replace(settings, lr=0.01), force=True)
    assert facts(out)["lr"] == 0.01
    image.unlink()
    with pytest.raises(FsbenchError, match=r"base images: 12 there, 11 now"):
        train(OwnData(root).load("tints"), out, settings)


def test_a_damaged_checkpoint_is_refused(dataset: ImageDataset, tmp_path: Path) -> None:
    out = tmp_path / "rn12.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out, reporter=Listener("epoch 1"))
    (checkpoint,) = tmp_path.iterdir()
    stored = torch.load(checkpoint, weights_only=True)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-2000])
    for _ in range(2):
        with pytest.raises(FsbenchError, match="is damaged") as caught:
            train(dataset, out)
        assert str(checkpoint) in caught.value.message
        torch.save({**stored, "progress": Listener}, checkpoint)  # which asks for a class


def test_it_learns(dataset: ImageDataset, tmp_path: Path) -> None:
    listener = Listener()
    settings = replace(SETTINGS, width=2, epochs=6, batch=12, mixup=False)
    trained = train(dataset, tmp_path / "x.safetensors", settings, listener, eval_every=6)
    losses = [float(line.partition("loss ")[2].partition(",")[0]) for line in listener.said]
    assert losses[-1] < 0.75 * losses[0]
    assert trained.progress.history[-1].accuracy[1].mean > 60  # chance is 20


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
    out, listener = tmp_path / "x.safetensors", Listener()
    dataset = tints(tmp_path / "few", 16, {"base": (2, 6), "val": (3, 20)})
    settings = replace(SETTINGS, epochs=1, batch=64)  # larger than the data set
    assert train(dataset, out, settings, listener).progress.history == ()
    assert "5 ways asked for" in listener.warned[0]
    assert "val_accuracy" not in facts(out)
    with pytest.raises(FsbenchError, match="has 1"):
        train(tints(tmp_path / "single", 16, {"base": (1, 6)}), tmp_path / "x.safetensors")
    with pytest.raises(FsbenchError, match=r"ends in \.safetensors"):
        train(dataset, tmp_path / "rn12.pth")
    with pytest.raises(FsbenchError, match="cannot be divided among 2"):
        replace(SETTINGS, batch=9, ranks=2)


class OnePixel(nn.Module):
    """Features that change with the mode, so that a forgotten `eval()` shows."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, 5, 9] + (100.0 if self.training else 0.0)


def test_accuracy_is_that_of_a_plain_loop_over_tasks(tmp_path: Path) -> None:
    val = tints(tmp_path, 16, {"base": (2, 1), "val": (7, 21)}).splits["val"]
    transform = transform_for("simpleshot", None, 16)
    network, pixels = OnePixel().train(), decode(val, transform, None, Reporter(quiet=True)).pixels
    evaluation = Validation(val, pixels, transform, torch.device("cpu")).of_backbone(network, 4)
    assert network.training
    assert evaluation.epoch == 4
    features = np.stack([transform(val.open(row))[:, 5, 9].numpy() for row in range(len(val))])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for shots in (1, 5):
        drawn = sample_tasks(TaskProtocol(shots=shots, alpha=None), np.arange(0, 148, 21), 0, np.arange(500))
        right = []
        for support, query, labels in zip(drawn.support, drawn.query, drawn.query_labels, strict=True):
            means = features[support].reshape(shots, 5, 3).mean(axis=0)
            distances = np.linalg.norm(features[query][:, None] - means, axis=2)
            right.append((distances.argmin(axis=1) == labels).mean())
        assert evaluation.accuracy[shots].mean == pytest.approx(100 * np.mean(right), abs=0.02)
    assert 25 < evaluation.accuracy[1].mean < 99
    looks = [Evaluation(epoch, {1: Interval(mean, 1)}) for epoch, mean in ((2, 50), (4, 60), (6, 60))]
    assert [best_of(looks[:count]).epoch for count in (1, 2, 3)] == [2, 4, 6]


SHARED = TrainSettings("rn12", 1, epochs=2, batch=10, lr=0.02, seed=3, rotation=True, mixup=True, ranks=2)


def expected_parameters(dataset: ImageDataset) -> dict[str, Tensor]:
    """The same training in one process: half a batch after the other, gradients averaged."""
    plan = Plan.make(dataset, SHARED)
    views = make_views(plan.base, plan.transform, SHARED, Reporter(quiet=True))
    objective = Objective(plan.backbone.network, 3, rotation=True, seed=3).train()  # type: ignore[arg-type]
    optimiser = torch.optim.SGD(objective.parameters(), 1.0, 0.9, weight_decay=5e-4, nesterov=True)
    shares = zip(*(Keys(SHARED, len(plan.base), rank) for rank in (0, 1)), strict=True)
    for number, keys in enumerate(shares):
        epoch, step = divmod(number, 2)
        optimiser.param_groups[0]["lr"] = learning_rate(number, 4, 0.02, 0.05)
        optimiser.zero_grad()
        for key in keys:
            batch = views.batch(key, CPU)
            (objective(*batch, mixing(3, epoch, step, 4, 5)) / 2).backward()
        optimiser.step()
    return dict(plan.backbone.network.named_parameters())


def test_two_processes_share_every_batch_but_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_tints(tmp_path / "tints", 16, {"base": (3, 7), "val": (5, 20)})  # 21 = 2 · 10 + 1
    words = "--dataset tints --width 1 --epochs 2 --lr 0.02 --batch 10 --seed 3 --rotation --mixup --device cpu"
    done = torchrun(2, "train", "--data", "tints", *words.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rn12.safetensors") == done.stderr.count("epoch 2 of 2") == 1  # one process speaks
    weights = load_file(tmp_path / "weights" / "tints" / "rn12.safetensors")
    for name, parameter in expected_parameters(OwnData(folder).load("tints")).items():
        torch.testing.assert_close(weights[name].float(), parameter.detach(), rtol=1e-3, atol=1e-4, msg=name)
