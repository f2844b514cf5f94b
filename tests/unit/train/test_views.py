from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fsbench.data.recipes import transform_for
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from fsbench.train import draws
from fsbench.train.loop import Keys, load_batches
from fsbench.train.settings import TrainSettings
from fsbench.train.views import Batch, Key, Pictures, ResizedCrops, ShiftedCrops, Views, make_views
from tests.unit.train.pictures import stripes

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageSplit

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


def test_small_images_without_shift_are_those_of_the_evaluation(
    base: ImageSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "shifts", lambda seed, epoch, rows, choices: np.full((len(rows), 2), choices // 2))
    views, _ = make_views(base, SMALL, "stripes", replace(SETTINGS, flip=False), QUIET)
    batch = get(views, 0, [7, 2])
    expected = torch.stack([SMALL(base.open(7)), SMALL(base.open(2))])
    torch.testing.assert_close(batch.images, expected, rtol=0, atol=1e-6)
    assert batch.labels.tolist() == [2, 0]


def test_shifts_go_beyond_the_edge_into_a_mirror_image(base: ImageSplit) -> None:
    pictures = Pictures(base, 36)
    found = ShiftedCrops(SMALL, 4)(pictures, Key(3, np.arange(12)))
    seen = set()
    for row, (down, right) in enumerate(draws.shifts(4, 3, np.arange(12), 9)):
        canvas = np.asarray(base.open(row).resize((36, 36), 2))
        padded = np.pad(canvas, ((2, 2), (2, 2), (0, 0)), mode="reflect") / 255  # 40 = 32 + 8
        crop = (padded[down : down + 32, right : right + 32] - SMALL.mean) / SMALL.std
        np.testing.assert_allclose(found[row].numpy(), crop.transpose(2, 0, 1), rtol=0, atol=1e-5)
        seen |= {down, right}
    assert min(seen) < 2  # some do go beyond the edge
    assert max(seen) > 6


def test_flips_mirror_the_images_they_are_drawn_for(base: ImageSplit) -> None:
    rows = list(range(12))
    plain = get(make_views(base, SMALL, "stripes", replace(SETTINGS, flip=False), QUIET)[0], 1, rows)
    views, _ = make_views(base, SMALL, "stripes", SETTINGS, QUIET)
    flipped = draws.flips(4, 1, np.arange(12))
    assert 0 < flipped.sum() < 12
    for image, upright, mirrored in zip(get(views, 1, rows).images, plain.images, flipped, strict=True):
        assert torch.equal(image, upright.flip(2) if mirrored else upright)
    assert torch.equal(plain.turns, torch.from_numpy(draws.turns(4, 1, np.arange(12))))


@pytest.mark.parametrize("transform", [SMALL, USUAL], ids=["small", "usual"])
def test_views_change_with_the_epoch_and_with_nothing_else(base: ImageSplit, transform: object) -> None:
    views, in_memory = make_views(base, transform, "stripes", SETTINGS, QUIET)  # type: ignore[arg-type]
    assert in_memory
    assert isinstance(views.crops, ShiftedCrops if transform is SMALL else ResizedCrops)
    batch = get(views, 0, [0, 5, 11])
    side = 32 if transform is SMALL else 84
    assert batch.images.shape == (3, 3, side, side)
    assert torch.equal(get(views, 0, [5]).images[0], batch.images[1])
    assert not torch.equal(get(views, 1, [5]).images[0], batch.images[1])
    fresh = Views(Pictures(base, views.pictures.side), views.crops, SETTINGS)  # reads the files again and again
    assert torch.equal(get(fresh, 0, [0, 5, 11]).images, batch.images)


def test_images_are_kept_only_if_they_fit(base: ImageSplit) -> None:
    size = 12 * 36 * 36 * 3
    assert Pictures(base, 36).keep(QUIET, limit=size)
    refused = Pictures(base, 36)
    assert not refused.keep(QUIET, limit=size - 1)
    assert refused[3].shape == (36, 36, 3)
    assert Pictures(base, None)[3].shape == (16, 16, 3)


def test_workers_change_nothing(base: ImageSplit) -> None:
    views, _ = make_views(base, SMALL, "stripes", SETTINGS, QUIET)
    keys = Keys(SETTINGS, len(base))
    alone, together = (list(load_batches(views, keys, workers, CPU)) for workers in (0, 2))
    assert len(alone) == len(together) == 2 * (12 // 5)
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, Batch)
        assert isinstance(other, Batch)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_an_unreadable_image_is_named_without_a_traceback(tmp_path: Path) -> None:
    split = stripes(tmp_path, 16, {"base": (2, 3)}).splits["base"]
    views, _ = make_views(split, SMALL, "stripes", SETTINGS, QUIET)
    (tmp_path / "base" / "base0" / "01.png").write_bytes(b"not a picture")
    unread = Views(Pictures(split, 36), views.crops, SETTINGS)
    for workers in (0, 1):
        found = [item for item in load_batches(unread, Keys(SETTINGS, 6), workers, CPU) if not isinstance(item, Batch)]
        assert found
        assert isinstance(found[0], FsbenchError)
        assert "base/base0/01.png" in found[0].message
        assert "Traceback" not in str(found[0])
    with pytest.raises(FsbenchError, match=r"base/base0/01\.png"):
        make_views(split, SMALL, "stripes", SETTINGS, QUIET)


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


def test_keys_of_later_epochs_are_those_of_an_unbroken_run() -> None:
    later = list(Keys(replace(SETTINGS, epochs=3), 12, first_epoch=1))
    whole = list(Keys(replace(SETTINGS, epochs=3), 12))[2:]
    assert [key.epoch for key in later] == [key.epoch for key in whole] == [1, 1, 2, 2]
    for one, other in zip(later, whole, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)


def test_a_batch_is_never_larger_than_the_data_set() -> None:
    keys = Keys(replace(SETTINGS, batch=64, ranks=2), 13)
    assert (keys.batch, keys.steps) == (12, 1)
    with pytest.raises(FsbenchError, match="3 base image"):
        _ = Keys(replace(SETTINGS, batch=64, ranks=2), 3).batch
