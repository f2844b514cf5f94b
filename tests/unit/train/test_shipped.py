"""The weights that ship belong to the embedded data set as it is."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from fsbench.backbones.find_weights import find_weights, shipped_weights
from fsbench.backbones.load import load_backbone
from fsbench.data.catalog import dataset_info
from fsbench.io.files import sha256_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["rn12", "rn18", "wrn"])
def test_shipped_weights_were_trained_on_the_base_classes_of_glyphs_as_documented(name: str, tmp_path: Path) -> None:
    path = find_weights(tmp_path, "glyphs", name)
    assert path.parent == shipped_weights() / "glyphs"
    info = load_backbone(name, path).info
    facts = json.loads(info.metadata["fsbench"])
    assert facts["split_digest"] == dataset_info("glyphs").split_digest
    assert (facts["dataset"], facts["backbone"], info.image_size) == ("glyphs", name, 32)
    for file in ("Makefile", "weights/README.md"):
        text = (ROOT / file).read_text(encoding="utf-8")
        for variable, value in re.findall(r"^(SMALL)\s*:= (.*)$", text, re.MULTILINE):
            text = text.replace(f"$({variable})", value)
        (documented,) = re.findall(rf"fsbench train (--dataset glyphs --backbone {name} .*)$", text, re.MULTILINE)
        chosen = re.findall(r"--(?:dataset|backbone|width|epochs|seed) \S+|--no-rotation|--no-mixup", documented)
        assert len(chosen) == 7
        assert all(f"{words} " in f"{facts['command']} " for words in chosen)


CARDS = sorted(shipped_weights().glob("*/*.json"))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.parent.name}/{card.stem}")
def test_a_card_belongs_to_its_file_which_is_packaged_and_can_be_made_again(card: Path) -> None:
    facts = json.loads(card.read_text(encoding="utf-8"))
    assert sha256_of(card.with_suffix(".safetensors")) == facts["sha256"]
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for file in (card, card.with_suffix(".safetensors")):
        places = {str(file.relative_to(ROOT)), str(file.parent.relative_to(ROOT))}
        assert places & packaged["force-include"].keys()
    repeated = (ROOT / "Makefile").read_text(encoding="utf-8")
    wanted = re.findall(r"--(?:dataset|recipe|width|epochs|image-size) \S+", facts["command"])
    if "--recipe" not in facts["command"]:
        wanted += re.findall(r"--(?:backbone|lr) \S+", facts["command"])
    assert any(all(f"{words} " in line for words in wanted) for line in repeated.splitlines() if " train " in line)
