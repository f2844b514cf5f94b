"""Where weights are looked for, what is said when they are missing, and those that ship."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from fsbench.backbones import find_weights as weights
from fsbench.backbones.families import FAMILIES
from fsbench.backbones.find_weights import find_weights, read_manifest, shipped_weights
from fsbench.backbones.load import load_backbone
from fsbench.data.catalog import dataset_info, split_digest
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of
from tests.unit.data.trees import put


@pytest.mark.parametrize("ending", ["safetensors", "pth", "pth.tar", "pt11", "bin"])
def test_any_known_ending_is_found(tmp_path: Path, ending: str) -> None:
    others = ("rn18.pth", "rn12-old.pth", "rn12.txt", ".rn12.pth.77.partial")
    put(tmp_path, [f"mini/rn12.{ending}", *(f"mini/{name}" for name in others), "cub/rn12.pth"])
    (tmp_path / "mini" / "rn12.pth.d").mkdir()
    assert find_weights(tmp_path, "mini", "rn12") == tmp_path / "mini" / f"rn12.{ending}"


def test_missing_weights_say_what_to_put_where_and_from_where(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=re.escape(f"expected {tmp_path}/mini/wrn.*")) as caught:
        find_weights(tmp_path, "mini", "wrn")
    hint = caught.value.hint
    assert "checkpoints/mini/softmax/wideres/model_best.pth.tar" in hint
    assert f"save it as {tmp_path}/mini/wrn.pth.tar." in hint
    assert "fsbench train --backbone wrn --dataset mini" in hint
    with pytest.raises(FsbenchError, match="No weights for rn12 on birds") as caught:
        find_weights(tmp_path, "birds", "rn12")
    assert "fsbench train --backbone rn12 --data FOLDER" in caught.value.hint


def test_shipped_weights_are_used_where_there_are_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    put(shipped, ["glyphs/rn12.safetensors", "cifarfs/rn12.safetensors"])
    put(shipped, ["manifest.toml"], b"")
    monkeypatch.setattr(weights, "shipped_weights", lambda: shipped)
    for dataset in ("glyphs", "cifarfs"):
        assert find_weights(own, dataset, "rn12") == shipped / dataset / "rn12.safetensors"
    with pytest.raises(FsbenchError, match="No weights"):
        find_weights(own, "mini", "rn12")
    put(own, ["glyphs/rn12.pt"])
    assert find_weights(own, "glyphs", "rn12") == own / "glyphs/rn12.pt"
    put(shipped, ["cifarfs/rn12.json", "cifarfs/rn12.pt1"])  # a card; in a clone all lie in the same folder
    assert find_weights(shipped, "cifarfs", "rn12") == shipped / "cifarfs/rn12.pt1"
    put(shipped, ["cifarfs/rn12.pth"])
    with pytest.raises(FsbenchError, match=r"Several weights for rn12 on cifarfs: .*rn12.pt1, .*rn12.pth") as caught:
        find_weights(shipped, "cifarfs", "rn12")
    assert "rn12.safetensors" not in caught.value.message


def test_the_manifest_is_consistent() -> None:
    entries = read_manifest()
    assert len({item.target for item in entries}) == len(entries)
    for item in entries:
        assert weights.SUFFIXES.fullmatch("." + item.target.partition(".")[2])
        assert item.source.startswith("https://")
        assert FAMILIES[item.variant].backbone == item.backbone
        assert item.target.startswith(f"{item.dataset}/")
        # what the article used is found without an option
        assert not item.rows or item.target.startswith(f"{item.dataset}/{item.backbone}.")


def test_the_readme_names_every_target_file_address_and_licence() -> None:
    readme = (shipped_weights() / "README.md").read_text(encoding="utf-8")
    for item in read_manifest():
        line = next(line for line in readme.splitlines() if f"| `{item.target}` |" in line)
        assert f"`{item.file.partition(' ')[0]}`" in line
        source = next(line for line in readme.splitlines() if f"`{item.repository}`" in line)
        assert item.source in source
        assert source.endswith(f"| {item.licence} |")


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["rn12", "rn18", "wrn"])
def test_shipped_weights_were_trained_on_the_base_classes_of_glyphs_as_documented(name: str, tmp_path: Path) -> None:
    path = find_weights(tmp_path, "glyphs", name)
    assert path.parent == shipped_weights() / "glyphs"
    info = load_backbone(name, path).info
    facts = json.loads(info.metadata["fsbench"])
    assert facts["split_digest"] == split_digest(dataset_info("glyphs").splits)
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
