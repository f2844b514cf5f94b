"""`fsbench label` on small images: the loop, and what can be wrong with a call."""

import csv
import io
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fsbench
from fsbench.features.forward import Forward
from fsbench.labelling import solve
from tests.cli import run, succeed
from tests.images import write_images
from tests.pretend import open_clip_of
from tests.synthetic import make_features
from tests.watching import watch
from tests.workspace import SHIPPED

CLASSES = ["ant", "bee", "=cat"]
NETWORK = "--backbone rn12 --weights my.pth"
CALL = f"label photos --support labelled {NETWORK}"


def rows(text: str) -> dict[str, dict[str, str]]:
    every = {row["file"]: row for row in csv.DictReader(io.StringIO(text))}
    return {file: row for file, row in every.items() if not file.startswith("labelled/")}


@pytest.fixture
def work(here: Path) -> Path:
    """`labelled` with three classes of four images, `photos` with 24 others, and a network."""
    write_images(here, {"labelled": CLASSES}, images=12)
    (here / "photos").mkdir()
    for name in CLASSES:
        for path in sorted((here / "labelled" / name).iterdir())[4:]:
            path.rename(here / "photos" / f"{name[-3:]}{path.name}")
    shutil.copy(SHIPPED / "rn12.safetensors", here / "my.pth")
    return here


def test_from_folders_to_labels_and_back(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = succeed(*CALL.split(), "--suggest", "3", "--sort-into", "sorted")
    text = (work / "labels.csv").read_text(encoding="utf-8")
    first = rows(text)
    assert list(first) == sorted(first)
    assert len(first) == 24
    truth = {file: next(name for name in CLASSES if name[-3:] == Path(file).name[:3]) for file in first}
    right = sum(row["label"].removeprefix("'") == truth[file] for file, row in first.items())
    assert right >= 22
    assert all(0 <= float(row["second_confidence"]) <= float(row["confidence"]) <= 1 for row in first.values())
    assert "'=cat" in {row["label"] for row in first.values()}  # which a spreadsheet would compute
    assert "Of your 12 labelled images" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("  photos/")]) == 3
    links = sorted((work / "sorted").rglob("*.png"))
    assert len(links) == 24
    assert all(link.is_symlink() and link.resolve().parent == work / "photos" for link in links)
    assert len(list((work / "photos").iterdir())) == 24

    monkeypatch.setattr(Forward, "__call__", None)  # features are not computed again
    assert "exists already" in run(*CALL.split()).output  # labels.csv is not overwritten
    succeed(*CALL.split(), "--force")
    assert (work / "labels.csv").read_text(encoding="utf-8") == text
    shutil.copy("labels.csv", "mine.csv")  # which has the labelled images too
    told = succeed("label", "photos", "--support", "mine.csv", *NETWORK.split(), "--force", "--no-page").stderr
    assert "12 labelled ones of 3 classes, 4 of each" in told
    succeed(*CALL.split(), "--force")
    # Checked rows of the table go back in; the images are in photos/ still, and are not asked for again.
    wrong, none, *_ = first
    (work / "checked.csv").write_text(
        "file,label,confidence,flag\n"
        f"{wrong},'=cat,1,checked\n{none},,1,none of these\nphotos/{Path(list(first)[5]).name},bee,0.4,\n",
        encoding="utf-8",
    )
    shown = json.loads(succeed(*CALL.split(), "--support", "checked.csv", "--force", "--json").stdout)
    table = {row["file"]: row for row in shown["labels"]}
    assert (table[wrong]["label"], table[wrong]["confidence"], table[wrong]["flag"]) == ("=cat", 1.0, "checked")
    assert (table[none]["label"], table[none]["flag"]) == ("", "none of these")
    assert len(table) == 24
    right, hidden = map(sum, zip(*shown["expected"]["by_class"].values(), strict=True))
    assert hidden == 13
    labels = fsbench.label("photos", ["labelled", "checked.csv"], backbone="rn12", weights="my.pth")
    assert labels.table == shown["labels"]


