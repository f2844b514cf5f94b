"""Published checkpoints, key by key and in their own containers, against a second computation."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor

from fsbench.backbones.load import load_backbone
from fsbench.backbones.networks import Extractor
from tests.oracle import backbone_reference as reference

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))


def write(path: Path, content: Any, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def bare(state: reference.State, prefix: str) -> reference.State:
    """The entries below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def check(backbone: Extractor, family: str, expected: Tensor, images: Tensor = IMAGES) -> None:
    """The family that a file was recognised as, and its features."""
    with torch.no_grad():
        features = backbone(images)
    assert backbone.info.family == family
    assert features.shape == (len(images), backbone.info.feature_dim)
    assert expected.std() > 0.01  # a comparison of constants would prove nothing
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)


def simpleshot_file(path: Path, state: reference.State, arch: str) -> Path:
    optimizer = {"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    content = {"epoch": 89, "arch": arch, "state_dict": state, "best_prec1": 0.61, "optimizer": optimizer}
    return write(path, content, legacy=True)


def names_kept(backbone: Extractor, state: reference.State, head: str = "no head") -> bool:
    """Whether the network holds exactly the tensors of the state, its head aside."""
    own = [value.numel() for key, value in state.items() if not key.startswith(head)]
    loaded = [value.numel() for value in backbone.network.state_dict().values()]
    return (len(loaded), sum(loaded)) == (len(own), sum(own))


def test_key_lists_have_the_published_number_of_entries() -> None:
    entries = {"rn12-easy": 100, "rn18-simpleshot": 122, "wrn-simpleshot": 183, "wrn-s2m2": 155}
    entries |= {"rn18-closerlook": 122, "rn12-rfs": 98}
    assert {name: len(reference.key_shapes(name)) for name in entries} == entries


@pytest.mark.parametrize("base", [64, 45, 7])
def test_easy_resnet12(tmp_path: Path, base: int) -> None:
    widths = (base, base * 5 // 2, base * 5, base * 10)
    wide = dict(zip((64, 160, 320, 640), widths, strict=True))
    shapes = reference.key_shapes("rn12-easy")
    if base != 64:
        shapes = {k: tuple(wide.get(size, size) for size in v) for k, v in shapes.items() if not k.startswith("linear")}
    state = reference.random_state(shapes)
    backbone = load_backbone("rn12", write(tmp_path / "mini1.pt11", state))
    assert tuple(backbone.info.architecture["widths"]) == widths
    assert backbone.info.feature_dim == 10 * base
    assert names_kept(backbone, state, "linear")
    check(backbone, "rn12-easy", reference.resnet12(state, IMAGES, "layers.{0}.", "shortcut"))


@pytest.mark.parametrize("divisor", [1, 4])
def test_conv4(tmp_path: Path, divisor: int) -> None:
    state = reference.random_state(reference.narrowed(reference.key_shapes("conv4-fsbench"), divisor))
    head = {"classifier.weight": torch.zeros(5, 7)}
    backbone = load_backbone("conv4", write(tmp_path / "own.pth", state | head))
    assert tuple(backbone.info.architecture["widths"]) == (64 // divisor,) * 4
    assert backbone.info.feature_dim == 256 // divisor
    assert names_kept(backbone, state)
    check(backbone, "conv4-fsbench", reference.conv4(state, IMAGES))


def test_rfs_resnet12_with_its_options(tmp_path: Path) -> None:
    state = reference.random_state(reference.key_shapes("rn12-rfs"))
    options = argparse.Namespace(model="resnet12", learning_rate=0.05, lr_decay_epochs=[60, 80], trial="1")
    path = write(tmp_path / "resnet12_last.pth", {"opt": options, "model": state}, legacy=True)
    backbone = load_backbone("rn12", path)
    assert names_kept(backbone, state, "classifier")
    check(backbone, "rn12-metaoptnet", reference.resnet12(state, IMAGES, "layer{1}.0.", "downsample"))


@pytest.mark.parametrize(
    ("container", "prefix", "rest"),
    [
        ("embedding", "module.", {}),
        (None, "emb_func.", {"classifier.weight": torch.ones(5, 40), "cls.layer.bias": torch.ones(5)}),
        ("params", "module.encoder.", {"module.fc.weight": torch.ones(64, 40)}),
        ("model", "emb_func.", {"classifier.weight": torch.ones(5, 40)}),
        ("state", "feature.module.", {"classifier.L.weight_g": torch.ones(5, 1)}),
    ],
)
def test_resnet12_inside_a_method(tmp_path: Path, container: str | None, prefix: str, rest: reference.State) -> None:
    shapes = reference.narrowed(reference.key_shapes("rn12-rfs"), 16)
    state = reference.random_state({key: shape for key, shape in shapes.items() if "classifier" not in key})
    content: Any = {**{prefix + key: value for key, value in state.items()}, **rest}
    beside = {"head": {"scale": torch.ones(1)}} if container == "embedding" else {}
    path = write(tmp_path / "a.pth", {container: content, **beside} if container else content, legacy=bool(beside))
    backbone = load_backbone("rn12", path)
    check(backbone, "rn12-metaoptnet", reference.resnet12(state, IMAGES, "layer{1}.0.", "downsample"))


def test_meta_baseline_resnet12_with_its_own_widths(tmp_path: Path) -> None:
    wide = {160: 128, 320: 256, 640: 512}
    shapes = {
        key.replace(".0.", ".", 1): tuple(wide.get(size, size) for size in shape)
        for key, shape in reference.key_shapes("rn12-rfs").items()
        if "classifier" not in key
    }
    state = reference.random_state(shapes)
    assert "layer1.conv1.weight" in state
    stored = {f"encoder.{key}": value for key, value in state.items()}
    content = {"model": "meta-baseline", "model_args": {}, "model_sd": {**stored, "temp": torch.tensor(10.0)}}
    backbone = load_backbone("rn12", write(tmp_path / "max-va.pth", content))
    assert backbone.info.architecture["widths"] == (64, 128, 256, 512)
    check(backbone, "rn12-metabaseline", reference.resnet12(state, IMAGES, "layer{1}.", "downsample"))


@pytest.mark.parametrize("container", ["simpleshot", "pt-map"])
def test_resnet18(tmp_path: Path, container: str) -> None:
    stored = reference.random_state(reference.key_shapes("rn18-simpleshot"))
    state = bare(stored, "module.")
    if container == "simpleshot":
        path = simpleshot_file(tmp_path / "model_best.pth.tar", stored, "resnet18")
    else:
        heads = {"fc.L.weight_g": torch.ones(200, 1), "fc.L.weight_v": torch.ones(200, 512)}
        body = {key: value for key, value in state.items() if not key.startswith("fc.")}
        rotate = {"0.weight": torch.ones(4, 512), "0.bias": torch.ones(4)}
        path = write(tmp_path / "100.tar", {"epoch": 100, "state": body | heads, "rotate": rotate}, legacy=True)
    backbone = load_backbone("rn18", path)
    assert backbone.info.image_size is None
    assert names_kept(backbone, state, "fc")
    check(backbone, "rn18-simpleshot", reference.resnet18(state, IMAGES))


def test_easy_resnet18_names(tmp_path: Path) -> None:
    shapes = reference.narrowed(reference.key_shapes("rn18-simpleshot"), 16)
    state = bare(reference.random_state(shapes), "module.")
    stored = {}
    for key, value in state.items():
        for stage in (1, 2, 3, 4):
            key = key.replace(f"layer{stage}.0.", f"layers.{stage - 1}.0.")
            key = key.replace(f"layer{stage}.1.", f"layers.{stage - 1}.2.")
        stored[key.replace("downsample", "shortcut").replace("fc.", "linear.")] = value
    stored["linear_rot.weight"] = torch.ones(4, 32)
    backbone = load_backbone("rn18", write(tmp_path / "a.pt1", stored))
    check(backbone, "rn18-easy", reference.resnet18(state, IMAGES))


def test_closerlook_resnet18(tmp_path: Path) -> None:
    stored = reference.random_state(reference.key_shapes("rn18-closerlook"))
    state = bare(stored, "feature.")
    path = write(tmp_path / "399.tar", {"epoch": 399, "state": stored}, legacy=True)
    backbone = load_backbone("rn18", path)
    assert backbone.info.image_size == 224
    assert names_kept(backbone, stored, "classifier")
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(3))
    check(backbone, "rn18-closerlook", reference.closerlook_resnet18(state, images), images)


def test_torchvision_resnet18_is_the_same_as_torchvision(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None)
    network.load_state_dict(reference.random_state({k: tuple(v.shape) for k, v in network.state_dict().items()}))
    backbone = load_backbone("rn18", write(tmp_path / "resnet18.pth", network.state_dict()))
    network.fc = torch.nn.Identity()
    with torch.no_grad():
        check(backbone, "rn18-torchvision", network.eval()(IMAGES))


def widened(shapes: reference.Shapes, factor: int, blocks: int) -> reference.Shapes:
    """A wide ResNet of another widening factor and depth; a shortcut between equal widths does not exist."""
    wide = {160: 16 * factor, 320: 32 * factor, 640: 64 * factor}
    dropped = [f".{number}." for number in range(blocks, 4)]
    stages = {key: key.partition(".0." if ".0." in key else ".bn")[0] for key in shapes}
    return {
        key: tuple(wide.get(size, size) for size in shape)
        for key, shape in shapes.items()
        if not any(part in key and ("layer" in key) for part in dropped)
        and not (factor == 1 and "hortcut" in key and stages[key].endswith(("layer1", "block1.layer")))
    }


@pytest.mark.parametrize(("factor", "blocks"), [(10, 4), (1, 4), (2, 4), (2, 2)])
def test_simpleshot_wideresnet(tmp_path: Path, factor: int, blocks: int) -> None:
    shapes = widened(reference.key_shapes("wrn-simpleshot"), factor, blocks)
    assert any("layer1.0.shortcut" in key for key in shapes) == (factor > 1)
    stored = reference.random_state(shapes)
    state, images = bare(stored, "module."), IMAGES[:, :, :16, :16]
    backbone = load_backbone("wrn", simpleshot_file(tmp_path / "a.pth.tar", stored, "wideres"))
    assert (backbone.info.feature_dim, backbone.info.architecture["blocks"]) == (64 * factor, blocks)
    assert names_kept(backbone, state, "linear")
    check(backbone, "wrn-simpleshot", reference.simpleshot_wideresnet(state, images, blocks), images)


@pytest.mark.parametrize(
    ("container", "factor"),
    [("s2m2", 10), ("s2m2", 1), ("pt-map", 2), ("cifar", 1), ("rotation", 2), ("easy", 1), ("s2m2r", 2),
     ("libfewshot", 1)],
)  # fmt: skip
def test_s2m2_arithmetic_under_all_its_names(tmp_path: Path, container: str, factor: int) -> None:
    shapes = widened(reference.key_shapes("wrn-s2m2"), factor, 4)
    state = bare(reference.random_state(shapes), "module.")
    body = {key: value for key, value in state.items() if not key.startswith("linear")}
    cosine = {key: value for key, value in state.items() if key.startswith("linear")}
    plain = {"linear.weight": torch.ones(64, 64 * factor), "linear.bias": torch.ones(64)}
    easy = {
        key.replace("block1", "blocks.0").replace("block2", "blocks.1").replace("block3", "blocks.2"): value
        for key, value in body.items()
    }
    easy = {("bn." + key[4:] if key.startswith("bn1.") else key): value for key, value in easy.items()}
    rotation = {"rotationLinear.weight": torch.ones(4, 64 * factor), "rotationLinear.bias": torch.ones(4)}
    content, family = {
        "s2m2": ({"epoch": 1, "state": {f"module.{key}": value for key, value in state.items()}}, "wrn-s2m2"),
        "pt-map": ({"epoch": 1, "state": state}, "wrn-s2m2"),
        "cifar": ({"epoch": 1, "state": body | plain}, "wrn-s2m2"),
        "rotation": ({"state": {f"module.feature.{key}": value for key, value in body.items()}}, "wrn-s2m2"),
        "easy": (easy | plain | {"linear_rot.weight": torch.ones(4, 64 * factor)}, "wrn-easy"),
        "s2m2r": (easy | cosine | rotation, "wrn-easy"),
        "libfewshot": ({f"emb_func.{key}": value for key, value in body.items()}, "wrn-libfewshot"),
    }[container]
    backbone = load_backbone("wrn", write(tmp_path / "a.tar", content))
    assert names_kept(backbone, body)
    images = IMAGES[:, :, :16, :16]
    expected = reference.s2m2_wideresnet(body, images, maximum=family == "wrn-libfewshot")
    check(backbone, family, expected, images)
    network: Any = backbone.network
    with torch.no_grad():  # the stem, the stages and the pool, called one by one, give the features too
        maps = network.stem(images)
        for stage in network.stages():
            maps = stage(maps)
        torch.testing.assert_close(network.pool(maps), expected, atol=1e-4, rtol=1e-4)
