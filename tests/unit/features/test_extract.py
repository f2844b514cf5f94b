import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch.fx.experimental.optimization import fuse

from fsbench.backbones.find_weights import shipped_weights
from fsbench.backbones.load import Weights, encode_backbone, load_backbone
from fsbench.data.dataset import ImageDataset
from fsbench.data.scan import OwnData
from fsbench.errors import FsbenchError
from fsbench.evaluation.source import load_source, network_of
from fsbench.features import extract as module
from fsbench.features import forward
from fsbench.features import image_hashes as hashing
from fsbench.features.extract import Extraction, RowStore, Settings, extract, extract_all
from fsbench.features.forward import Forward, fold
from fsbench.features.image_hashes import image_hashes
from fsbench.features.store import FeatureFile, Provenance
from tests.comparing import CPU, QUIET
from tests.images import SPLITS, write_images
from tests.watching import watch

PLAIN = Settings(workers=0, batch=5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_images(tmp_path / "own", SPLITS)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.features.extract.IMAGES_PER_BLOCK", 7)


def run(root: Path, out: Path, settings: Settings = PLAIN, force: bool = False) -> FeatureFile:
    backbone = load_backbone("rn12", random_seed=0, width=4)
    return extract(OwnData(root).load(), backbone, out, settings, CPU, QUIET, force=force)


def everything(file: FeatureFile) -> np.ndarray:
    return np.concatenate([file.read(name).features for name in file.splits])


def test_features_are_those_of_the_backbone_on_the_transformed_images(root: Path, tmp_path: Path) -> None:
    file = run(root, tmp_path / "f.h5")
    backbone, dataset = load_backbone("rn12", random_seed=0, width=4), OwnData(root).load()
    images = module.Extraction(dataset, backbone, PLAIN).images
    with torch.inference_mode():
        for name, split in dataset.splits.items():
            stored = file.read(name)
            assert stored.class_names == split.class_names
            for i in range(len(split)):
                assert stored.images[i] == split.images[i]
                expected = backbone(images.transform(split.open(i))[None])[0]
                np.testing.assert_allclose(stored.features[i], expected, atol=2e-5, rtol=1e-4)
    provenance = file.provenance
    assert (provenance.dataset, provenance.backbone, provenance.family) == ("own", "rn12", "rn12-easy")
    assert (provenance.weights, provenance.crops, provenance.precision) == ("none, seed 0", 1, "fp32")
    assert Provenance("a", "b").precision == Settings().precision == "fp32"
    assert json.loads(provenance.transform)["crop"] == provenance.image_size == 32
    assert torch.__version__.startswith(provenance.libraries["torch"].partition("+")[0])


def test_crops_are_averaged_and_do_not_depend_on_batch_or_workers(root: Path, tmp_path: Path) -> None:
    settings = Settings(crops=3, workers=0, batch=5)
    file = run(root, tmp_path / "a.h5", settings)
    other = run(root, tmp_path / "other" / "b.h5", Settings(crops=3, workers=2, batch=64))
    np.testing.assert_allclose(everything(file), everything(other), atol=1e-5)
    backbone, dataset = load_backbone("rn12", random_seed=0, width=4), OwnData(root).load()
    images = module.Extraction(dataset, backbone, settings).images
    assert images.random_crops is not None
    split = dataset.splits["val"]
    crops = images.random_crops(split.open(1), split.images[1], 3)
    with torch.inference_mode():
        np.testing.assert_allclose(file.read("val").features[1], backbone(crops).mean(dim=0), atol=2e-5, rtol=1e-4)
    assert file.provenance.crops == 3


def interrupt_after(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Stop as Ctrl-C would when one more block is to be written."""
    original, written = RowStore.write, list[object]()

    def write(self: RowStore, keys: list[str], *rest: Any) -> None:
        if len(written) == blocks:
            raise KeyboardInterrupt
        written.append(keys)
        original(self, keys, *rest)

    monkeypatch.setattr(RowStore, "write", write)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images go through the network in each forward pass."""
    return watch(monkeypatch, Forward, "__call__", lambda forward, images: len(images))


@pytest.mark.parametrize(("blocks", "damaged", "left"), [(0, False, 32), (2, False, 18), (2, True, 25)])
def test_an_interrupted_run_resumes_and_ends_the_same(
    root: Path, tmp_path: Path, computed: list[int], blocks: int, damaged: bool, left: int
) -> None:
    (root / "base" / "b0" / "001.png").write_bytes(b"broken")
    settings, out = replace(PLAIN, skip_broken=True), tmp_path / "here" / "f[1].h5"
    whole = run(root, tmp_path / "elsewhere" / "f.h5", settings)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, blocks)
        with pytest.raises(KeyboardInterrupt):
            run(root, out, settings)
    assert not out.exists()
    if damaged:
        path = min(out.parent.glob(".f*.rows/*.npz"))
        path.write_bytes(path.read_bytes()[:700] + b"x" + path.read_bytes()[701:])
    computed.clear()
    file = run(root, out, settings)
    assert sum(computed) in {left, left - 1}  # an image is broken
    np.testing.assert_array_equal(everything(file), everything(whole))
    assert file.provenance == whole.provenance
    assert {path.name for path in out.parent.iterdir()} <= {"f[1].h5", ".images.index"}


def by_name(file: FeatureFile) -> dict[str, np.ndarray]:
    splits = [file.read(name) for name in file.splits]
    return {name: row for split in splits for name, row in zip(split.images, split.features, strict=True)}


def test_new_images_are_added_and_changed_ones_refused(root: Path, tmp_path: Path, computed: list[int]) -> None:
    out = tmp_path / "f.h5"
    before = by_name(run(root, out))
    stamp = out.stat().st_mtime_ns
    computed.clear()
    run(root, out)
    assert (computed, out.stat().st_mtime_ns) == ([], stamp)
    write_images(root, {"novel": ["n9"]}, seed=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_assemble", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(root, out)
    after = by_name(run(root, out))
    assert sum(computed) == 4  # of the new class, before the interruption
    assert all(np.array_equal(after[name], row) for name, row in before.items())
    Image.new("RGB", (20, 20)).save(root / "val" / "v0" / "001.png")
    with pytest.raises(FsbenchError, match=r"1 image of the file is gone, changed, .*: val/v0/001\.png"):
        run(root, out)
    computed.clear()
    changed = by_name(run(root, out, force=True))
    assert sum(computed) == 36  # --force reuses nothing
    assert [name for name in after if not np.allclose(after[name], changed[name], atol=1e-4)] == ["val/v0/001.png"]


def divide(root: Path, out: Path, seed: int = 0, library: Path | None = None) -> FeatureFile:
    """Extract class folders, divided by fractions."""
    dataset = OwnData(root, fractions="0.5,0.25,0.25", split_seed=seed).load()
    backbone = load_backbone("rn12", random_seed=0, width=4)
    return extract(dataset, backbone, out, replace(PLAIN, library=library), CPU, QUIET)


FLAT = {"": [f"c{number}" for number in range(8)]}


def test_another_split_or_folder_is_another_view_of_the_same_rows(tmp_path: Path, computed: list[int]) -> None:
    root = write_images(tmp_path / "own", FLAT)
    first = divide(root, tmp_path / "f.h5")
    assert sum(computed) == 32
    beside = divide(root, tmp_path / "g.h5", seed=1)
    elsewhere = divide(root, tmp_path / "far" / "h.h5", seed=1, library=tmp_path)
    copied = divide(Path(shutil.copytree(root, tmp_path / "copy")), tmp_path / "copy.h5")
    assert sum(computed) == 32  # no image went through the network again
    assert first.summary("novel").class_names != beside.summary("novel").class_names
    expected = by_name(first)
    for file in (beside, elsewhere, copied):
        rows = by_name(file)
        assert rows.keys() == expected.keys()
        assert all(np.array_equal(rows[name], expected[name]) for name in rows)
    whole = divide(root, tmp_path / "apart" / "f.h5", seed=1)  # made from nothing, it is the same file
    assert whole.provenance == beside.provenance
    np.testing.assert_allclose(everything(whole), everything(beside), atol=1e-5)


def test_classes_that_the_network_was_trained_on_are_named(tmp_path: Path) -> None:
    dataset = OwnData(write_images(tmp_path / "own", FLAT), fractions="0.5,0.25,0.25").load()
    seen = (*dataset.splits["novel"].class_names, *dataset.splits["base"].class_names, "elsewhere")
    backbone, weights = load_backbone("rn12", random_seed=0, width=4), tmp_path / "own.safetensors"
    weights.write_bytes(encode_backbone(backbone, {"dataset": "other", "epochs": 1, "classes": seen}))
    file = extract(dataset, load_backbone("rn12", weights), tmp_path / "f.h5", PLAIN, CPU, QUIET)
    assert load_source(file, "novel", None).warnings == ("novel: the network was trained on 2 of its 2 classes",)
    assert load_source(file, "val", None).warnings == load_source(file, "base", None).warnings == ()


def test_rows_follow_the_content_of_images_and_not_their_names(tmp_path: Path, computed: list[int]) -> None:
    places = [tmp_path / "one" / "own", tmp_path / "two" / "own"]
    root, other = (  # uncompressed: all files have the same number of bytes
        write_images(place, {"": [*"abcd"]}, images=2, seed=seed, ending="bmp") for seed, place in enumerate(places)
    )
    first, second = divide(root, tmp_path / "f.h5"), divide(other, tmp_path / "g.h5")
    assert sum(computed) == 16  # other images of the same names and sizes
    rows, others = by_name(first), by_name(second)
    assert not any(np.allclose(rows[name], others[name], atol=1e-4) for name in rows)
    with pytest.raises(FsbenchError, match="8 images of the file are gone, changed"):
        divide(other, tmp_path / "f.h5")
    for before, after in (("a", "x"), ("b", "a"), ("x", "b")):  # classes swap their names
        (root / before).rename(root / after)
    swapped = by_name(divide(root, tmp_path / "h.h5"))
    assert sum(computed) == 16  # all rows are reused
    names = {"a": "b", "b": "a", "c": "c", "d": "d"}
    assert all(np.array_equal(swapped[f"{names[name[0]]}{name[1:]}"], row) for name, row in rows.items())


def test_rows_of_another_network_transform_or_precision_are_not_reused(tmp_path: Path, computed: list[int]) -> None:
    root = write_images(tmp_path / "own", FLAT)
    own = OwnData(root, fractions="0.5,0.25,0.25")
    changes: list[dict[str, Any]] = [{}, {"crops": 2}, {"transform": "metaoptnet"}, {"precision": "bf16"}]
    for number, (seed, change) in enumerate([(1, {}), *((0, change) for change in changes)]):
        computed.clear()
        backbone = load_backbone("rn12", random_seed=seed, width=4)
        file = extract(own.load(), backbone, tmp_path / f"{number}.h5", replace(PLAIN, **change), CPU, QUIET)
        assert sum(computed) == 32, change
        assert ("transform metaoptnet, not" in network_of(file)) == ("transform" in change)
    shutil.copytree(root / "c0", root / "c8")
    (root / "c8" / "000.png").rename(root / "c8" / "new.png")
    computed.clear()
    extract(own.load(), backbone, tmp_path / "crops.h5", replace(PLAIN, crops=2), CPU, QUIET)
    assert sum(computed) == 4  # random crops are drawn by the name of an image


def test_equal_images_are_computed_once(root: Path, tmp_path: Path, computed: list[int]) -> None:
    shutil.copy(root / "base" / "b0" / "000.png", root / "novel" / "n0" / "copy.png")
    file = run(root, tmp_path / "f.h5")
    assert sum(computed) == 32
    assert np.array_equal(by_name(file)["base/b0/000.png"], by_name(file)["novel/n0/copy.png"])
    assert "base and novel share 1 identical row of features: the same images in both?" in file.provenance.notes


def test_a_broken_image_is_named_or_skipped_and_recorded(root: Path, tmp_path: Path) -> None:
    (root / "val" / "v1" / "002.png").write_bytes(b"\x89PNG\r\n\x1a\n rubbish")
    with pytest.raises(FsbenchError, match=r"val/v1/002\.png") as caught:
        run(root, tmp_path / "f.h5")
    assert "--skip-broken" in caught.value.hint
    file = run(root, tmp_path / "f.h5", replace(PLAIN, skip_broken=True))
    assert file.summary("val").rows == 7
    assert "val/v1/002.png" not in file.read("val").images
    assert any("val/v1/002.png" in note for note in file.provenance.notes)
    for path in (root / "val" / "v1").iterdir():
        path.write_bytes(path.name.encode())
    with pytest.raises(FsbenchError, match="has no images"):
        run(root, tmp_path / "g.h5", replace(PLAIN, skip_broken=True))


def test_a_data_set_that_fails_does_not_stop_the_next(root: Path, tmp_path: Path) -> None:
    datasets = [OwnData(root).load(name) for name in ("bad", "good")]
    (tmp_path / "good").mkdir()
    weights = encode_backbone(load_backbone("rn12", random_seed=0, width=1), {})
    (tmp_path / "good" / "rn12.safetensors").write_bytes(weights)
    with pytest.raises(FsbenchError, match="1 of 2 data sets could not be extracted: bad"):
        extract_all(datasets, Weights("rn12", None, None, tmp_path), PLAIN, CPU, tmp_path, QUIET)
    assert (tmp_path / "good-rn12.h5").exists()


def test_out_of_memory_halves_the_forward_pass(root: Path) -> None:
    backbone = load_backbone("rn12", random_seed=0, width=4)
    images = module.Extraction(OwnData(root).load(), backbone, PLAIN).images
    passes = Forward(backbone, "fp32", CPU, images.transform, batch=16)
    data = torch.randn(9, 1, 3, 32, 32)
    expected = passes(data)
    network = passes.network

    class Hungry(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 3:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            result: torch.Tensor = network(x)
            return result

    passes.network = Hungry()
    np.testing.assert_allclose(passes(data), expected, atol=1e-6)
    assert passes.batch <= 3


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


def test_folding_that_would_change_features_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_backbone("rn12", random_seed=0, width=4)
    monkeypatch.setattr(forward, "fuse", lambda module: fuse(module).half().float())  # which loses digits
    assert fold(network, torch.randn(2, 3, 32, 32)) is network


@pytest.mark.parametrize(("info", "sides"), [("cub", (70, 64)), (None, (73, 64))])
def test_a_network_sees_images_of_another_benchmark_as_it_was_trained(info: str | None, sides: tuple[int, int]) -> None:
    backbone = load_backbone("rn12", shipped_weights() / "mini" / "rn12.safetensors")
    assert backbone.info.trained_on == "mini"
    birds = SimpleNamespace(name="cub", info=info, splits={}, common_side=lambda: 200)
    transform = Extraction(cast("ImageDataset", birds), backbone, Settings()).images.transform
    assert (transform.size, transform.crop) == sides


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that is hashed: images, and the index itself."""
    return watch(monkeypatch, hashing, "content_hash", lambda content: content)


def test_only_changed_files_are_read_again(tmp_path: Path, read: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    root, index = write_images(tmp_path / "own", SPLITS), tmp_path / "index"
    splits = OwnData(root).load().splits.values()

    def hashes() -> tuple[list[str], int]:
        read.clear()
        found = image_hashes(splits, index, QUIET)
        return found, sum(content.startswith(b"\x89PNG") for content in read)

    paths = [root / image for split in splits for image in split.images]
    expected = [hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() for path in paths]
    for _ in range(2):
        assert hashes() == (expected, 32)  # a file that has just changed is not remembered
    monkeypatch.setattr(hashing, "_SETTLED", 0)
    assert hashes() == (expected, 32)
    assert hashes() == (expected, 0)
    times = paths[3].stat()
    content = bytearray(paths[3].read_bytes())
    content[-20] ^= 1
    paths[3].write_bytes(content)  # as many bytes as before, in the same place, and at the same time
    os.utime(paths[3], ns=(times.st_atime_ns, times.st_mtime_ns))
    changed, count = hashes()
    assert count == 1
    assert [one == other for one, other in zip(changed, expected, strict=True)].count(False) == 1
    index.write_bytes(index.read_bytes().replace(changed[5].encode(), changed[6].encode()))
    assert hashes() == (changed, 32)  # a damaged index is ignored
    paths[0].unlink()
    assert hashes()[0][0] == "unreadable base/b0/000.png"