def test_new_images_alone_are_computed_and_moved_ones_reused(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    succeed(*CALL.split(), "--no-page")
    computed = watch(monkeypatch, Forward, "__call__", lambda forward, images: len(images))
    (work / "photos").rename(work / "moved")
    write_images(work / "moved", {"new": ["x"]}, images=2, seed=9)
    succeed("label", "moved", "--support", "labelled", *NETWORK.split(), "--force", "--no-page")
    assert sum(computed) == 2
    assert not (work / "labels.html").exists()
    shutil.copy(work / "moved" / "ant004.png", work / "labelled" / "ant" / "000.png")
    for line in ("--support labelled --out between.csv", "--support labels.csv --out new.csv"):
        done = succeed("label", "moved", *line.split(), *NETWORK.split(), "--no-page")
    assert "image has changed since labels.csv was written; the label is not used: labelled/ant/000.png" in done.stderr
    assert "11 labelled ones of 3 classes, 3 to 4 of each" in done.stderr


def test_odd_images_are_named_and_nothing_is_lost(work: Path) -> None:
    photos = work / "photos"
    (photos / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    (photos / "empty.png").write_bytes(b"")
    (photos / "phone.HEIC").write_bytes(b"x")
    shutil.copy(work / "labelled" / "bee" / "000.png", photos / "same.png")
    shutil.copy(work / "labelled" / "bee" / "000.png", work / "labelled" / "bee" / "again.png")
    (photos / "bee").mkdir()
    shutil.copy(photos / "bee004.png", photos / "bee" / "bee004.png")  # one name in two folders
    Image.new("CMYK", (20, 20), (0, 90, 90, 0)).save(photos / "cmyk.jpg")
    frames = [Image.new("RGB", (20, 20), shade) for shade in ("red", "blue")]
    frames[0].save(photos / "moving.gif", save_all=True, append_images=frames[1:])
    (work / "labelled" / "empty").mkdir()
    (work / "labelled" / "bad.png").write_bytes(b"")
    done = succeed(*CALL.split(), "--sort-into", "sorted", "--copy")
    table = rows((work / "labels.csv").read_text(encoding="utf-8"))
    assert len(table) == 24 + 6
    assert table["photos/broken.jpg"]["flag"].startswith("not readable: ")
    assert table["photos/empty.png"]["flag"].startswith("not readable: ")
    same = table["photos/same.png"]
    assert (same["label"], same["flag"]) == ("bee", "copy of labelled/bee/000.png")
    assert table["photos/bee004.png"]["flag"] == "near-duplicate of photos/bee/bee004.png"
    assert table["photos/cmyk.jpg"]["label"]
    for words in (
        "left out, in a format that is not read: convert to JPEG: phone.HEIC",
        "1 class folder is left out, without an image to learn from: empty",
        "in no class folder: bad.png",
        "again.png is a copy of labelled/bee/000.png",
        "1 unlabelled image is in a folder named like a class, such as photos/bee/bee004.png",
    ):
        assert words in done.stderr
    assert len(list((work / "sorted").rglob("bee004*.png"))) == 2
    assert not any(path.is_symlink() for path in (work / "sorted").rglob("*"))


def test_a_class_counts_by_its_share_and_not_by_how_many_images_are_labelled(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = watch(monkeypatch, solve, "calibrate", lambda odds, right, weights, solver: weights.tolist())
    for number in range(2):
        (work / "labelled" / "ant" / f"00{number}.png").unlink()
    assert "rather more labels are right than that" in succeed(*CALL.split(), "--no-page").stdout
    for number in range(4, 8):
        (work / "photos" / f"cat00{number}.png").rename(work / "labelled" / "=cat" / f"00{number}.png")
    assert "If classes with few labelled images are harder" in succeed(*CALL.split(), "--no-page", "--force").stdout
    assert sorted(Counter(given[1]).values()) == [2, 4, 8]  # one weight for all images of a class
    assert given[1].count(max(given[1])) == 2  # that of two counts most


def test_what_could_not_be_hidden_tells_nothing_and_is_counted(work: Path) -> None:
    def alone(*names: str) -> str:
        for path in (path for name in names for path in sorted((work / "labelled" / name).iterdir())[1:]):
            path.unlink()
        return succeed(*CALL.split(), "--no-page", "--force").stdout

    told = alone("ant")
    assert re.search(r"Of your 9 labelled images 8 could be hidden, and [0-8] of them came back right\.", told)
    assert "1 class has too few labelled images to hide one" in told
    assert "cannot be told: there is no labelled image that could be hidden" in alone(*CLASSES)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"label phtos --support labelled {NETWORK}", "neither a folder nor a text file"),
        (f"label photos/ant004.png --support labelled {NETWORK}", "is one image"),
        (f"label none --support labelled {NETWORK}", "There is no image to label in none"),
        (f"label list.txt --support labelled {NETWORK}", "cannot be found: gone.png"),
        (f"label photos {NETWORK}", "At least two classes are needed, there is none"),
        (f"label photos --support labeled {NETWORK}", "neither a folder nor a CSV file"),
        (f"label photos --support one.csv {NETWORK}", "At least two classes are needed, there is ant"),
        (f"label photos --support raw.csv {NETWORK}", "none of them checked by a person"),
        (f"label photos --support blank.csv {NETWORK}", "has no label for ant004.png"),
        (f"label photos --support lost.csv {NETWORK}", "1 file that lost.csv names cannot be found"),
        (f"label photos --support both.csv {NETWORK}", "two labels for photos/ant004.png"),
        (f"label photos --support labelled/ant/n.csv {NETWORK}", "000.png of labelled/ant/n.csv is several images"),
        (f"{CALL} --support two.csv", "is labelled 'ant' and 'bee'"),
        (f"{CALL} --support copy.csv", "are the same image, labelled 'ant' and 'bee'"),
        (f"{CALL} --classes ant,dog", "--classes: rn12 knows no text"),
        (f"label photos --classes ant,dog --method ncm {NETWORK}", "ncm needs labelled images of every class"),
        (f"{CALL} --method stata", "stata needs text"),
        (f"{CALL} --method bavardge", "bavardage"),
        (f"{CALL} --base other.h5", "other.h5"),
        (f"{CALL} --support renamed.csv", "holds answers of fsbench under other names"),
        (f"label photos --support flagged.csv {NETWORK}", "none of them checked by a person"),
        (f"{CALL} --out other.csv", "other-rn12.h5 holds features that fsbench label has not made"),
        (f"{CALL} --copy", "--sort-into"),
        (f"{CALL} --out labels.txt", "must end in .csv"),
        (f"{CALL} --sort-into photos", "photos is not empty"),
        ("label photos --support labelled --backbone rn12", "--weights FILE"),
        ("label photos --support labelled", "--pretrained"),
    ],
)
def test_a_wrong_call_is_one_clear_sentence(line: str, said: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(work / "hub"))
    (work / "none").mkdir()
    (work / "list.txt").write_text(f"gone.png\n{300 * 'x'}.png\n", encoding="utf-8")
    for name, lines in {
        "one": ["photos/ant004.png,ant"],
        "blank": ["ant004.png,"],
        "lost": ["nowhere.png,ant"],
        "two": ["labelled/ant/000.png,bee"],
        "copy": ["photos/twin.png,bee"],
        "both": ["photos/ant004.png,ant", "./photos/ant004.png,bee"],
        "labelled/ant/n": ["000.png,ant"],
    }.items():
        (work / f"{name}.csv").write_text("\n".join(["file,label", *lines]), encoding="utf-8")
    (work / "raw.csv").write_text("File,Label,Confidence,Flag\nphotos/ant004.png,ant,0.9,\n", encoding="utf-8")
    (work / "flagged.csv").write_text("file,label,flag\nphotos/ant004.png,ant,uncertain\n", encoding="utf-8")
    make_features(dimension=8).write(work / "other-rn12.h5")
    (work / "renamed.csv").write_text("filename,label,outlier_score\nphotos/ant004.png,ant,0.9\n", encoding="utf-8")
    shutil.copy(work / "photos" / "ant004.png", work / "photos" / "000.png")
    shutil.copy(work / "labelled" / "ant" / "000.png", work / "photos" / "twin.png")
    done = run(*line.split())
    assert done.returncode in (1, 2), done.output
    assert said in done.output.replace("\n", " ")
    assert done.stdout == ""
    assert not (work / "labels.csv").exists()


