"""A folder of photos as people have them, and a network of timm from its cache."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file

from fsbench.doctor import Environment
from fsbench.features.store import FeatureFile
from tests.cli import run
from tests.images import write_images

if TYPE_CHECKING:
    from pathlib import Path

BACKBONE = "timm/test_resnet.r160_in1k"
CLASSES = ["Möwe grün", "鳥の写真", "🦜 parrots", "d", "e", "f", "g", "h", "i", "j"]
EXTRACT = ("extract", "--data", "photos", "--backbone", BACKBONE, "--workers", "0", "--device", "cpu")
DIVIDED = ("--split-fractions", "0.3,0.2,0.5")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """JPEGs of several kinds, and beside them what is usually there too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsbench.doctor.probe_environment", lambda: Environment({}))
    write_images(tmp_path, {"photos": CLASSES}, images=8, side=24)
    root = tmp_path / "photos"
    for number, path in enumerate(sorted(root.rglob("*.png"))):
        mode = ("RGB", "L", "CMYK")[number % 3]
        Image.open(path).convert(mode).save(path.with_suffix(".JPG" if number % 2 else ".jpeg"), quality=90)
        path.unlink()
    (root / "nested" / "2023" / "may").mkdir(parents=True)
    for image in (root / "d").iterdir():
        shutil.move(image, root / "nested" / "2023" / ("may" if image.name < "004" else "") / image.name)
    (root / "d").rmdir()
    (root / "tiny").mkdir()
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(root / "tiny" / "1.jpg")
    for name in ("loose.jpg", ".hidden/1.jpg", "e/IMG_1.HEIC", "e/notes.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"1")
    (root / "empty").mkdir()
    return root


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model in a cache as Hugging Face lays it out: blobs, links to them per revision, and a reference to one."""
    repository = tmp_path / "hub" / "models--timm--test_resnet.r160_in1k"
    for folder in ("blobs", "refs", f"snapshots/{'4f' * 20}"):
        (repository / folder).mkdir(parents=True)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), repository / "blobs" / "abc")
    (repository / "refs" / "main").write_text("4f" * 20)
    (repository / "snapshots" / ("4f" * 20) / "model.safetensors").symlink_to("../../blobs/abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.heavy
@pytest.mark.usefixtures("cached")
def test_from_photos_and_a_cached_model_to_the_table_in_three_commands(photos: Path) -> None:
    extracted = run(*EXTRACT, *DIVIDED, "--min-images", "2")
    assert extracted.returncode == 0, extracted.output
    for words in (
        "80 images of 10 classes (3 base, 2 val, 5 novel), 8 per class",
        "2 classes with fewer than 2 readable images are left out: empty (0), tiny (1).",
        "5-way tasks of its novel classes: balanced 1-shot with --queries 35 or fewer",
        f"{BACKBONE}: revision 4f4f4f4f; ",
        "96 features, taken before the classifier to 1000, which is left out.",
    ):
        assert words in extracted.stderr
    file = FeatureFile.open(next((photos.parent / "features").glob("*.h5")))
    digest = file.provenance.weights_sha256[:8]
    methods = ("--methods", "ncm,soft-kmeans,bavardage", "--tasks", "20", "--device", "cpu")
    compared = run("compare", *methods, "--queries", "10", "--skip-infeasible")
    assert compared.returncode == 0, compared.output
    heading = f"photos {BACKBONE} (revision 4f4f4f4f@{digest}): accuracy in %"
    assert heading in " ".join(compared.stdout.split())
    assert f"{BACKBONE}({digest})/novel|" in compared.stdout.replace("\n", "")
    assert run("report").returncode == 0
    assert digest in (photos.parent / "report.html").read_text(encoding="utf-8")
    again = run(*EXTRACT, *DIVIDED, "--split-seed", "1", "--min-images", "2")
    assert "of another class or split now" in again.stderr
    assert "--force, or keep both with --tag NAME or --out FILE" in again.stderr


def test_broken_images_are_named_where_they_stop_and_all_by_doctor(photos: Path) -> None:
    whole = next((photos / "f").iterdir()).read_bytes()
    (photos / "f" / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "g" / "page.jpg").write_text("<html>not found</html>")
    stopped = run(*EXTRACT, *DIVIDED, "--random-weights", "0")
    assert stopped.returncode == 1
    assert "An image of photos cannot be used: " in stopped.stderr
    assert "fsbench doctor --deep --data photos" in stopped.stderr
    shown = " ".join(run("doctor", "--deep", "--data", "photos").stdout.split())
    assert "2 of 83 images cannot be read:" in shown
    assert "Could not read the image photos/f/broken.jpg: " in shown
    assert "g/page.jpg: it is not an image" in shown
    assert "not divided into base, val and novel" in shown
    plain = json.loads(run("doctor", "--data", "photos", "--json").stdout)
    assert plain["data_sentences"] == ["Images were counted, not read: --deep decodes every one of them."]
