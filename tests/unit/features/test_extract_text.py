"""`fsbench extract --text` with a stand-in for open_clip: a tiny random model with both towers."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fsbench.backbones.load import Weights
from fsbench.data.scan import OwnData
from fsbench.errors import FsbenchError, UsageError
from fsbench.features.extract import Settings, extract
from fsbench.features.store import FeatureFile
from tests.comparing import CPU, QUIET
from tests.images import SPLITS, write_images
from tests.pretend import open_clip_of

TEMPLATES = ("a photo of a {}.", "art of the {}.")


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pixels, self.letters = nn.Linear(3, 6), nn.Embedding(128, 6)
        self.visual = SimpleNamespace(image_size=(16, 16), image_mean=(0.5,) * 3, image_std=(0.2,) * 3, output_dim=6)

    def encode_image(self, images: Tensor) -> Tensor:
        return self.pixels(images.mean(dim=(2, 3)))

    def encode_text(self, tokens: Tensor) -> Tensor:
        return self.letters(tokens).sum(dim=1)


def tokenize(prompts: list[str]) -> Tensor:
    return torch.tensor([[ord(letter) for letter in prompt.ljust(40)] for prompt in prompts])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", open_clip_of(Tiny, tokenize))


def run(root: Path, out: Path, text: Any = (), backbone: str = "open_clip/Tiny") -> FeatureFile:
    loaded = Weights(backbone, None, 0, root).load("own")
    return extract(OwnData(root).load(), loaded, out, Settings(workers=0, text=text), CPU, QUIET)


@pytest.mark.usefixtures("library")
def test_classes_get_the_mean_of_their_prompts_and_a_file_gets_text_later(tmp_path: Path) -> None:
    root = write_images(tmp_path / "own", SPLITS)
    before = run(root, tmp_path / "f.h5")
    file = run(root, tmp_path / "f.h5", TEMPLATES)
    tiny: Any = Weights("open_clip/Tiny", None, 0, root).load("own").network
    for name in file.splits:
        split = file.read(name)
        np.testing.assert_array_equal(split.features, before.read(name).features)
        assert split.text is not None
        for row, words in zip(split.text, split.class_names, strict=True):
            prompts = [template.format(words.replace("_", " ")) for template in TEMPLATES]
            rows = tiny.model.encode_text(tokenize(prompts)).detach().numpy()
            mean = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).mean(axis=0)
            length = np.linalg.norm(rows, axis=1).mean()
            np.testing.assert_allclose(row, length * mean / np.linalg.norm(mean), rtol=1e-5)
    assert (file.provenance.text_encoder, file.provenance.templates) == ("open_clip/Tiny", TEMPLATES)
    assert all(split.text is None for split in before.splits.values())
    assert replace(before.provenance, templates=TEMPLATES).recipe == file.provenance.recipe


def test_what_is_missing_is_named(tmp_path: Path, library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "own", SPLITS)
    with pytest.raises(UsageError, match="rn12 knows no text"):
        run(root, tmp_path / "a.h5", TEMPLATES, "rn12")
    with pytest.raises(UsageError, match="where the name of a class goes"):
        run(root, tmp_path / "b.h5", ("a photo",))
    with pytest.raises(FsbenchError, match="open_clip has no model 'Huge'"):
        run(root, tmp_path / "c.h5", (), "open_clip/Huge")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(FsbenchError, match="needs the package open_clip"):
        run(root, tmp_path / "d.h5")
