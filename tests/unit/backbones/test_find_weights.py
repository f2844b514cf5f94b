"""Where weights are looked for, and what is said when they are missing."""

import re
from pathlib import Path

import pytest

from fsbench.backbones import find_weights as weights
from fsbench.backbones.families import FAMILIES
from fsbench.backbones.find_weights import find_weights, read_manifest, shipped_weights
from fsbench.errors import FsbenchError
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
