"""Training on tasks: the tasks, the losses, and trainings that stop and go on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from fsbench.backbones.load import load_backbone
from fsbench.data.pixels import open_pixels
from fsbench.errors import FsbenchError
from fsbench.methods.base import Context
from fsbench.methods.maml import Maml
from fsbench.methods.networks import load_network
from fsbench.methods.versa import Versa
from fsbench.train import episodes as module
from fsbench.train.episodes import EpisodeKeys, Learning, Prototypes
from fsbench.train.run import default_output, train_backbone
from fsbench.train.settings import RECIPES, Episodes, Execution, TrainSettings
from tests.unit.train.stripes import COUNTS, stripes
from tests.unit.train.test_run import Listener, same

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageDataset
    from fsbench.train.run import Trained

SETTINGS = TrainSettings("conv4", 4, epochs=3, batch=2, lr=0.01, seed=7)
TASKS = Episodes("maml", shots=(1, 2), queries=25, steps=2, rate=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    return stripes(tmp_path_factory.mktemp("stripes"), counts={**COUNTS, "base": (6, 20)})


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UPDATES", 3)
    monkeypatch.setattr(module, "_VAL_TASKS", 8)


def train(dataset: ImageDataset, out: Path, recipe: str, reporter: Listener | None = None) -> Trained:
    settings = replace(SETTINGS, episodes=replace(TASKS, recipe=recipe))
    execution = Execution(torch.device("cpu"), reporter or Listener(), eval_every=1, save_every=0)
    return train_backbone(dataset, settings, execution, out)


def fresh(width: int) -> Any:
    return load_backbone("conv4", random_seed=0, width=width).network


@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_a_stopped_training_ends_with_the_very_same_weights(dataset: ImageDataset, tmp_path: Path, recipe: str) -> None:
    whole = train(dataset, tmp_path / "whole.safetensors", recipe)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, tmp_path / "stopped.safetensors", recipe, Listener("epoch 2 of 3"))
    listener = Listener()
    resumed = train(dataset, tmp_path / "stopped.safetensors", recipe, listener)
    assert listener.said[0].startswith("Resuming: 2 of 3 epochs")
    assert same(tmp_path / "whole.safetensors", tmp_path / "stopped.safetensors")
    assert resumed.history == whole.history


@pytest.mark.parametrize("recipe", ["maml", "maml:transductive", "versa"])
def test_the_file_holds_the_best_of_the_evaluated_networks(dataset: ImageDataset, tmp_path: Path, recipe: str) -> None:
    out = tmp_path / "conv4.safetensors"
    trained = train(dataset, out, recipe)
    best = max(trained.history, key=lambda look: (look.accuracy[1].mean, look.epoch))
    assert "The file holds the best network on the val classes." in trained.describe()
    with safe_open(out, "pt") as file:
        facts = json.loads(file.metadata()["fsbench"])
    assert facts["val_accuracy"] == str(best)
    assert facts["recipe"] == recipe
    network = load_network(out, "stripes")
    variant = "transductive" if recipe.endswith(":transductive") else "inductive"
    made: type[Maml | Versa] = Versa if recipe == "versa" else Maml
    method = made.configure(Context(balanced=True, network=network), variant=variant)
    assert method.params()["weights"].startswith("conv4.safetensors@")
    if isinstance(method, Maml):
        assert (method.steps, method.rate) == (2 * TASKS.steps, TASKS.rate)
    again = train(dataset, out, recipe)  # done already
    assert again.history == ()
    split = dataset.splits["val"]
    judge = module.EpisodeValidation(
        split, open_pixels(split, network.transform, None, Listener()), network.transform, network.backbone.info, facts,
        replace(TASKS, recipe=recipe),
    )  # fmt: skip
    bare: Any = network.backbone.network
    objective = module.OBJECTIVES[recipe](bare, replace(TASKS, recipe=recipe), 0)
    if isinstance(objective, module.Amortising):
        objective.amortised.load_state_dict(network.extras)
    assert judge(objective, torch.device("cpu"), 1).accuracy[1].mean == pytest.approx(best.accuracy[1].mean, abs=2)


def test_protonet_gives_an_ordinary_backbone(dataset: ImageDataset, tmp_path: Path) -> None:
    out = default_output(tmp_path, "stripes", "conv4", "protonet")
    assert out == tmp_path / "stripes" / "conv4.safetensors"
    train(dataset, out, "protonet")
    assert load_backbone("conv4", out).info.feature_dim == 16
    assert not [name for name in load_file(out) if name.startswith("classifier.")]
    assert default_output(tmp_path, "x", "conv4", "maml:transductive").name == "conv4-maml-transductive.safetensors"


def test_training_on_tasks_learns(dataset: ImageDataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "UPDATES", 40)
    trained = train(dataset, tmp_path / "conv4.safetensors", "protonet")
    assert trained.history[-1].accuracy[1].mean > 40  # 20 by chance


def test_processes_share_the_tasks_of_an_update() -> None:
    offsets = np.arange(0, 121, 20)
    alone = EpisodeKeys(SETTINGS, TASKS, offsets, 16)
    shared = [EpisodeKeys(replace(SETTINGS, ranks=2, episodes=TASKS), TASKS, offsets, 16, rank) for rank in (0, 1)]
    for update in range(4):
        numbers = np.sort(np.concatenate([keys.numbers(update) for keys in shared]))
        assert numbers.tolist() == alone.numbers(update).tolist()
        drawn = [keys.tasks(update).query for keys in shared]
        assert np.array_equal(np.stack(drawn, axis=1).reshape(2, -1), alone.tasks(update).query)
    assert alone.tasks(0).support.shape == (2, 5)
    assert alone.tasks(1).support.shape == (2, 10)  # one shot, two shots, in turn


def test_a_training_resumes_with_the_tasks_that_are_left() -> None:
    offsets = np.arange(0, 121, 20)
    whole = list(EpisodeKeys(SETTINGS, TASKS, offsets, 16))
    rest = list(EpisodeKeys(SETTINGS, TASKS, offsets, 16, first=(1, 2)))
    assert len(whole) == 9
    assert [key.rows.tolist() for key in rest] == [key.rows.tolist() for key in whole[5:]]


def test_prototypes_by_the_book() -> None:
    torch.manual_seed(0)
    support, queries = torch.randn(6, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    labels, wanted = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([2, 0, 1, 1, 0])
    objective = Prototypes(fresh(1), replace(TASKS, ways=3), 0)
    expected = 0.0
    for query, label in zip(queries, wanted, strict=True):
        means = [torch.stack([row for row, k in zip(support, labels, strict=True) if k == c]).mean(0) for c in range(3)]
        scores = np.array([-((query - mean) ** 2).sum().item() for mean in means])
        expected -= scores[label] - np.log(np.exp(scores).sum())
    assert objective.loss(support, labels, queries, wanted, 0).item() == pytest.approx(expected / 5, rel=1e-9)


@pytest.mark.parametrize("head", ["zero", "learned"])
def test_the_head_of_maml_is_trained_or_stays_zero(head: str) -> None:
    objective = Learning(fresh(2), replace(TASKS, head=head), 3)
    images, support = torch.randn(1, 5 + 25, 3, 16, 16), torch.arange(5)[None]
    loss = objective(images, support, torch.randint(5, (1, 25)), np.array([0]))
    loss.backward()
    assert (objective.model.head.weight.grad is not None) == (head == "learned")
    assert bool(objective.model.head.weight.any()) == (head == "learned")
    assert set(objective.extras()) == ({"head.weight", "head.bias"} if head == "learned" else set())
    assert all(parameter.grad is not None for parameter in objective.backbone.parameters())


def test_noise_of_versa_belongs_to_the_task() -> None:
    objective = module.Amortising(fresh(2), TASKS, 3)
    features = torch.randn(5, 8), torch.arange(5), torch.randn(4, 8), torch.tensor([0, 1, 2, 3])
    first, again, other = (objective.loss(*features, number).item() for number in (11, 11, 12))
    assert first == again != other


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"recipe": "mamml"}, "maml"),
        ({"head": "none"}, "zero"),
        ({"shots": ()}, "at least one shot"),
        ({"steps": 0}, "one inner step"),
        ({"rate": 0.0}, "positive"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(FsbenchError, match=message) as caught:
        replace(TASKS, **wrong)  # type: ignore[arg-type]
    assert caught.value.message


def test_classes_too_small_for_tasks_are_refused() -> None:
    with pytest.raises(FsbenchError, match="images of every class"):
        EpisodeKeys(SETTINGS, replace(TASKS, queries=75), np.arange(0, 61, 10), 16)


def test_cross_entropy_after_no_change_is_that_of_equal_chances() -> None:
    objective = Learning(
        fresh(2),
        replace(TASKS, rate=1e-12),
        0,
    )
    images = torch.randn(2, 30, 3, 16, 16)
    loss = objective(images, torch.arange(5).repeat(2, 1), torch.randint(5, (2, 25)), np.array([0, 1]))
    assert loss.item() == pytest.approx(functional.cross_entropy(torch.zeros(1, 5), torch.tensor([0])).item(), rel=1e-6)
    assert isinstance(objective.model.head, nn.Linear)
