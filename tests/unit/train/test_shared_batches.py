from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from fsbench.data.scan import load_own
from fsbench.reporter import Reporter
from fsbench.train.images import Batch, Keys, make_views, mixing
from fsbench.train.loop import Objective, learning_rate
from fsbench.train.run import Plan
from fsbench.train.settings import TrainSettings
from tests.cli.torchrun import torchrun
from tests.unit.train.stripes import write_stripes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from torch import Tensor

    from fsbench.data.dataset import ImageDataset

SETTINGS = TrainSettings("rn12", 1, epochs=2, batch=10, lr=0.02, seed=3, rotation=True, mixup=True, ranks=2)


def expected_parameters(dataset: ImageDataset) -> dict[str, Tensor]:
    """The same training in one process: half a batch after the other, gradients averaged."""
    plan = Plan.make(dataset, SETTINGS)
    views = make_views(plan.base, plan.transform, SETTINGS, Reporter(quiet=True))
    objective = Objective(plan.backbone.network, 3, rotation=True, seed=3).train()  # type: ignore[arg-type]
    optimiser = torch.optim.SGD(objective.parameters(), 1.0, 0.9, weight_decay=5e-4, nesterov=True)
    shares = zip(*(Keys(SETTINGS, len(plan.base), rank) for rank in (0, 1)), strict=True)
    for number, keys in enumerate(shares):
        epoch, step = divmod(number, 2)
        optimiser.param_groups[0]["lr"] = learning_rate(number, 4, 0.02, 0.05)
        optimiser.zero_grad()
        for key in keys:
            batch = views[key]
            assert isinstance(batch, Batch)
            (objective(*batch, mixing(3, epoch, step, 4, 5)) / 2).backward()
        optimiser.step()
    return dict(plan.backbone.network.named_parameters())


def test_two_processes_share_every_batch_and_drop_what_is_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_stripes(tmp_path / "stripes", 16, {"base": (3, 7), "val": (5, 20)})  # 21 = 2 · 10 + 1
    words = "--dataset stripes --width 1 --epochs 2 --lr 0.02 --batch 10 --seed 3 --rotation --mixup --device cpu"
    done = torchrun(2, "train", "--data", "stripes", *words.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rn12.safetensors") == done.stderr.count("epoch 2 of 2") == 1  # one process speaks
    weights = load_file(tmp_path / "weights" / "stripes" / "rn12.safetensors")
    for name, parameter in expected_parameters(load_own(folder, name="stripes")).items():
        torch.testing.assert_close(weights[name].float(), parameter.detach(), rtol=1e-3, atol=1e-4, msg=name)
