"""Images of a training, its losses and its steps."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from fsbench.backbones.load import load_backbone
from fsbench.backbones.networks import Backbone
from fsbench.data.dataset import FolderImages, ImageSplit
from fsbench.data.scan import OwnData
from fsbench.data.transforms import EvalTransform, transform_for
from fsbench.train import images as draws
from fsbench.train.images import LEAST_AREA, Batch, Key, Keys, Mixing, Views, make_views
from fsbench.train.loop import Objective, Trainer, learning_rate, memory_format_of, mixed_features
from fsbench.train.settings import LABEL_SMOOTHING, TrainSettings
from tests.comparing import CPU, QUIET
from tests.pretend import CUDA, NoWaiting, PretendedGpu
from tests.unit.train.tints import tints
from tests.watching import watch

META = torch.device("meta")  # tensors without data stand for those of a GPU
PARTNERS = torch.tensor([2, 0, 1])
LABELS = torch.tensor([1, 0, 3])
TURNS = torch.tensor([0, 3, 2])
WIDTHS = {"rn12": 2, "rn18": 2, "wrn": 0.25, "conv4": 2}


def backbone(name: str) -> Backbone:
    network = load_backbone(name, random_seed=0, width=WIDTHS[name]).network
    assert isinstance(network, Backbone)
    return network  # in eval mode: an image's features then depend on that image alone


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", WIDTHS)
def test_mixing_acts_after_the_given_number_of_stages(name: str, images: torch.Tensor) -> None:
    network = backbone(name)
    with torch.no_grad():
        parts: list[Callable[[torch.Tensor], torch.Tensor]] = [network.stem, *network.stages()]
        maps = [images]
        for part in parts:
            maps.append(part(maps[-1]))
        for position in range(len(network.stages()) + 1):
            mixed = maps[position + 1 if position else 0]  # maps[1] is the output of the stem
            mixed = 0.3 * mixed + 0.7 * mixed[PARTNERS]
            for part in parts[position + 1 if position else 0 :]:
                mixed = part(mixed)
            found = mixed_features(network, images, position, 0.3, PARTNERS)
            torch.testing.assert_close(found, network.pool(mixed), rtol=1e-5, atol=1e-6)
            untouched = mixed_features(network, images, position, 1.0, PARTNERS)
            torch.testing.assert_close(untouched, network(images), rtol=1e-5, atol=1e-6)


def test_loss_is_the_mean_of_class_and_rotation_loss_plus_the_mixed_loss(images: torch.Tensor) -> None:
    network = backbone("rn12")
    objective = Objective(network, classes=5, rotation=True, seed=0)
    assert objective.turn_head is not None
    with torch.no_grad():
        turned = network(torch.stack([image.rot90(int(n), (1, 2)) for image, n in zip(images, TURNS, strict=True)]))
        own = functional.cross_entropy(objective.class_head(turned), LABELS, label_smoothing=LABEL_SMOOTHING)
        rotation = functional.cross_entropy(objective.turn_head(turned), TURNS)
        logits = objective.class_head(network(0.25 * images + 0.75 * images[PARTNERS])).log_softmax(dim=1)
        targets = 0.25 * functional.one_hot(LABELS, 5) + 0.75 * functional.one_hot(LABELS[PARTNERS], 5)
        targets = (1 - LABEL_SMOOTHING) * targets + LABEL_SMOOTHING / 5
        mixed = -(targets * logits).sum(dim=1).mean()
        found = objective(images, LABELS, TURNS, Mixing(0, 0.25, PARTNERS.numpy()))
        torch.testing.assert_close(found, (own + rotation) / 2 + mixed)
        torch.testing.assert_close(objective(images, LABELS, TURNS, None), (own + rotation) / 2)
        upright = Objective(network, classes=5, rotation=False, seed=0)
        plain = upright.class_head(network(images))
        expected = functional.cross_entropy(plain, LABELS, label_smoothing=LABEL_SMOOTHING)
        torch.testing.assert_close(upright(images, LABELS, TURNS, None), expected)


def test_the_rate_rises_to_the_peak_and_falls_as_half_a_cosine() -> None:
    rates = [learning_rate(step, 200, 0.4, 0.05) for step in range(200)]
    assert rates[:10] == pytest.approx([0.04 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 0.4
    assert all(before > after for before, after in pairwise(rates[9:]))
    assert 0 < rates[-1] < 1e-3 * 0.4
    rates = [learning_rate(step, 10, 1.0, 0.0) for step in range(10)]  # one warm-up step and nine more
    assert rates == pytest.approx([math.cos(math.pi * step / 20) ** 2 for step in range(10)])


def test_channels_come_last_unless_strided_convolutions_would_overrun() -> None:
    for width, safe in ((2, False), (8, True), (12, False)):
        network = load_backbone("rn18", random_seed=0, width=width)
        assert memory_format_of(network, CPU) is (torch.channels_last if safe else torch.contiguous_format)
        assert memory_format_of(network, CUDA) is torch.channels_last


def test_a_step_does_not_wait_for_the_gpu() -> None:
    settings = TrainSettings("rn12", width=2, rotation=True, mixup=True)
    trainer = Trainer(Objective(backbone("rn12"), 4, rotation=True, seed=0), Keys(settings, 384), META)
    labels = torch.zeros(6, dtype=torch.int64)
    batch = Batch(torch.zeros(6, 3, 32, 32), labels, labels)
    with NoWaiting():
        for epoch in range(3):  # mixed in other places
            trainer.step(batch, epoch, 0)
    assert trainer._loss.device == META
    with NoWaiting(), pytest.raises(AssertionError, match="waits"):
        batch.images.to(META)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_bf16_is_for_products_and_the_weights_stay_in_fp32(precision: str, dtype: torch.dtype) -> None:
    """Without computing: some CPUs have no instructions for bf16."""
    settings = TrainSettings("rn12", width=2, rotation=True, mixup=True, precision=precision)
    objective = Objective(backbone("rn12"), 4, rotation=True, seed=0)
    trainer, labels = Trainer(objective, Keys(settings, 384), CPU), torch.zeros(6, dtype=torch.int64)
    dtypes: list[torch.dtype] = []
    for module in (objective.class_head, objective.backbone.stages()[1]):
        module.register_forward_hook(lambda module, given, result: dtypes.append(result.dtype))
    with FakeTensorMode(allow_non_fake_inputs=True):
        trainer.step(Batch(torch.zeros(6, 3, 32, 32), labels, labels), 0, 0)
        assert trainer._loss.dtype == torch.float32
    assert set(dtypes) == {dtype}
    assert {one.dtype for one in objective.parameters()} == {torch.float32}
    assert settings.facts().get("precision", "fp32") == precision


SMALL = transform_for("simpleshot", None, 16)  # resized by PIL to 36, centre 32
USUAL = transform_for("simpleshot", None)
SETTINGS = TrainSettings(epochs=2, batch=5, seed=4)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ImageSplit:
    return tints(tmp_path_factory.mktemp("tints"), 16, {"base": (4, 3), "val": (2, 1)}).splits["base"]


def get(views: Views, epoch: int, rows: list[int]) -> Batch:
    return views.batch(Key(epoch, np.array(rows)), CPU)


def test_images_are_shifted_beyond_the_edge_into_a_mirror_image_and_flipped_as_drawn(base: ImageSplit) -> None:
    rows, seen = np.arange(12), set()
    found, labels, turns = get(make_views(base, SMALL, SETTINGS, QUIET), 3, rows.tolist())
    assert labels.tolist() == base.labels.tolist()
    assert turns.tolist() == draws.turns(4, 3, rows).tolist()
    flipped = draws.flips(4, 3, rows)
    assert 0 < flipped.sum() < 12
    for row, (right, down) in enumerate(draws.shifts(4, 3, rows, 9)):
        canvas = np.asarray(base.open(row).resize((36, 36), Image.Resampling.BILINEAR))
        padded = np.pad(canvas, ((2, 2), (2, 2), (0, 0)), mode="symmetric") / 255  # 40 = 32 + 8
        crop = (padded[down : down + 32, right : right + 32] - SMALL.mean) / SMALL.std
        crop = crop[:, ::-1] if flipped[row] else crop
        np.testing.assert_allclose(found[row].numpy(), crop.transpose(2, 0, 1), rtol=0, atol=1e-4)
        seen |= {down, right}
    assert (min(seen) < 2, max(seen) > 6) == (True, True)  # some do go beyond the edge


def test_crops_are_parts_of_the_image_resized(tmp_path: Path) -> None:
    """A ramp from left to right and one from top to bottom show where a crop was taken, whatever the aspect ratio."""
    for name, (width, height) in {"wide": (200, 100), "tall": (100, 150)}.items():
        across, along = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
        pixels = np.stack([across, along, np.zeros_like(across)], axis=2).astype(np.uint8)
        (tmp_path / "base" / name).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(pixels).save(tmp_path / "base" / name / f"{number}.png")
    split = OwnData(tmp_path).load("ramps").splits["base"]
    rows, aspects = np.arange(4), np.array([100 / 150, 100 / 150, 2, 2])
    views = make_views(split, USUAL, replace(SETTINGS, flip=False), QUIET)
    centres, sizes = draws.crops(4, 1, rows, aspects, LEAST_AREA)
    images = get(views, 1, rows.tolist()).images
    values = images * torch.tensor(USUAL.std)[:, None, None] + torch.tensor(USUAL.mean)[:, None, None]
    for row in rows:
        ramps = values[row, :2].flatten(1).numpy()
        np.testing.assert_allclose(ramps.mean(axis=1), centres[row], atol=0.02)
        np.testing.assert_allclose(np.ptp(ramps, axis=1), sizes[row] * 83 / 84, atol=0.03)


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
    opened = watch(monkeypatch, FolderImages, "open", lambda reader, name, content: name)
    again = make_views(base, transform, SETTINGS, QUIET, tmp_path)  # reads the file
    assert len(opened) < len(base)  # a sample
    for one in (made, again):
        assert all(torch.equal(*pair) for pair in zip(get(one, 0, [0, 5, 11]), batch, strict=True))


def test_images_go_to_a_gpu_as_bytes_and_are_sampled_there(base: ImageSplit) -> None:
    views, key = make_views(base, SMALL, SETTINGS, QUIET), Key(1, np.arange(12))
    expected = views.batch(key, CPU)
    with PretendedGpu() as gpu:
        views.batch(key, CUDA)
        sent, waits = gpu.sent, gpu.waits
        batch = views.batch(key, CUDA)
        assert gpu.waits == waits
        assert gpu.sent - sent == 12 * (36 * 36 * 3 + 6 * 4 + 8 + 8)  # pixels, where they go, labels and turns
        assert "grid_sampler_2d" in gpu.kernels
        assert all(torch.equal(one.cpu(), other) for one, other in zip(batch, expected, strict=True))


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
    keys = Keys(replace(SETTINGS, batch=64, ranks=2), 13)
    assert (keys.batch, keys.steps) == (12, 1)  # a batch is never larger than the data set


ROWS = np.arange(4000)


def test_all_choices_are_equally_frequent_and_change_with_the_epoch() -> None:
    first, second, other = draws.order(3, 0, 500), draws.order(3, 1, 500), draws.order(4, 0, 500)
    np.testing.assert_array_equal(np.sort(first), np.arange(500))
    assert min((first != second).mean(), (first != other).mean()) > 0.9
    for epoch in (0, 7):
        counts = [
            np.bincount(draws.turns(1, epoch, ROWS), minlength=4),
            np.bincount(draws.flips(1, epoch, ROWS).astype(int), minlength=2),
            *(np.bincount(shift, minlength=9) for shift in draws.shifts(1, epoch, ROWS, 9).T),
        ]
        for found in counts:
            assert found.sum() == len(ROWS)
            assert stats.chisquare(found).pvalue > 1e-3
    assert (draws.turns(1, 0, ROWS) != draws.turns(1, 1, ROWS)).mean() == pytest.approx(0.75, abs=0.05)
    assert np.corrcoef(draws.flips(1, 0, ROWS), draws.turns(1, 0, ROWS) % 2)[0, 1] == pytest.approx(0, abs=0.06)


def test_crops_lie_inside_the_image_with_the_area_and_shape_asked_for() -> None:
    aspects = np.where(ROWS % 2, 1.0, 2.0)
    centres, sizes = draws.crops(1, 0, ROWS, aspects, 0.25)
    assert (np.abs(2 * centres - 1) + sizes <= 1 + 1e-12).all()
    area, ratio = sizes.prod(axis=1), sizes[:, 0] / sizes[:, 1] * aspects
    whole = (sizes < 1).all(axis=1)  # nothing cut off
    assert whole.mean() > 0.4
    assert (area[whole] >= 0.25).all()
    assert np.abs(np.log(ratio[whole])).max() <= np.log(4 / 3) + 1e-9


def test_mixing_follows_beta_and_permutes_the_batch() -> None:
    drawn = [draws.mixing(0, 2, step, stages=4, images=8) for step in range(1500)]
    assert stats.kstest([mixing.share for mixing in drawn], stats.beta(2, 2).cdf).pvalue > 1e-3
    assert stats.chisquare(np.bincount([mixing.position for mixing in drawn], minlength=5)).pvalue > 1e-3
    for mixing in drawn[:50]:
        np.testing.assert_array_equal(np.sort(mixing.partners), np.arange(8))
    assert len({tuple(mixing.partners) for mixing in drawn[:50]}) == 50
    assert draws.mixing(0, 3, 7, stages=4, images=8).share != drawn[7].share  # in another epoch
