"""Files that are not the expected checkpoint: each is named for what it is."""

from __future__ import annotations

import gzip
import pickle
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.load import load_backbone
from fsbench.errors import FsbenchError
from fsbench.exchange.detect import CONTAINERS
from fsbench.exchange.tensors import SAFETENSORS
from tests.oracle import backbone_reference as reference

if TYPE_CHECKING:
    from pathlib import Path


def small_rn12() -> reference.State:
    return reference.random_state(reference.narrowed(reference.key_shapes("rn12-easy"), 16))


def small_rn18() -> reference.State:
    return reference.random_state(reference.narrowed(reference.key_shapes("rn18-simpleshot"), 16))


def write(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n<!DOCTYPE html><html><head><title>Google Drive - Quota exceeded", "is a web page"),
        (b"<html>", "is a web page"),
        (gzip.compress(b"x" * 100, mtime=0), "gzip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12", "Git LFS pointer"),
        (b"\x89HDF\r\n\x1a\n" + bytes(600), "HDF5 file"),
        (b"\x93NUMPY\x01\x00" + bytes(600), "NumPy array"),
        (b"epoch,accuracy\n1,0.5\n", "is not a checkpoint.*b'epoch,accura'"),
        (pickle.dumps({"a": np.ones(3)}), "plain pickle.*numpy.*Nothing in it was executed"),
        (pickle.dumps({"a": 1.0}), "plain pickle, not a torch checkpoint. Nothing"),
        (b"PK\x03\x04" + bytes(100), "truncated or damaged"),
    ],
)
def test_what_is_not_a_checkpoint_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "rn18.pth.tar"
    path.write_bytes(content)
    with pytest.raises(FsbenchError, match=words) as caught:
        load_backbone("rn18", path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="is a folder"):
        load_backbone("rn18", tmp_path)
    with pytest.raises(FsbenchError, match="There is no file"):
        load_backbone("rn18", tmp_path / "rn18.pth")


def test_an_archive_that_contains_the_checkpoints(tmp_path: Path) -> None:
    write(tmp_path / "470.tar", {"state": small_rn18()})
    archive = tmp_path / "miniImagenet.tar"
    with tarfile.open(archive, "w") as file:
        file.add(tmp_path / "470.tar", "WideResNet28_10_S2M2_R/470.tar")
    with pytest.raises(FsbenchError, match=r"tar archive that contains WideResNet28_10_S2M2_R/470\.tar") as caught:
        load_backbone("wrn", archive)
    assert "tar -xf miniImagenet.tar" in caught.value.hint


