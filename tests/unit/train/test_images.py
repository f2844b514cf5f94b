from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from fsbench.data.scan import load_own
from fsbench.data.transforms import transform_for
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from fsbench.train import images as draws
from fsbench.train.images import LEAST_AREA, Batch, Key, Keys, Views, load_batches, make_views
from fsbench.train.settings import TrainSettings
from tests.images import note_opened
from tests.unit.train.stripes import stripes

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import EvalTransform

SMALL = transform_for("simpleshot", None, 16)  # resized by PIL to 36, centre 32
USUAL = transform_for("simpleshot", None)
SETTINGS = TrainSettings(epochs=2, batch=5, seed=4)
QUIET = Reporter(quiet=True)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ImageSplit:
    counts = {"base": (4, 3), "val": (2, 1)}
    return stripes(tmp_path_factory.mktemp("stripes"), 16, counts).splits["base"]


def get(views: Views, epoch: int, rows: list[int]) -> Batch:
    batch = views[Key(epoch, np.array(rows))]
    assert isinstance(batch, Batch)
    return batch


def test_shifts_go_beyond_the_edge_into_a_mirror_image(base: ImageSplit) -> None:
    views = make_views(base, SMALL, replace(SETTINGS, flip=False), QUIET)
    found, labels, _ = get(views, 3, list(range(12)))
    assert labels.tolist() == base.labels.tolist()
    seen = set()
    for row, (right, down) in enumerate(draws.shifts(4, 3, np.arange(12), 9)):
        canvas = np.asarray(base.open(row).resize((36, 36), Image.Resampling.BILINEAR))
        padded = np.pad(canvas, ((2, 2), (2, 2), (0, 0)), mode="symmetric") / 255  # 40 = 32 + 8
        crop = (padded[down : down + 32, right : right + 32] - SMALL.mean) / SMALL.std
        np.testing.assert_allclose(found[row].numpy(), crop.transpose(2, 0, 1), rtol=0, atol=1e-4)
        seen |= {down, right}
    assert min(seen) < 2  # some do go beyond the edge
    assert max(seen) > 6


def test_crops_are_parts_of_the_image_resized(tmp_path: Path) -> None:
    """A ramp from left to right and one from top to bottom show where a crop was taken, whatever the aspect ratio."""
    for name, (width, height) in {"wide": (200, 100), "tall": (100, 150)}.items():
        across, along = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
        pixels = np.stack([across, along, np.zeros_like(across)], axis=2).astype(np.uint8)
        for label in ("a", "b"):
            (tmp_path / "base" / f"{name}-{label}").mkdir(parents=True)
            Image.fromarray(pixels).save(tmp_path / "base" / f"{name}-{label}" / "0.png")
    split = load_own(tmp_path, name="ramps").splits["base"]
    rows = np.arange(len(split))
    aspects = np.array([split.open(int(row)).width / split.open(int(row)).height for row in rows])
    views = make_views(split, USUAL, replace(SETTINGS, flip=False), QUIET)
    centres, sizes = draws.crops(4, 1, rows, aspects, LEAST_AREA)
    images = get(views, 1, rows.tolist()).images
    values = images * torch.tensor(USUAL.std)[:, None, None] + torch.tensor(USUAL.mean)[:, None, None]
    for row in rows:
        seen = np.array([values[row, 0].mean(), values[row, 1].mean()])
        np.testing.assert_allclose(seen, centres[row], atol=0.02)
        extent = [np.ptp(values[row, 0].numpy()), np.ptp(values[row, 1].numpy())]
        np.testing.assert_allclose(extent, sizes[row] * 83 / 84, atol=0.03)


def test_flips_mirror_the_images_they_are_drawn_for(base: ImageSplit) -> None:
    rows = list(range(12))
    plain = get(make_views(base, SMALL, replace(SETTINGS, flip=False), QUIET), 1, rows)
    views = make_views(base, SMALL, SETTINGS, QUIET)
    flipped = draws.flips(4, 1, np.arange(12))
    assert 0 < flipped.sum() < 12
    for image, upright, mirrored in zip(get(views, 1, rows).images, plain.images, flipped, strict=True):
        torch.testing.assert_close(image, upright.flip(2) if mirrored else upright, rtol=0, atol=1e-4)
    assert torch.equal(plain.turns, torch.from_numpy(draws.turns(4, 1, np.arange(12))))


@pytest.mark.parametrize("transform", [SMALL, USUAL], ids=["small", "usual"])
def test_views_change_with_the_epoch_and_with_nothing_else(
    base: ImageSplit, transform: EvalTransform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = make_views(base, transform, SETTINGS, QUIET)
    batch = get(views, 0, [0, 5, 11])
    assert batch.images.shape == (3, 3, transform.crop, transform.crop)
    assert torch.equal(get(views, 0, [5]).images[0], batch.images[1])
    assert not torch.equal(get(views, 1, [5]).images[0], batch.images[1])
    made = make_views(base, transform, SETTINGS, QUIET, tmp_path)  # decoded into a file
    monkeypatch.setattr(draws, "decode_into_memory", None)
    opened = note_opened(monkeypatch)
    again = make_views(base, transform, SETTINGS, QUIET, tmp_path)  # reads the file
    assert len(opened) < len(base)  # a sample
    for one in (made, again):
        assert all(torch.equal(*pair) for pair in zip(get(one, 0, [0, 5, 11]), batch, strict=True))


def test_workers_change_nothing(base: ImageSplit) -> None:
    views = make_views(base, SMALL, SETTINGS, QUIET)
    keys = Keys(SETTINGS, len(base))
    alone, together = (list(load_batches(views, keys, workers, CPU)) for workers in (0, 2))
    assert len(alone) == len(together) == 2 * (12 // 5)
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, Batch)
        assert isinstance(other, Batch)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_every_rank_takes_its_share_of_every_batch_and_as_many_as_the_others() -> None:
    settings = replace(SETTINGS, batch=6, ranks=3)
    shares = [list(Keys(settings, 20, rank)) for rank in range(3)]
    assert [len(share) for share in shares] == [2 * 3] * 3  # 2 epochs of 3 batches; 2 images left out of each
    whole = list(Keys(replace(settings, ranks=1), 20))
    for number, key in enumerate(whole):
        parts = [share[number] for share in shares]
        assert {part.epoch for part in parts} == {key.epoch}
        assert [len(part.rows) for part in parts] == [2, 2, 2]
        np.testing.assert_array_equal(np.sort(np.concatenate([part.rows for part in parts])), np.sort(key.rows))


def test_a_batch_is_never_larger_than_the_data_set() -> None:
    keys = Keys(replace(SETTINGS, batch=64, ranks=2), 13)
    assert (keys.batch, keys.steps) == (12, 1)
    with pytest.raises(FsbenchError, match="3 base image"):
        _ = Keys(replace(SETTINGS, batch=64, ranks=2), 3).batch
