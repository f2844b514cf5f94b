from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from PIL import Image

from fsbench.backbones.find_weights import shipped_weights
from fsbench.backbones.load import load_backbone
from fsbench.data.pixels import open_pixels, pixel_cache
from fsbench.data.published_transforms import transform_for
from fsbench.data.scan import load_own
from fsbench.errors import FsbenchError
from fsbench.features import extract as module
from fsbench.features.extract import Extraction, Settings, extract, refuse_unusable
from fsbench.features.forward import Forward, fold
from fsbench.features.shards import Shards
from fsbench.features.store import FeatureFile, write_features
from fsbench.reporter import Reporter
from tests.images import SPLITS, note_opened, write_images

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageDataset

CPU = torch.device("cpu")
QUIET = Reporter(quiet=True)
PLAIN = Settings(workers=0, batch=5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_images(tmp_path / "own", SPLITS)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.features.shards.IMAGES_PER_SHARD", 7)


def run(root: Path, out: Path, settings: Settings = PLAIN, force: bool = False) -> FeatureFile:
    backbone = load_backbone("rn12", random_seed=0, width=4)
    return extract(load_own(root), backbone, out, settings, CPU, QUIET, force=force)


def everything(file: FeatureFile) -> np.ndarray:
    return np.concatenate([file.read(name).features for name in file.splits])


def test_features_are_those_of_the_backbone_on_the_transformed_images(root: Path, tmp_path: Path) -> None:
    file = run(root, tmp_path / "f.h5")
    backbone, dataset = load_backbone("rn12", random_seed=0, width=4), load_own(root)
    images = module.Extraction(dataset, backbone, PLAIN).images
    with torch.inference_mode():
        for name, split in dataset.splits.items():
            stored = file.read(name)
            assert stored.class_names == split.class_names
            for i in range(len(split)):
                assert stored.images[i] == split.image_name(i)
                expected = backbone(images.transform(split.open(i))[None])[0]
                np.testing.assert_allclose(stored.features[i], expected, atol=2e-5, rtol=1e-4)


def test_provenance(root: Path, tmp_path: Path) -> None:
    provenance = run(root, tmp_path / "f.h5").provenance
    assert (provenance.dataset, provenance.backbone, provenance.family) == ("own", "rn12", "rn12-easy")
    assert provenance.weights == "none, seed 0"
    assert json.loads(provenance.transform)["crop"] == provenance.image_size == 32
    assert torch.__version__.startswith(provenance.libraries["torch"].partition("+")[0])
    assert provenance.libraries["torch"]


def test_batch_and_workers_change_nothing_that_matters(root: Path, tmp_path: Path) -> None:
    expected = everything(run(root, tmp_path / "a.h5"))
    for number, settings in enumerate([Settings(batch=1, workers=0), Settings(batch=64, workers=2)]):
        found = everything(run(root, tmp_path / f"{number}" / "f.h5", settings))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("transform", "splits"), [("simpleshot", ("base", "novel")), ("simpleshot", ()), ("easy", ("val",))]
)
def test_decoded_images_are_used_and_change_nothing(
    root: Path, tmp_path: Path, transform: str, splits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, dataset = replace(PLAIN, transform=transform), load_own(root)
    expected = everything(run(root, tmp_path / "elsewhere" / "a.h5", settings))
    for name in splits:
        open_pixels(dataset.splits[name], transform_for(transform, None, 20), pixel_cache(tmp_path), QUIET)
    opened = note_opened(monkeypatch)
    found = everything(run(root, tmp_path / "b.h5", replace(settings, cache=pixel_cache(tmp_path))))
    assert np.array_equal(found, expected)
    # Those of each class for their common size, those of the splits without a cache, and a sample of the others.
    compared = [8] * len(splits) if transform == "simpleshot" else []
    decoded = [len(split) for split in dataset.splits.values() if transform == "easy" or split.name not in splits]
    assert len(opened) == 8 + sum(compared) + sum(decoded)
    assert pixel_cache(tmp_path).exists() is bool(splits)  # none is made


def test_crops_are_averaged_and_do_not_depend_on_batch_or_workers(root: Path, tmp_path: Path) -> None:
    settings = Settings(crops=3, workers=0, batch=5)
    file = run(root, tmp_path / "a.h5", settings)
    other = run(root, tmp_path / "other" / "b.h5", Settings(crops=3, workers=2, batch=64))
    np.testing.assert_allclose(everything(file), everything(other), atol=1e-5)
    backbone, dataset = load_backbone("rn12", random_seed=0, width=4), load_own(root)
    images = module.Extraction(dataset, backbone, settings).images
    assert images.random_crops is not None
    split = dataset.splits["val"]
    crops = images.random_crops(split.open(1), split.image_name(1), 3)
    with torch.inference_mode():
        np.testing.assert_allclose(file.read("val").features[1], backbone(crops).mean(dim=0), atol=2e-5, rtol=1e-4)
    assert file.provenance.crops == 3
    assert not np.allclose(everything(file), everything(run(root, tmp_path / "c.h5")), atol=1e-3)


def test_an_interrupted_run_says_what_it_keeps_goes_on_and_ends_the_same(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(root, tmp_path / "elsewhere" / "whole.h5")
    out = tmp_path / "broken.h5"
    written: list[range] = []
    original = Shards.write

    def fail_after_two(self: Shards, part: range, *rest: object) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(part)
        original(self, part, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Shards, "write", fail_after_two)
    with pytest.raises(KeyboardInterrupt):
        run(root, out)
    assert not out.exists()
    assert "Kept: the features of 14 of 32 images" in capsys.readouterr().err

    def count(self: Shards, part: range, *rest: object) -> None:
        written.append(part)
        original(self, part, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Shards, "write", count)
    file = run(root, out)
    assert len(written) == len(set(written)) == 5  # 32 images in shards of 7: nothing was done twice
    np.testing.assert_array_equal(everything(file), everything(whole))
    assert {path.name for path in tmp_path.iterdir()} == {"own", "elsewhere", "broken.h5"}


def test_an_interrupted_run_says_that_it_keeps_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Shards, "write", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(root, tmp_path / "f.h5")
    assert "The first block of 7 images was not finished, so nothing is kept yet." in capsys.readouterr().err


def test_a_damaged_shard_is_made_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = everything(run(root, tmp_path / "elsewhere" / "whole.h5"))
    monkeypatch.setattr(module, "_assemble", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(root, tmp_path / "f.h5")
    monkeypatch.undo()
    monkeypatch.setattr("fsbench.features.shards.IMAGES_PER_SHARD", 7)
    (folder,) = tmp_path.glob(".f.h5.*.parts")
    shard = sorted(folder.glob("*.npy"))[1]
    shard.write_bytes(shard.read_bytes()[:-9])
    np.testing.assert_array_equal(everything(run(root, tmp_path / "f.h5")), whole)


def test_a_file_made_the_same_way_is_kept_and_new_images_are_added(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.h5"
    run(root, out)
    stamp = out.stat().st_mtime_ns
    run(root, out)
    assert out.stat().st_mtime_ns == stamp
    run(root, out, force=True)
    assert out.stat().st_mtime_ns != stamp
    before = FeatureFile.open(out).provenance.fingerprint
    Image.new("RGB", (20, 20)).save(root / "novel" / "n0" / "new.png")
    assert run(root, out).provenance.fingerprint != before


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images went through the network in each forward pass."""
    counts: list[int] = []
    original = Forward.__call__

    def count(self: Forward, images: torch.Tensor) -> np.ndarray:
        counts.append(len(images))
        return original(self, images)

    monkeypatch.setattr(Forward, "__call__", count)
    return counts


FLAT = [f"c{number}" for number in range(8)]


def divide(root: Path, out: Path, seed: int = 0, force: bool = False, **changes: object) -> FeatureFile:
    """Extract class folders, divided by fractions."""
    dataset = load_own(root, fractions=(0.5, 0.25, 0.25), seed=seed)
    backbone = load_backbone("rn12", random_seed=0, width=4)
    return extract(dataset, backbone, out, replace(PLAIN, **changes), CPU, QUIET, force=force)  # type: ignore[arg-type]


def by_name(file: FeatureFile) -> dict[str, np.ndarray]:
    return {
        name: row for split in file.splits for name, row in zip(*(vars(file.read(split))[k] for k in KEYS), strict=True)
    }


KEYS = ("images", "features")


def test_another_split_is_another_view_of_the_same_rows(tmp_path: Path, seen: list[int]) -> None:
    root = write_images(tmp_path / "own", {"": FLAT})
    first = divide(root, tmp_path / "f.h5")
    assert sum(seen) == 32
    seen.clear()
    beside = divide(root, tmp_path / "g.h5", seed=1)
    elsewhere = divide(root, tmp_path / "far" / "h.h5", seed=1, library=tmp_path)
    kept = by_name(first)
    again = divide(root, tmp_path / "f.h5", seed=2, force=True)
    assert seen == []  # the network was not called
    assert first.summary("novel").class_names != beside.summary("novel").class_names
    assert again.provenance.split_digest not in {first.provenance.split_digest, beside.provenance.split_digest}
    for file in (beside, elsewhere, again):
        found = by_name(file)
        assert found.keys() == kept.keys()
        assert all(np.array_equal(found[name], kept[name]) for name in kept)
    whole = divide(root, tmp_path / "apart" / "f.h5", seed=2)  # made from nothing, it is the same file
    assert whole.provenance == again.provenance
    assert sum(seen) == 32
    for name in whole.splits:
        np.testing.assert_allclose(whole.read(name).features, again.read(name).features, atol=1e-5)
        assert whole.images(name) == again.images(name)


def test_one_more_class_adds_that_class_and_a_changed_image_itself(root: Path, tmp_path: Path, seen: list[int]) -> None:
    out = tmp_path / "f.h5"
    before = by_name(run(root, out))
    seen.clear()
    write_images(root, {"novel": ["n9"]}, seed=5)
    after = by_name(run(root, out))
    assert sum(seen) == 4
    assert all(np.array_equal(after[name], row) for name, row in before.items())
    Image.new("RGB", (20, 20)).save(root / "val" / "v0" / "001.png")
    with pytest.raises(FsbenchError, match=r"1 image has changed: val/v0/001\.png"):
        run(root, out)
    seen.clear()
    changed = by_name(run(root, out, force=True))
    assert sum(seen) == 1
    assert [name for name in after if not np.array_equal(after[name], changed[name])] == ["val/v0/001.png"]
    run(root, out, force=True)  # the same once more is computed anew
    assert sum(seen) == 37


def test_an_interrupted_extraction_of_new_classes_resumes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[int]
) -> None:
    out = tmp_path / "f.h5"
    run(root, out)
    write_images(root, {"novel": ["n8", "n9"]}, seed=5)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_assemble", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(root, out)
    seen.clear()
    assert run(root, out).summary("novel").rows == 20
    assert seen == []


def test_rows_of_another_network_transform_or_image_are_not_reused(tmp_path: Path, seen: list[int]) -> None:
    root = write_images(tmp_path / "own", {"": FLAT})
    divide(root, tmp_path / "f.h5")
    dataset = load_own(root, fractions=(0.5, 0.25, 0.25))
    for name, seed, settings in (("a", 1, PLAIN), ("b", 0, replace(PLAIN, crops=2)), ("c", 0, OTHER)):
        seen.clear()
        backbone = load_backbone("rn12", random_seed=seed, width=4)
        extract(dataset, backbone, tmp_path / f"{name}.h5", settings, CPU, QUIET)
        assert sum(seen) == 32, name
    named = load_own(root, fractions=(0.5, 0.25, 0.25), name="other")
    seen.clear()
    extract(named, load_backbone("rn12", random_seed=0, width=4), tmp_path / "d.h5", PLAIN, CPU, QUIET)
    assert sum(seen) == 32


OTHER = replace(PLAIN, transform="metaoptnet")


def test_a_file_of_an_earlier_version_is_read_and_never_replaced_in_silence(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.h5"
    file = run(root, out)
    older = {name: replace(file.read(name), marks=()) for name in file.splits}
    write_features(out, replace(file.provenance, architecture=""), older)
    assert run(root, out).images("val")[1] == ()
    Image.new("RGB", (20, 20)).save(root / "val" / "v0" / "new.png")
    with pytest.raises(FsbenchError, match="does not say which ones"):
        run(root, out)


def test_a_broken_image_is_named_or_skipped_and_recorded(root: Path, tmp_path: Path) -> None:
    (root / "val" / "v1" / "002.png").write_bytes(b"\x89PNG\r\n\x1a\n rubbish")
    with pytest.raises(FsbenchError, match=r"val/v1/002\.png") as caught:
        run(root, tmp_path / "f.h5")
    assert "--skip-broken" in caught.value.hint
    file = run(root, tmp_path / "f.h5", Settings(workers=0, batch=5, skip_broken=True))
    assert file.summary("val").rows == 7
    assert "val/v1/002.png" not in file.read("val").images
    assert any("val/v1/002.png" in note for note in file.provenance.notes)


def test_a_class_without_a_readable_image_is_an_error(root: Path, tmp_path: Path) -> None:
    for path in (root / "val" / "v1").iterdir():
        path.write_bytes(b"no")
    with pytest.raises(FsbenchError, match="has no images"):
        run(root, tmp_path / "f.h5", Settings(workers=0, skip_broken=True))


def test_unusable_precisions_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_unusable("fp32", CPU)
    monkeypatch.setattr(module, "precision_problem", lambda device, dtype: f"{dtype} died on {device}")
    with pytest.raises(FsbenchError, match="bf16 cannot be used on cpu: bfloat16 died on cpu"):
        refuse_unusable("bf16", CPU)
    with pytest.raises(FsbenchError, match="Unknown precision"):
        refuse_unusable("int8", CPU)


def test_out_of_memory_halves_the_forward_pass(root: Path) -> None:
    backbone = load_backbone("rn12", random_seed=0, width=4)
    images = module.Extraction(load_own(root), backbone, PLAIN).images
    forward = Forward(backbone, "fp32", CPU, images.transform.crop, batch=16)
    data = torch.randn(9, 1, 3, 32, 32)
    expected = forward(data)
    network = forward.network

    class Hungry(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 3:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            result: torch.Tensor = network(x)
            return result

    forward.network = Hungry()
    np.testing.assert_allclose(forward(data), expected, atol=1e-6)
    assert forward.batch <= 3


@pytest.mark.parametrize(("name", "width"), [("rn12", 4), ("rn18", 4), ("wrn", 1), ("conv4", 4)])
def test_folding_keeps_the_features_and_removes_batch_norm(name: str, width: int) -> None:
    backbone = load_backbone(name, random_seed=0, width=width)
    generator = torch.Generator().manual_seed(1)
    for part in backbone.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_(0, 0.1, generator=generator)
            part.running_var.uniform_(0.5, 2.0, generator=generator)
    sample = torch.randn(2, 3, 32, 32, generator=generator)
    folded = fold(backbone, sample)
    count = [sum(isinstance(part, torch.nn.BatchNorm2d) for part in net.modules()) for net in (backbone, folded)]
    # rn12 and conv4 lose all; rn18 keeps the stem's; wrn those before a convolution: each block's first, and the last.
    assert count[1] == {"rn12": 0, "conv4": 0, "rn18": 1, "wrn": 13}[name]
    images = torch.randn(3, 3, 40, 40, generator=generator)
    with torch.inference_mode():
        torch.testing.assert_close(folded(images), backbone(images), atol=1e-5, rtol=1e-4)


def test_folding_that_would_change_features_is_not_done() -> None:
    class Odd(torch.nn.Module):
        """Uses the running mean of its batch normalisation once more, which folding would lose."""

        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.block(x).mean(dim=(2, 3))
            return result * (1 + sum(isinstance(part, torch.nn.BatchNorm2d) for part in self.modules()))

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.norm(self.conv(x))
            return result

    class Undecided(Odd):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum() > -1e9 else x

    network = Undecided().eval()
    assert fold(network, torch.randn(2, 3, 8, 8)) is network


@pytest.mark.parametrize(("info", "sides"), [("cub", (70, 64)), (None, (73, 64))])
def test_a_network_of_one_benchmark_sees_the_images_of_another_as_it_was_trained(
    info: str | None, sides: tuple[int, int]
) -> None:
    backbone = load_backbone("rn12", shipped_weights() / "mini" / "rn12.safetensors")
    assert backbone.info.trained_on == "mini"
    birds = SimpleNamespace(name="cub", info=info, splits={}, common_size=lambda: (200, 200))
    transform = Extraction(cast("ImageDataset", birds), backbone, Settings()).images.transform
    assert (transform.size, transform.crop) == sides
