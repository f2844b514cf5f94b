"""Files that are not the expected checkpoint."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsbench.backbones.load import load_backbone
from fsbench.errors import FsbenchError
from tests.oracle import backbone_reference as reference


def small_rn12() -> reference.State:
    return reference.random_state(reference.narrowed(reference.key_shapes("rn12-easy"), 16))


def write(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>", r"is not a checkpoint: .* starts with b'<!DOCTYPE ht'"),
        (pickle.dumps({"a": np.ones(3)}), "is not a checkpoint"),
        (b"PK\x03\x04" + bytes(100), "truncated or damaged"),
        (Path, "is a zip archive that torch has not saved"),
        (torch.zeros(10, 60, 64), "holds no weights by name but a Tensor"),
        ({"epoch": 3, "best": 0.5}, "holds no weights.*'epoch', 'best'"),
        ({"features.0.weight": torch.ones(3)}, "not the checkpoint of a known rn12 or rn18 or wrn or conv4"),
    ],
)
def test_what_is_not_a_checkpoint_is_refused_by_its_path(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "rn18.pth.tar"
    with pytest.raises(FsbenchError, match="cannot be read: No such file"):
        load_backbone("rn18", path)
    path.write_bytes(content) if isinstance(content, bytes) else write(path, content)
    if content is Path:  # a wheel, with files inside
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("package/weights.pth", b"")
    with pytest.raises(FsbenchError, match=words) as caught:
        load_backbone("rn18", path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_the_report_names_what_is_missing_unexpected_and_of_another_shape(tmp_path: Path) -> None:
    state = small_rn12()
    with pytest.raises(FsbenchError, match=r"Expected weights for wrn, found .*rn12-easy(.|\n)*--backbone rn12"):
        load_backbone("wrn", write(tmp_path / "a.pt", state))
    del state["layers.0.bn2.weight"]
    state["layers.1.conv2.weight"] = torch.ones(10, 9, 3, 3)
    state["attention.weight"] = torch.ones(3)
    with pytest.raises(FsbenchError, match=r"is not EASY's ResNet-12 \(rn12-easy\): .* tensors fit\.") as caught:
        load_backbone("rn12", write(tmp_path / "a.pt", state))
    assert "layers.0.bn2.weight missing, expected (4,)" in caught.value.message
    assert "layers.1.conv2.weight (10, 9, 3, 3), expected (10, 10, 3, 3)" in caught.value.message
    assert "attention.weight (3,), expected none" in caught.value.message
    state = small_rn12()
    state["layers.1.bn2.running_var"][3] = float("nan")
    with pytest.raises(FsbenchError, match=r"not finite numbers: layers\.1\.bn2\.running_var"):
        load_backbone("rn12", write(tmp_path / "a.pt", state))


def test_old_files_without_counters_in_half_precision_are_complete(tmp_path: Path) -> None:
    state = {key: value.half() for key, value in small_rn12().items() if "num_batches" not in key}
    backbone = load_backbone("rn12", write(tmp_path / "a.pt", state))
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    assert backbone.network.state_dict()["layers.0.bn1.num_batches_tracked"] == 0


def test_a_wide_resnet_that_does_not_say_how_it_pools(tmp_path: Path) -> None:
    shapes = reference.narrowed(reference.key_shapes("wrn-s2m2"), 8)
    state = {key.removeprefix("module."): value for key, value in reference.random_state(shapes).items()}
    headless = {key: value for key, value in state.items() if not key.startswith("linear")}
    with pytest.raises(FsbenchError, match="S2M2 averages the last maps and LibFewShot takes their maximum"):
        load_backbone("wrn", write(tmp_path / "a.pth", headless))
    assert load_backbone("wrn", write(tmp_path / "a.pth", state)).info.family == "wrn-s2m2"
