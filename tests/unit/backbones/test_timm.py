"""Models of timm: names, caches, and files as their authors have published them."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from fsbench.backbones.load import load_backbone, refuse_unknown
from fsbench.backbones.timm_models import find_timm_weights
from fsbench.errors import FsbenchError

NAME = "timm/resnet10t"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches of Hugging Face and torch hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path


@pytest.fixture(scope="module")
def donor() -> Any:
    torch.manual_seed(1)
    return timm.create_model("resnet10t").eval()


def in_hub(caches: Path, donor: Any) -> Path:
    repository = caches / "hf" / "models--timm--resnet10t.c3_in1k"
    folder = repository / "snapshots" / REVISION
    for place in (folder, repository / "snapshots" / ("f" * 40), repository / "refs"):
        place.mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    save_file(donor.state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def test_weights_are_found_in_the_caches_and_recorded_with_their_hash(caches: Path, donor: Any) -> None:
    file = in_hub(caches, donor)
    assert find_timm_weights(caches / "weights", "photos", NAME) == file
    assert find_timm_weights(caches / "weights", "photos", f"{NAME}.c3_in1k", pretrained=True) == file
    backbone = load_backbone(NAME, file)
    info, images = backbone.info, torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = donor.forward_head(donor.forward_features(images), pre_logits=True)
        torch.testing.assert_close(backbone(images), expected)
    assert info.weights == "model.safetensors"
    assert info.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert info.note == "512 features, taken before the classifier to 1000, which is left out"
    shutil.rmtree(caches / "hf")
    old = caches / "torch" / "hub" / "checkpoints" / "resnet10t_176_c3-f3215ab1.pth"
    old.parent.mkdir(parents=True)
    torch.save(donor.state_dict(), old)
    assert find_timm_weights(caches / "weights", "photos", NAME) == old


def test_one_file_serves_several_data_sets_and_own_files_come_first(caches: Path, donor: Any) -> None:
    with pytest.raises(FsbenchError, match=r"photos/timm/resnet10t\.\*.*caches of Hugging Face"):
        find_timm_weights(caches / "weights", "photos", NAME)
    in_hub(caches, donor)
    shared, own = (caches / "weights" / place for place in ("timm/resnet10t.pth", "photos/timm/resnet10t.pth"))
    for file in (shared, own):
        file.parent.mkdir(parents=True)
        torch.save(donor.state_dict(), file)
    assert find_timm_weights(caches / "weights", "photos", NAME) == own
    assert find_timm_weights(caches / "weights", "other", NAME) == shared
    assert "snapshots" in str(find_timm_weights(caches / "weights", "other", NAME, pretrained=True))


def test_names_are_checked_before_weights_are_asked_for() -> None:
    for name, words in (("resnet10x", "no model 'resnet10x'"), ("resnet10t.c9", "no weights 'c9' of resnet10t")):
        with pytest.raises(FsbenchError, match=f"timm has {words}"):
            refuse_unknown(f"timm/{name}")


def test_a_file_under_its_authors_names_is_converted_by_timm(tmp_path: Path) -> None:
    """As OpenCLIP has published its models, images and texts together."""
    torch.manual_seed(0)
    network: Any = timm.create_model("vit_xsmall_patch16_clip_224", num_classes=0).eval()
    state = {f"visual.trunk.{name}": value for name, value in network.state_dict().items()}
    torch.save(state | {"text_projection": torch.ones(2)}, tmp_path / "clip.pt")
    backbone = load_backbone("timm/vit_xsmall_patch16_clip_224", tmp_path / "clip.pt")
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network(images))
    assert backbone.info.note == "256 features, taken before the projection to 512, which is left out"


def test_a_file_with_names_of_its_own_is_matched_by_order_and_shape(tmp_path: Path, donor: Any) -> None:
    names = {name: f"_{number}.{name.rpartition('.')[2]}" for number, name in enumerate(donor.state_dict())}
    state = {names[name]: value for name, value in donor.state_dict().items()}  # its classifier at the end
    torch.save(state, tmp_path / "own.pth")
    backbone = load_backbone("timm/resnet10t", tmp_path / "own.pth")
    assert "matched by order and shape" in backbone.info.note
    assert all(torch.equal(value, state[names[name]]) for name, value in backbone.network.state_dict().items())
    first, *rest = state
    torch.save({name: state[name] for name in (*rest, first)}, tmp_path / "shuffled.pth")
    with pytest.raises(FsbenchError, match="0 of its"):
        load_backbone("timm/resnet10t", tmp_path / "shuffled.pth")
