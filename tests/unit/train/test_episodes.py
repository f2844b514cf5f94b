"""Training on tasks: the tasks, the losses, and trainings that stop and go on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsbench.backbones.load import load_backbone
from fsbench.data.dataset import ImageDataset
from fsbench.errors import FsbenchError
from fsbench.methods.base import Context
from fsbench.methods.images.maml import Maml
from fsbench.methods.images.networks import load_network
from fsbench.methods.images.versa import Versa
from fsbench.train import episodes as module
from fsbench.train.episodes import EpisodeKeys, Learning
from fsbench.train.run import Trained, best_of, train_backbone
from fsbench.train.settings import RECIPES, Episodes, Execution, TrainSettings
from tests.unit.train.test_run import Listener, same
from tests.unit.train.tints import COUNTS, facts, tints

SETTINGS = TrainSettings("conv4", 4, epochs=2, batch=2, lr=0.01, seed=7)
TASKS = Episodes("maml", shots=(1, 2), queries=25, steps=2, rate=0.1, eval_every=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    return tints(tmp_path_factory.mktemp("tints"), counts={**COUNTS, "base": (6, 20)})


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UPDATES", 3)
    monkeypatch.setattr("fsbench.train.run.METHOD_TASKS", 4)


def train(dataset: ImageDataset, out: Path, recipe: str, reporter: Listener | None = None) -> Trained:
    settings = replace(SETTINGS, episodes=replace(TASKS, recipe=recipe))
    execution = Execution(torch.device("cpu"), reporter or Listener(), eval_every=1)
    return train_backbone(dataset, settings, execution, out)


def fresh(width: int) -> Any:
    return load_backbone("conv4", random_seed=0, width=width).network


@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_a_stopped_training_ends_with_the_same_network(dataset: ImageDataset, tmp_path: Path, recipe: str) -> None:
    out, stopped, listener = tmp_path / "conv4.safetensors", tmp_path / "stopped.safetensors", Listener()
    whole = train(dataset, out, recipe)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, stopped, recipe, Listener("epoch 1 of 2"))
    resumed = train(dataset, stopped, recipe, listener)
    assert listener.said[0].startswith("Resuming: 1 of 2 epochs")
    assert same(out, stopped)
    assert resumed.progress.history == whole.progress.history
    best = best_of(whole.progress.history)
    assert f"The file holds epoch {best.epoch}, the best on the val classes." in whole.describe()
    assert train(dataset, out, recipe).describe() == [str(out)]  # done already
    assert (facts(out)["val_accuracy"], facts(out)["recipe"]) == (str(best), recipe)
    made: type[Maml | Versa] = Versa if recipe == "versa" else Maml
    variant = "transductive" if replace(TASKS, recipe=recipe).transductive else "inductive"
    method = made.configure(Context(balanced=True, network=load_network(out, "tints")), variant=variant)
    assert method.params()["weights"].startswith("conv4.safetensors@")
    if isinstance(method, Maml):
        assert (method.steps, method.rate) == (2 * TASKS.steps, TASKS.rate)


def test_processes_share_the_tasks_of_an_update() -> None:
    offsets = np.arange(0, 121, 20)
    alone = EpisodeKeys(SETTINGS, TASKS, offsets)
    shared = [EpisodeKeys(replace(SETTINGS, ranks=2, episodes=TASKS), TASKS, offsets, rank) for rank in (0, 1)]
    for update in range(4):
        numbers = np.sort(np.concatenate([keys.numbers(update) for keys in shared]))
        assert numbers.tolist() == alone.numbers(update).tolist()
        drawn = [keys.tasks(update).query for keys in shared]
        assert np.array_equal(np.stack(drawn, axis=1).reshape(2, -1), alone.tasks(update).query)
    assert alone.tasks(0).support.shape == (2, 5)
    assert alone.tasks(1).support.shape == (2, 10)  # one shot, two shots, in turn
    with pytest.raises(FsbenchError, match="images of every class"):
        EpisodeKeys(SETTINGS, replace(TASKS, queries=75), np.arange(0, 61, 10))


def test_the_head_of_maml_stays_zero() -> None:
    objective = Learning(fresh(2), TASKS, 3)
    images, support = torch.randn(1, 5 + 25, 3, 16, 16), torch.arange(5)[None]
    loss = objective(images, support, torch.randint(5, (1, 25)), np.array([0]))
    loss.backward()
    assert objective.model.head.weight.grad is None
    assert not objective.model.head.weight.any()
    assert not objective.extras()
    assert all(parameter.grad is not None for parameter in objective.backbone.parameters())
