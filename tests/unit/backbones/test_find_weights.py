"""Where weights are looked for, and what is said when they are missing."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fsbench.backbones import find_weights as weights
from fsbench.backbones.find_weights import find_weights, read_manifest, shipped_weights
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

# Every (table, data set, backbone) for which the article prints numbers.
ARTICLE_ROWS = {
    f"{table} {dataset} {backbone}"
    for table, dataset, backbones in (
        ("table1", "mini-imagenet", ("RN12", "RN18", "WRN")),
        ("table1", "tiered-imagenet", ("RN12", "RN18", "WRN")),
        ("table1", "cub", ("RN12", "RN18")),
        ("table2", "mini-imagenet", ("WRN",)),
        ("table2", "cub", ("RN18",)),
        ("table3", "mini-imagenet", ("RN12", "RN12*", "RN18", "WRN")),
        ("table3", "tiered-imagenet", ("RN12", "RN12*", "RN18", "WRN")),
        ("table3", "cub", ("RN12", "RN12*", "RN18")),
        ("table3", "fc100", ("RN12", "RN12*")),
        ("table3", "cifar-fs", ("RN12", "RN12*")),
        ("fig3", "mini-imagenet", ("WRN",)),
        ("fig4", "mini-imagenet", ("WRN",)),
        ("fig5", "mini-imagenet", ("WRN",)),
    )
    for backbone in backbones
}


def put(root: Path, name: str, content: bytes = b"weights") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("ending", ["safetensors", "pt", "pth", "tar", "pth.tar", "pt1", "pt11", "pt55", "ckpt", "bin"])
def test_any_known_ending_is_found(tmp_path: Path, ending: str) -> None:
    path = put(tmp_path, f"mini/rn12.{ending}")
    put(tmp_path, "mini/rn18.pth")
    put(tmp_path, "mini/rn12-old.pth")
    put(tmp_path, "mini/rn12.txt")
    put(tmp_path, "mini/.rn12.pth.77.partial")
    put(tmp_path, "cub/rn12.pth")
    (tmp_path / "mini" / "rn12.pth.d").mkdir()
    assert find_weights(tmp_path, "mini", "rn12") == path


def test_timm_models_live_in_their_own_folder(tmp_path: Path) -> None:
    path = put(tmp_path, "mini/timm/resnet18.a1_in1k.safetensors")
    assert find_weights(tmp_path, "mini", "timm/resnet18.a1_in1k") == path
    with pytest.raises(FsbenchError, match="No weights"):
        find_weights(tmp_path, "mini", "timm/resnet18")


def test_several_candidates_are_listed(tmp_path: Path) -> None:
    first, second = put(tmp_path, "mini/wrn.pth.tar"), put(tmp_path, "mini/wrn.safetensors")
    with pytest.raises(FsbenchError, match="Several weights for wrn on mini") as caught:
        find_weights(tmp_path, "mini", "wrn")
    assert str(first) in caught.value.message
    assert str(second) in caught.value.message
    assert "--weights" in caught.value.hint


def test_missing_weights_say_what_to_put_where_and_from_where(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=re.escape(f"expected {tmp_path}/mini/wrn.*")) as caught:
        find_weights(tmp_path, "mini", "wrn")
    hint = caught.value.hint
    assert "checkpoints/mini/softmax/wideres/model_best.pth.tar" in hint
    assert "https://www.icloud.com/iclouddrive/0f3PFO3rJK0fk0nkCe8sDKAiQ#TIM" in hint
    assert f"save it as {tmp_path}/mini/wrn.pth.tar." in hint
    assert "table1, table2, table3, fig3, fig4, fig5 of the article" in hint
    assert f"{tmp_path}/mini/wrn-s2m2.tar, and give it with --weights." in hint
    assert "fsbench train --backbone wrn --dataset mini" in hint
    assert "--random-weights 0" in hint


def test_a_dataset_without_public_weights(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="No weights for rn12 on birds") as caught:
        find_weights(tmp_path, "birds", "rn12")
    assert f"{tmp_path}/birds/rn12.pth" in caught.value.hint
    assert "For features of a network that was trained on mini: download mini1.pt1" in caught.value.hint
    assert f"save it as {tmp_path}/mini/rn12.pt1, and give it with --weights." in caught.value.hint
    assert "fsbench train --backbone rn12 --data FOLDER" in caught.value.hint
    here = put(tmp_path, "cub/rn12.pth")
    with pytest.raises(FsbenchError, match="No weights for rn12 on birds") as caught:
        find_weights(tmp_path, "birds", "rn12")
    assert f"--weights {here}" in caught.value.hint
    with pytest.raises(FsbenchError) as caught:
        find_weights(tmp_path, "birds", "timm/resnet18")
    assert "fsbench train" not in caught.value.hint


def test_weights_that_come_with_fsbench_are_used_where_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    inside = put(shipped, "glyphs/rn12.safetensors")
    trained = put(shipped, "cifarfs/rn12.safetensors")
    put(shipped, "manifest.toml", b"")
    monkeypatch.setattr(weights, "shipped_weights", lambda: shipped)
    assert find_weights(own, "glyphs", "rn12") == inside
    assert find_weights(own, "cifarfs", "rn12") == trained
    with pytest.raises(FsbenchError, match="No weights"):
        find_weights(own, "mini", "rn12")
    mine = put(own, "glyphs/rn12.pt")
    assert find_weights(own, "glyphs", "rn12") == mine
    put(shipped, "cifarfs/rn12.json")  # the card of the small network
    published = put(shipped, "cifarfs/rn12.pt1")  # in a clone both lie in the same folder
    assert find_weights(shipped, "cifarfs", "rn12") == published
    put(shipped, "cifarfs/rn12.pth")
    with pytest.raises(FsbenchError, match="Several weights") as caught:
        find_weights(shipped, "cifarfs", "rn12")
    assert "rn12.safetensors" not in caught.value.message


def entry(**changes: str) -> str:
    values = {
        "dataset": '"mini"', "backbone": '"rn18"', "variant": '"rn18-simpleshot"', "repository": '"a/b"',
        "source": '"https://example.org"', "file": '"best.tar"', "target": '"mini/rn18.tar"', "rows": "[]",
        "licence": '"MIT"', "sha256": '""', "note": '""',
    }  # fmt: skip
    lines = [f"{key} = {value}" for key, value in (values | changes).items() if value]
    return "\n".join(["[[checkpoint]]", *lines])


def test_a_known_digest_is_checked(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"right").hexdigest()
    manifest = put(tmp_path, "manifest.toml", entry(sha256=f'"{digest}"').encode())
    path = put(tmp_path, "mini/rn18.tar", b"right")
    assert find_weights(tmp_path, "mini", "rn18", manifest) == path
    path.write_bytes(b"wrong")
    with pytest.raises(FsbenchError, match=f"is not the file of a/b: expected sha256 {digest}, found"):
        find_weights(tmp_path, "mini", "rn18", manifest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[checkpoint", "cannot be read"),
        ("other = 1", r"must consist of \[\[checkpoint\]\]"),
        ("checkpoint = 3", r"must consist of \[\[checkpoint\]\]"),
        ("checkpoint = [3]", "missing or unknown"),
        (entry(licence=""), "checkpoint 1: missing or unknown entries: licence"),
        (entry(extra='"x"'), "missing or unknown entries: extra"),
        (entry(note="3"), "every entry is a text"),
        (entry(rows='"table1"'), "rows is a list of texts"),
        (entry(rows="[1]"), "rows is a list of texts"),
        (entry(sha256='"abc"'), "64 hexadecimal digits"),
        (entry(variant='"rn18-ptmap"'), "'rn18-ptmap' is not a family of the backbone 'rn18'"),
        (entry(variant='"wrn-s2m2"'), "'wrn-s2m2' is not a family of the backbone 'rn18'"),
        (entry(target='"cub/rn18.tar"'), "target must be mini/<file>"),
        (entry(target='"/etc/passwd"'), "target must be mini/<file>"),
        (entry() + "\n" + entry(note="1"), "checkpoint 2"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FsbenchError, match=words):
        read_manifest(put(tmp_path, "manifest.toml", text.encode()))


def test_a_missing_manifest(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="cannot be read"):
        read_manifest(tmp_path / "manifest.toml")


def test_the_manifest_covers_every_row_of_the_article_once() -> None:
    rows = [row for item in read_manifest() for row in item.rows]
    assert sorted(rows) == sorted(ARTICLE_ROWS)


def test_the_manifest_is_consistent() -> None:
    entries = read_manifest()
    assert len({item.target for item in entries}) == len(entries)
    for item in entries:
        assert item.variant.partition("-")[0] == item.backbone
        assert weights.SUFFIXES.fullmatch("." + item.target.partition(".")[2])
        assert item.source.startswith("https://")
        # what the article used is found without an option
        assert not item.rows or item.target.startswith(f"{item.dataset}/{item.backbone}.")
    found_alone = [
        (item.dataset, item.backbone) for item in entries if item.target.startswith(f"{item.dataset}/{item.backbone}.")
    ]
    assert len(set(found_alone)) == len(found_alone)


def test_the_readme_names_every_target_file_address_and_licence() -> None:
    readme = (shipped_weights() / "README.md").read_text(encoding="utf-8")
    for item in read_manifest():
        line = next(line for line in readme.splitlines() if f"| `{item.target}` |" in line)
        assert f"`{item.file.partition(' ')[0]}`" in line
        source = next(line for line in readme.splitlines() if f"`{item.repository}`" in line)
        assert item.source in source
        assert source.endswith(f"| {item.licence} |")


def test_the_installed_package_has_its_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (shipped_weights() / "manifest.toml").is_file()
    module = put(tmp_path, "site/fsbench/backbones/find_weights.py")
    monkeypatch.setattr(weights, "__file__", str(module))
    assert shipped_weights() == tmp_path / "site" / "weights"
    (tmp_path / "site/fsbench/_weights").mkdir()
    assert shipped_weights() == tmp_path / "site/fsbench/_weights"


def test_looking_for_weights_does_not_import_torch() -> None:
    code = "import sys, fsbench.backbones.find_weights; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