COLOURS = {"red": (1.0, 0.0, 0.0), "blue": (0.0, 0.0, 1.0), "light green": (0.4, 1.0, 0.4)}


class Colours(nn.Module):
    """A stand-in for open_clip's models that knows colours, by image and by name."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.visual = SimpleNamespace(image_size=16, image_mean=(0.0,) * 3, image_std=(1.0,) * 3, output_dim=3)

    def encode_image(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(dim=(2, 3))

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens


def test_names_of_classes_are_enough_for_a_model_that_knows_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then some labelled images of one class, the only one of another, and of none of the third."""
    library = open_clip_of(Colours, lambda prompts: torch.tensor([COLOURS[one.removeprefix("a ")] for one in prompts]))
    monkeypatch.setitem(sys.modules, "open_clip", library)
    random, photos, labelled = np.random.default_rng(0), here / "photos", here / "labelled"
    for name, colour in COLOURS.items():
        for place, number in [(photos, n) for n in range(8)] + [(labelled / name.replace(" ", "_"), n) for n in (8, 9)]:
            place.mkdir(parents=True, exist_ok=True)
            shade = 55 + 150 * np.array(colour) + random.uniform(-30, 30, 3)
            Image.new("RGB", (20, 20), tuple(map(int, shade))).save(place / f"{name[-5:]}{number}.png")
    (here / "names.txt").write_text("red\nblue\nlight_green\n", encoding="utf-8")
    (here / "model.pt").write_bytes(b"weights")
    call = ("label", "photos", "--backbone", "open_clip/Colours", "--weights", "model.pt", "--text", "a {}", "--force")

    def right(*more: str) -> str:
        done = succeed(*call, *more, "--no-page")
        table = rows((here / "labels.csv").read_text(encoding="utf-8"))
        assert [row["label"][-5:] for row in table.values()] == [Path(file).stem[:-1] for file in table]
        assert all(0.3 < float(row["confidence"]) <= 1 for row in table.values())
        return done.output

    assert "0 labelled ones of 3 classes, 0 of each" in right("--classes", "names.txt")
    assert "labelled with 3 classes by bavardage-text" in right("--classes", "red,blue,light_green")
    shutil.rmtree(labelled / "light_green")
    (labelled / "blue" / "blue8.png").unlink()
    for method in ("bavardage-text", "transclip", "stata", "zlap", "otter", "zero-shot", "em-dirichlet"):
        done = right("--support", "labelled", "--classes", "light_green", "--method", method)
        assert "Of your 3 labelled images 3 came back right" in done
    missing = run(*call, "--support", "labelled", "--classes", "light_green", "--method", "gda")
    told = " ".join(missing.output.split())
    assert "gda needs labelled images of every class; there are none of light_green" in told


def test_paths_from_standard_input(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("photos/ant004.png\nphotos/bee005.png\n"))
    succeed("label", "-", "--support", "labelled", *NETWORK.split(), "--no-page")
    assert list(rows((work / "labels.csv").read_text(encoding="utf-8"))) == ["photos/ant004.png", "photos/bee005.png"]
