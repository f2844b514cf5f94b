from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fsbench import ranks
from fsbench.cli.app import app
from fsbench.data.scan import load_own
from fsbench.reporter import Reporter
from fsbench.train.images import Batch, Keys, make_views, mixing
from fsbench.train.loop import Objective, learning_rate
from fsbench.train.run import Plan
from fsbench.train.settings import TrainSettings
from tests.unit.train.stripes import write_stripes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fsbench.data.dataset import ImageDataset

ROOT = Path(__file__).parents[3]
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


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """This process is the first of two, in the environment that torchrun gives it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    yield place
    ranks._rendezvous.cache_clear()


def test_two_processes_share_every_batch_and_drop_what_is_left_over(tmp_path: Path, place: dict[str, str]) -> None:
    folder = write_stripes(tmp_path / "stripes", 16, {"base": (3, 7), "val": (5, 20)})  # 21 = 2 · 10 + 1
    words = "--dataset stripes --width 1 --epochs 2 --lr 0.02 --batch 10 --seed 3 --rotation --mixup --device cpu"
    arguments = ["train", "--data", str(folder), *words.split(), "--weights-dir", str(tmp_path)]
    command = [sys.executable, "-m", "fsbench", *arguments]
    environment = {**os.environ, **place, "RANK": "1", "LOCAL_RANK": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as other:
        first = CliRunner().invoke(app, arguments)
        output, errors = other.communicate(timeout=300)
    assert first.exit_code == 0, first.output
    assert other.returncode == 0, errors
    assert "rn12.safetensors" in first.stdout
    assert "epoch 2 of 2" in first.stderr
    assert output == ""  # one process speaks
    assert "epoch" not in errors
    found = load_file(tmp_path / "stripes" / "rn12.safetensors")
    for name, parameter in expected_parameters(load_own(folder, name="stripes")).items():
        torch.testing.assert_close(found[name].float(), parameter.detach(), rtol=1e-3, atol=1e-4, msg=name)