def test_a_zip_archive_that_contains_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "mini1.pt1", small_rn12())
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.write(tmp_path / "mini1.pt1", "backbones/mini1.pt1")
    with pytest.raises(FsbenchError, match=r"zip archive but not a torch checkpoint.*backbones/mini1\.pt1"):
        load_backbone("rn12", tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (torch.zeros(10, 60, 64), r"one tensor of shape \(10, 60, 64\)"),
        ([torch.zeros(3)], "holds a list"),
        ({"epoch": 3, "best": 0.5}, "holds no weights.*'epoch', 'best'"),
        ({"state_dict": {}}, "holds no weights"),
    ],
)
def test_torch_files_without_weights(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(FsbenchError, match=words):
        load_backbone("rn12", write(tmp_path / "a.pt", content))


def test_a_whole_module_is_refused_by_the_name_of_its_class(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"asks for 'torch\.nn\.modules.*Nothing in it was executed") as caught:
        load_backbone("rn12", write(tmp_path / "a.pt", torch.nn.Conv2d(3, 4, 3)))
    assert "state_dict" in caught.value.hint


def test_another_backbone_than_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pth", small_rn18())
    with pytest.raises(FsbenchError, match=r"Expected weights for wrn, found a ResNet-18.*rn18-simpleshot") as caught:
        load_backbone("wrn", path)
    assert "--backbone rn18" in caught.value.hint


@pytest.mark.parametrize("keys", [["features.0.weight"], ["encoder.0.0.weight", "encoder.0.1.bias"], ["fc.weight"]])
def test_an_unknown_network(tmp_path: Path, keys: list[str]) -> None:
    path = write(tmp_path / "a.pth", {key: torch.ones(3) for key in keys})
    with pytest.raises(FsbenchError, match="not the checkpoint of a known rn12, rn18, wrn or conv4") as caught:
        load_backbone("rn12", path)
    assert "timm/<name>" in caught.value.hint


def test_a_bottleneck_resnet_is_not_taken_for_a_resnet12(tmp_path: Path) -> None:
    keys = ["conv1.weight", "layer1.0.conv3.weight", "layer4.2.conv3.weight", "layer4.0.conv2.weight"]
    with pytest.raises(FsbenchError, match="not the checkpoint of a known"):
        load_backbone("rn12", write(tmp_path / "a.pth", {key: torch.ones(3) for key in keys}))


def test_the_report_counts_what_is_missing_unexpected_and_of_another_shape(tmp_path: Path) -> None:
    state = small_rn12()
    for block in range(4):
        del state[f"layers.{block}.bn2.weight"]
        del state[f"layers.{block}.bn2.bias"]
    state["layers.1.conv2.weight"] = torch.ones(10, 9, 3, 3)
    state["attention.weight"] = torch.ones(3)
    with pytest.raises(FsbenchError, match="looks like EASY's ResNet-12") as caught:
        load_backbone("rn12", write(tmp_path / "a.pt", state))
    assert "8 missing: layers.0.bn2.weight, " in caught.value.message
    assert ", …" in caught.value.message
    assert "1 unexpected: attention.weight" in caught.value.message
    assert "1 of another shape: layers.1.conv2.weight (10, 9, 3, 3), expected (10, 10, 3, 3)" in caught.value.message


def test_a_deeper_resnet_does_not_pass_for_a_resnet18(tmp_path: Path) -> None:
    state = small_rn18()
    extra = {key.replace("layer1.1", "layer1.2"): value for key, value in state.items() if "layer1.1" in key}
    with pytest.raises(FsbenchError, match=r"12 unexpected: layer1\.2\.conv1\.weight"):
        load_backbone("rn18", write(tmp_path / "a.pth", state | extra))


@pytest.mark.parametrize("missing", ["layers.0.conv1.weight", "layers.2.conv1.weight"])
def test_the_width_is_still_found_when_the_first_convolution_is_missing(tmp_path: Path, missing: str) -> None:
    state = small_rn12()
    del state[missing]
    with pytest.raises(FsbenchError, match="does not fit") as caught:
        load_backbone("rn12", write(tmp_path / "a.pt", state))
    assert caught.value.message.endswith(f"\n1 missing: {missing}")


def test_parts_named_twice(tmp_path: Path) -> None:
    shapes = reference.narrowed(reference.key_shapes("rn12-rfs"), 16)
    state = reference.random_state(shapes)
    state["layer1.0.shortcut.0.weight"] = state["layer1.0.downsample.0.weight"]
    with pytest.raises(FsbenchError, match="names some parts twice"):
        load_backbone("rn12", write(tmp_path / "a.pt", state))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(tmp_path: Path, value: float) -> None:
    state = small_rn12()
    state["layers.1.bn2.running_var"][3] = value
    with pytest.raises(FsbenchError, match=r"not finite numbers: layers\.1\.bn2\.running_var"):
        load_backbone("rn12", write(tmp_path / "a.pt", state))


def test_complex_tensors(tmp_path: Path) -> None:
    state = small_rn12()
    state["layers.1.bn2.bias"] = state["layers.1.bn2.bias"] + 1j
    with pytest.raises(FsbenchError, match=r"layers\.1\.bn2\.bias is not a plain tensor"):
        load_backbone("rn12", write(tmp_path / "a.pt", state))


def test_old_files_without_counters_are_complete(tmp_path: Path) -> None:
    state = {key: value for key, value in small_rn12().items() if "num_batches" not in key}
    backbone = load_backbone("rn12", write(tmp_path / "a.pt", state))
    assert backbone.network.state_dict()["layers.0.bn1.num_batches_tracked"] == 0


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    state = {key: value.half() for key, value in small_rn12().items()}
    backbone = load_backbone("rn12", write(tmp_path / "a.pt", state))
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}


def test_numpy_numbers_beside_the_weights(tmp_path: Path) -> None:
    content = {"state_dict": small_rn18(), "best_prec1": np.float64(0.6), "loss": np.float32(1)}
    assert load_backbone("rn18", write(tmp_path / "a.pth", content)).info.family == "rn18-simpleshot"


def test_a_wide_resnet_that_does_not_say_how_it_pools(tmp_path: Path) -> None:
    shapes = reference.narrowed(reference.key_shapes("wrn-s2m2"), 8)
    state = {key.removeprefix("module."): value for key, value in reference.random_state(shapes).items()}
    headless = {key: value for key, value in state.items() if not key.startswith("linear")}
    with pytest.raises(FsbenchError, match="S2M2 averages the last maps and LibFewShot takes their maximum"):
        load_backbone("wrn", write(tmp_path / "a.pth", headless))
    assert load_backbone("wrn", write(tmp_path / "a.pth", state)).info.family == "wrn-s2m2"


def test_foreign_safetensors_are_read_with_their_header(tmp_path: Path) -> None:
    save_file(small_rn12(), tmp_path / "a.safetensors", metadata={"author": "somebody"})
    checkpoint = read_checkpoint(tmp_path / "a.safetensors")
    assert checkpoint.metadata == {"author": "somebody"}
    assert load_backbone("rn12", tmp_path / "a.safetensors").info.metadata == {"author": "somebody"}


def test_a_header_whose_length_begins_like_a_pickle(tmp_path: Path) -> None:
    path, state = tmp_path / "a.safetensors", small_rn12()
    for padding in range(0, 512, 8):  # headers are multiples of eight bytes
        save_file(state, path, metadata={"author": "x" * padding})
        if path.read_bytes()[0] == 0x80:
            break
    assert path.read_bytes()[0] == 0x80
    assert read_checkpoint(path).tensors.keys() == state.keys()
    assert SAFETENSORS.recognise(path, path.read_bytes()[:512])
    assert next(one for one in CONTAINERS if one.recognise(path, path.read_bytes()[:512])) is SAFETENSORS


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.pt", small_rn12())
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(FsbenchError, match="cannot be read: Permission denied"):
        load_backbone("rn12", path)
