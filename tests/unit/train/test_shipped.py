"""The weights that ship belong to the embedded data set as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fsbench.backbones.find_weights import find_weights, shipped_weights
from fsbench.backbones.load import load_backbone
from fsbench.data.catalog import dataset_info

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["rn12", "rn18", "wrn"])
def test_shipped_weights_were_trained_on_the_base_classes_of_glyphs(name: str, tmp_path: Path) -> None:
    path = find_weights(tmp_path, "glyphs", name)
    assert path.parent == shipped_weights() / "glyphs"
    info = load_backbone(name, path).info
    facts = json.loads(info.metadata["fsbench"])
    assert facts["split_digest"] == dataset_info("glyphs").split_digest
    assert (facts["dataset"], facts["backbone"], info.image_size) == ("glyphs", name, 32)


@pytest.mark.parametrize("name", ["rn12", "rn18", "wrn"])
@pytest.mark.parametrize("file", ["Makefile", "weights/README.md"])
def test_the_command_in_the_header_is_the_one_that_is_documented(name: str, file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    for variable, value in re.findall(r"^(SMALL)\s*:= (.*)$", text, re.MULTILINE):
        text = text.replace(f"$({variable})", value)
    (documented,) = re.findall(rf"fsbench train (--dataset glyphs --backbone {name} .*)$", text, re.MULTILINE)
    info = load_backbone(name, shipped_weights() / "glyphs" / f"{name}.safetensors").info
    command = json.loads(info.metadata["fsbench"])["command"]
    chosen = re.findall(r"--(?:dataset|backbone|width|epochs|seed) \S+|--no-rotation|--no-mixup", documented)
    assert len(chosen) == 7
    for words in chosen:
        assert f"{words} " in f"{command} "


def test_shipped_weights_are_small() -> None:
    assert sum(path.stat().st_size for path in (shipped_weights() / "glyphs").iterdir()) < 4_200_000
