"""Models of timm: names, caches, and files as their authors have published them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from fsbench.backbones.load import load_backbone, refuse_unknown
from fsbench.backbones.timm_models import find_timm_weights
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

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


def in_hub(caches: Path, donor: Any, revision: str = REVISION) -> Path:
    folder = caches / "hf" / "models--timm--resnet10t.c3_in1k" / "snapshots" / revision
    folder.mkdir(parents=True)
    save_file(donor.state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def test_weights_are_found_in_the_caches_and_recorded_with_revision_and_hash(caches: Path, donor: Any) -> None:
    file = in_hub(caches, donor)
    assert find_timm_weights(caches / "weights", "photos", NAME) == file
    assert find_timm_weights(caches / "weights", "photos", f"{NAME}.c3_in1k", pretrained=True) == file
    info = load_backbone(NAME, file).info
    assert info.weights == "timm/resnet10t.c3_in1k revision 01234567"
    assert load_backbone(f"{NAME}.c3_in1k", file).info.weights == "revision 01234567"
    assert len(info.sha256) == 64
    assert info.note == "512 features, taken before the classifier to 1000, which is left out"
    shutil.rmtree(caches / "hf")
    old = caches / "torch" / "hub" / "checkpoints" / "resnet10t_176_c3-f3215ab1.pth"
    old.parent.mkdir(parents=True)
    torch.save(donor.state_dict(), old)
    assert find_timm_weights(caches / "weights", "photos", NAME) == old


def test_of_several_revisions_that_of_main_is_used(caches: Path, donor: Any) -> None:
    file, _ = in_hub(caches, donor), in_hub(caches, donor, "f" * 40)
    with pytest.raises(FsbenchError, match="several revisions"):
        find_timm_weights(caches, "photos", NAME)
    refs = file.parents[2] / "refs"
    refs.mkdir()
    (refs / "main").write_text(REVISION)
    assert find_timm_weights(caches, "photos", NAME) == file


def test_one_file_serves_several_data_sets_and_own_files_come_first(caches: Path, donor: Any) -> None:
    in_hub(caches, donor)
    shared, own = (caches / "weights" / place for place in ("timm/resnet10t.pth", "photos/timm/resnet10t.pth"))
    for file in (shared, own):
        file.parent.mkdir(parents=True)
        torch.save(donor.state_dict(), file)
    assert find_timm_weights(caches / "weights", "photos", NAME) == own
    assert find_timm_weights(caches / "weights", "other", NAME) == shared
    assert "snapshots" in str(find_timm_weights(caches / "weights", "other", NAME, pretrained=True))


def test_missing_weights_are_told_with_every_place_and_way_out(caches: Path) -> None:
    with pytest.raises(FsbenchError, match=r"(?s)photos/timm/resnet10t\.\*.*models--timm.*checkpoints") as caught:
        find_timm_weights(caches / "weights", "photos", NAME)
    assert all(word in caught.value.hint for word in ("--pretrained", "--weights FILE", "--random-weights"))


def test_a_download_that_fails_names_the_cause(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        try:
            raise OSError(101, "Network is unreachable")
        except OSError as error:
            raise RuntimeError("an error of the hub") from error

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(FsbenchError, match=r"could not download the weights of resnet10t: .*Network is unreachable"):
        find_timm_weights(caches, "photos", NAME, pretrained=True)


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timm/resnet10x", "timm has no model 'resnet10x'"),
        ("timm/resnet10t.c9", "timm has no weights 'c9' of resnet10t"),
        ("timm/hf-hub:timm/resnet10t", "timm has no model"),
    ],
)
def test_names_are_checked_before_weights_are_asked_for(name: str, words: str) -> None:
    with pytest.raises(FsbenchError, match=words) as caught:
        refuse_unknown(name)
    assert caught.value.hint


def same(backbone: Any, network: Any) -> None:
    images = torch.randn(1, *backbone.info.data_config.input_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(images), pre_logits=True)
        torch.testing.assert_close(backbone(images), expected)


def test_clip_as_openai_has_published_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network: Any = timm.create_model("vit_xsmall_patch16_clip_224").eval()
    state: dict[str, Tensor] = {
        "visual.proj": network.head.weight.detach().T.contiguous(),
        "text_projection": torch.ones(2),
    }
    for name, value in network.state_dict().items():
        name = name.replace("patch_embed.proj", "conv1").replace("norm_pre", "ln_pre").replace("blocks.", BLOCKS)
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        if name == "cls_token":
            state["visual.class_embedding"] = value[0, 0]
        elif name == "pos_embed":
            state["visual.positional_embedding"] = value[0]
        elif not name.startswith("head."):
            state[f"visual.{name}"] = value
    torch.save(state, tmp_path / "clip.pt")
    backbone = load_backbone("timm/vit_xsmall_patch16_clip_224", tmp_path / "clip.pt")
    same(backbone, network)
    assert backbone.info.note == "256 features, taken before the projection to 512, which is left out"


BLOCKS = "transformer.resblocks."
NAMES = {
    "attn.qkv.": "attn.in_proj_", "attn.proj": "attn.out_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj",
    "norm1": "ln_1", "norm2": "ln_2", "norm.": "ln_post.",
}  # fmt: skip


def test_dinov2_as_meta_has_published_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network: Any = timm.create_model("vit_small_patch14_dinov2.lvd142m").eval()
    torch.save({**network.state_dict(), "mask_token": torch.zeros(1, 384)}, tmp_path / "dinov2_vits14_pretrain.pth")
    backbone = load_backbone("timm/vit_small_patch14_dinov2.lvd142m", tmp_path / "dinov2_vits14_pretrain.pth")
    assert torch.equal(backbone.network.state_dict()["pos_embed"], network.pos_embed)
    assert backbone.info.note == ""


def test_efficientnet_with_its_classifier(tmp_path: Path) -> None:
    network: Any = timm.create_model("efficientnet_b0").eval()
    torch.save(network.state_dict(), tmp_path / "efficientnet_b0_ra-3dd342df.pth")
    same(load_backbone("timm/efficientnet_b0", tmp_path / "efficientnet_b0_ra-3dd342df.pth"), network)


def test_a_file_of_another_network_is_told_by_how_many_tensors_fit(tmp_path: Path, donor: Any) -> None:
    torch.save(donor.state_dict(), tmp_path / "a.pth")
    with pytest.raises(FsbenchError, match=r"is not timm's efficientnet_b0: 0 of \d+ tensors fit"):
        load_backbone("timm/efficientnet_b0", tmp_path / "a.pth")
    with pytest.raises(FsbenchError, match=r"Nearest is .*, with \d+ of \d+ names"):
        load_backbone("rn12", tmp_path / "a.pth")
    torch.save({"alpha.beta": torch.ones(2)}, tmp_path / "b.pth")
    with pytest.raises(FsbenchError, match="No family has such names"):
        load_backbone("wrn", tmp_path / "b.pth")
