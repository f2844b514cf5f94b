"""The embedded data set: its classes, its pixels, and how it gets onto the disk."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import subprocess
import sys
import time
import unicodedata
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from scipy.interpolate import BSpline
from scipy.ndimage import convolve

from fsbench.data import _glyph_outlines, _glyph_render, glyphs
from fsbench.data._glyph_outlines import read_outlines
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Outlines = dict[int, list[_glyph_outlines.Outline]]

SAMPLE = [
    "0041_latin_capital_letter_a",
    "00a3_pound_sign",
    "039e_greek_capital_letter_xi",
    "0409_cyrillic_capital_letter_lje",
    "2207_nabla",
]
SAMPLE_DIGESTS = [
    "f254a1d43d7ab057",
    "7592fc40818cd0c4",
    "a6f3c9a35c384a7b",
    "a0a78423f7b2c960",
    "c93c0bf591830def",
]
ALL_DIGEST = "52f715696231b2e758586b22f883655c26796fe0f193c2d5bdbd08eac0b73011"


@pytest.fixture(scope="module")
def outlines() -> Outlines:
    """Every class in every typeface."""
    return read_outlines(glyphs._code_point(name) for name in every_class())


@pytest.fixture(scope="module")
def sample() -> dict[str, NDArray[np.uint8]]:
    """Four real images of a few classes."""
    return dict(zip(SAMPLE, glyphs._draw(SAMPLE, 4), strict=True))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> int:
    """A data set of four classes with three plain images each, drawn without fonts; its number of images."""
    classes = {"base": ["0041_a", "0042_b"], "val": ["0043_c"], "novel": ["0044_d"]}

    def draw(names: list[str], count: int) -> Iterator[NDArray[np.uint8]]:
        for name in names:
            shade = 3 * glyphs._code_point(name) + np.arange(count)
            yield np.broadcast_to(shade[:, None, None, None], (count, 32, 32, 3)).astype(np.uint8)

    monkeypatch.setattr(glyphs, "glyph_classes", lambda: classes)
    monkeypatch.setattr(glyphs, "IMAGES_PER_CLASS", 3)
    monkeypatch.setattr(glyphs, "_draw", draw)
    return 12


def every_class() -> list[str]:
    return [name for names in glyphs.glyph_classes().values() for name in names]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestClasses:
    def test_there_are_100_in_the_proportions_of_mini_imagenet(self) -> None:
        classes = glyphs.glyph_classes()
        assert {split: len(names) for split, names in classes.items()} == {"base": 64, "val": 16, "novel": 20}
        assert len({name for names in classes.values() for name in names}) == 100
        assert all(names == sorted(names) for names in classes.values())

    def test_are_named_by_code_point_and_unicode_name(self) -> None:
        for name in every_class():
            character = chr(glyphs._code_point(name))
            words = unicodedata.name(character).lower().replace(" ", "_").replace("-", "_")
            assert name == f"{ord(character):04x}_{words}"
            assert glyphs.OWN_FILE.fullmatch(f"base/{name}/000.png")

    def test_every_split_mixes_scripts(self) -> None:
        for names in glyphs.glyph_classes().values():
            scripts = {name.split("_")[1] for name in names}
            assert {"latin", "greek", "cyrillic", "digit"} <= scripts
            assert len(scripts) > 6  # several kinds of symbols too

    def test_no_two_are_upper_and_lower_case_of_one_letter_of_the_same_shape(self) -> None:
        characters = {chr(glyphs._code_point(name)) for name in every_class()}
        for pair in [
            "Cc",
            "Oo",
            "Ss",
            "Vv",
            "Ww",
            "Xx",
            "Zz",
            "Kk",
            "Pp",
            "Uu",
            "69",
            "ΠП",
            "ΦФ",
            "ΣЄ",
            "Θθ",
        ]:
            assert not set(pair) <= characters

    def test_each_is_covered_by_most_typefaces(self, outlines: Outlines) -> None:
        faces = [len(found) for found in outlines.values()]
        assert len(faces) == 100
        assert min(faces) >= 14
        assert faces.count(16) >= 80


class TestOutlines:
    def test_are_centred_and_of_unit_size_with_closed_contours(self, outlines: Outlines) -> None:
        for outline in [outline for faces in outlines.values() for outline in faces]:
            low, high = outline.points.min(axis=0), outline.points.max(axis=0)
            np.testing.assert_allclose(low + high, 0.0, atol=1e-12)
            assert (high - low).max() == pytest.approx(1.0)
            np.testing.assert_array_equal(np.sort(outline.following), np.arange(len(outline.points)))

    def test_stand_upright_and_are_not_mirrored(self, outlines: Outlines) -> None:
        x, y = outlines[ord("L")][0].points.T
        assert x[y > 0.4].max() > x[y < -0.4].max() + 0.2  # the foot points to the right; y counts downwards
        assert x[y > 0.4].min() == pytest.approx(x[y < -0.4].min())

    def test_typefaces_differ(self, outlines: Outlines) -> None:
        for faces in outlines.values():
            assert len({outline.points.tobytes() for outline in faces}) >= 7

    def test_missing_matplotlib_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(FsbenchError, match="pip install matplotlib"):
            read_outlines([65])

    @pytest.mark.parametrize("kept", [None, 0, 4, 300, 100_000, 700_000])
    def test_a_missing_or_truncated_font_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int | None
    ) -> None:
        if kept is not None:
            whole = (_glyph_outlines._font_directory() / "DejaVuSans.ttf").read_bytes()
            (tmp_path / "DejaVuSans.ttf").write_bytes(whole[:kept])
        monkeypatch.setattr(_glyph_outlines, "_font_directory", lambda: tmp_path)
        with pytest.raises(FsbenchError, match=r"DejaVuSans\.ttf could not be read"):
            read_outlines([65])


class TestRendering:
    def test_fill_agrees_with_winding_angles(self) -> None:
        generator = np.random.default_rng(0)
        points = generator.uniform(-4.0, 36.0, size=(14, 2))  # two self-crossing polygons that leave the frame
        following = np.array([1, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11, 12, 13, 7])
        filled = _glyph_render._fill(points, following)
        centres = (np.arange(128) + 0.5) / 4
        x, y = np.meshgrid(centres, centres)
        angle = np.zeros_like(x)
        for here, there in zip(points, points[following], strict=True):
            turn = np.arctan2(there[1] - y, there[0] - x) - np.arctan2(here[1] - y, here[0] - x)
            angle += (turn + math.pi) % (2 * math.pi) - math.pi
        np.testing.assert_array_equal(filled, np.abs(angle) > 1.0)
        assert 0.1 < filled.mean() < 0.9

    def test_a_hole_is_left_open_and_an_overlap_is_filled(self) -> None:
        square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        following = np.array([1, 2, 3, 0, 5, 6, 7, 4])
        ring = np.concatenate([4 + 24 * square, (12 + 8 * square)[::-1]])
        assert _glyph_render._coverage(_glyph_render._fill(ring, following)).sum() == 24**2 - 8**2
        overlap = np.concatenate([4 + 16 * square, 12 + 16 * square])
        assert _glyph_render._coverage(_glyph_render._fill(overlap, following)).sum() == 2 * 16**2 - 8**2

    @pytest.mark.parametrize("count", [4, 5, 9])
    def test_spline_agrees_with_scipy(self, count: int) -> None:
        generator = np.random.default_rng(count)
        control = generator.normal(size=(count, count, 2))
        points = generator.uniform(0.0, 32.0, size=(50, 2))
        cells = count - 3
        knots = np.arange(-3, cells + 4, dtype=float)
        across = BSpline.design_matrix(points[:, 0] * cells / 32, knots, 3).toarray()
        down = BSpline.design_matrix(points[:, 1] * cells / 32, knots, 3).toarray()
        expected = np.einsum("pr,pc,rcd->pd", down, across, control)
        np.testing.assert_allclose(_glyph_render._spline(control, points), expected, atol=1e-12)

    def test_spline_everywhere_reads_the_pixel_centres(self) -> None:
        control = np.random.default_rng(0).normal(size=(6, 6, 3))
        read = _glyph_render._spline(control, _glyph_render._pixels()).reshape(32, 32, 3)
        np.testing.assert_allclose(_glyph_render._spline_everywhere(control), read, atol=1e-12)

    @pytest.mark.parametrize("reach", [1, 4])
    def test_window_count_agrees_with_a_convolution(self, reach: int) -> None:
        filled = np.random.default_rng(0).random((128, 128)) < 0.3
        window = np.ones((2 * reach + 1, 2 * reach + 1), dtype=int)
        expected = convolve(filled.astype(int), window, mode="constant")
        np.testing.assert_array_equal(_glyph_render._window_count(filled, reach), expected)

    def test_direction_is_the_angle_of_its_half_tangent(self) -> None:
        for angle in (-1.2, 0.0, 0.4, 1.5):
            cosine, sine = _glyph_render._direction(math.tan(angle / 2))
            assert cosine == pytest.approx(math.cos(angle))
            assert sine == pytest.approx(math.sin(angle))

    def test_restroking_never_loses_the_glyph(self) -> None:
        hairline = np.zeros((128, 128), dtype=bool)
        hairline[20:100, 64:66] = True
        for index in range(40):
            stroke = _glyph_render._restroke(hairline, _glyph_render.Draws(0, 65, index))
            assert stroke.sum() >= 0.6 * hairline.sum()

    def test_ground_and_ink_differ_in_brightness(self) -> None:
        for index in range(200):
            ground, ink, contrast = _glyph_render._two_colours(_glyph_render.Draws(0, 65, index))
            weights = np.array([0.3, 0.6, 0.1])
            assert abs(float(weights @ (ground - ink))) == pytest.approx(contrast)
            assert contrast >= 0.2


class TestImages:
    def test_pixels_are_the_pinned_ones(self, sample: dict[str, NDArray[np.uint8]]) -> None:
        digests = [hashlib.sha256(images.tobytes()).hexdigest()[:16] for images in sample.values()]
        assert digests == SAMPLE_DIGESTS

    def test_are_small_and_coloured_and_never_blank(self, sample: dict[str, NDArray[np.uint8]]) -> None:
        for images in sample.values():
            assert images.shape == (4, 32, 32, 3)
            assert images.dtype == np.uint8
            assert images.astype(float).std(axis=(1, 2)).max(axis=1).min() > 8.0

    def test_all_differ(self, sample: dict[str, NDArray[np.uint8]]) -> None:
        assert len({image.tobytes() for images in sample.values() for image in images}) == 20

    def test_depend_on_seed_class_and_index_alone(
        self, outlines: Outlines, sample: dict[str, NDArray[np.uint8]]
    ) -> None:
        base = [glyphs._code_point(name) for name in glyphs.glyph_classes()["base"]]
        clutter = [outline for code_point in base for outline in outlines[code_point]]  # never of novel classes
        faces, seed = outlines[0x409], glyphs.SEED
        alone = _glyph_render.draw_glyph(faces, clutter, seed=seed, code_point=0x409, index=2)
        np.testing.assert_array_equal(alone, sample[SAMPLE[3]][2])
        other = _glyph_render.draw_glyph(faces, clutter, seed=seed + 1, code_point=0x409, index=2)
        assert not np.array_equal(alone, other)

    def test_need_neither_matplotlib_nor_torch(self) -> None:
        program = (
            "import sys; from fsbench.data import glyphs; next(glyphs._draw(['0041_a'], 1));"
            "print([name for name in ('matplotlib', 'torch') if name in sys.modules])"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert (run.stdout.strip(), run.stderr) == ("[]", "")


class TestOnDisk:
    def test_is_an_image_folder_with_a_manifest(self, tmp_path: Path, tiny: int) -> None:
        folder = glyphs.ensure_glyphs(tmp_path / "new" / "root")
        assert folder == tmp_path / "new" / "root" / "glyphs"
        found = contents(folder)
        assert len(found) == tiny + 1
        with Image.open(folder / "val" / "0043_c" / "002.png") as image:
            assert (image.mode, image.size, image.getpixel((5, 5))) == ("RGB", (32, 32), (203, 203, 203))
        pixels = b"".join(np.asarray(Image.open(folder / name)).tobytes() for name in glyphs._expected_images())
        manifest = json.loads(found["glyphs.json"])
        assert manifest["pixels"] == hashlib.sha256(pixels).hexdigest()
        assert (manifest["version"], manifest["seed"]) == (glyphs.VERSION, glyphs.SEED)

    def test_can_be_read_by_others_as_the_umask_allows(self, tmp_path: Path, tiny: int) -> None:
        (tmp_path / "plain").mkdir()
        assert glyphs.ensure_glyphs(tmp_path).stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_progress_is_told(self, tmp_path: Path, tiny: int) -> None:
        calls: list[tuple[int, int]] = []
        glyphs.ensure_glyphs(tmp_path, progress=lambda done, total: calls.append((done, total)))
        assert calls == [(3, 12), (6, 12), (9, 12), (12, 12)]

    def test_an_intact_one_is_not_drawn_again(self, tmp_path: Path, tiny: int, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = glyphs.ensure_glyphs(tmp_path)
        (folder / "base" / ".DS_Store").write_bytes(b"left by a file browser")
        monkeypatch.setattr(glyphs, "_draw", None)
        assert glyphs.ensure_glyphs(tmp_path) == folder
        assert (folder / "base" / ".DS_Store").exists()

    @pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "more", "no manifest"])
    def test_a_damaged_one_is_drawn_again(self, tmp_path: Path, tiny: int, damage: str) -> None:
        folder = glyphs.ensure_glyphs(tmp_path)
        whole = contents(folder)
        victim = folder / "novel" / "0044_d" / "001.png"
        content = victim.read_bytes()
        actions: dict[str, Callable[[], object]] = {
            "missing": victim.unlink,
            "truncated": lambda: victim.write_bytes(content[:-7]),
            "altered": lambda: victim.write_bytes(content[:-9] + b"!" + content[-8:]),
            "more": lambda: victim.with_name("003.png").write_bytes(content),
            "no manifest": (folder / "glyphs.json").unlink,
        }
        actions[damage]()
        assert contents(folder) != whole
        glyphs.ensure_glyphs(tmp_path)
        assert contents(folder) == whole
        assert [path.name for path in tmp_path.iterdir()] == ["glyphs"]

    @pytest.mark.parametrize("text", ["", "[]", "null", "{}", "{", '{"version": 1}', "\udcff"])
    def test_a_broken_manifest_is_replaced(self, tmp_path: Path, tiny: int, text: str) -> None:
        folder = glyphs.ensure_glyphs(tmp_path)
        whole = contents(folder)
        (folder / "glyphs.json").write_bytes(text.encode(errors="surrogateescape"))
        glyphs.ensure_glyphs(tmp_path)
        assert contents(folder) == whole

    def test_another_version_is_replaced(self, tmp_path: Path, tiny: int, monkeypatch: pytest.MonkeyPatch) -> None:
        glyphs.ensure_glyphs(tmp_path)
        monkeypatch.setattr(glyphs, "VERSION", glyphs.VERSION + 1)
        monkeypatch.setattr(glyphs, "IMAGES_PER_CLASS", 2)
        assert len(contents(glyphs.ensure_glyphs(tmp_path))) == 4 * 2 + 1

    @pytest.mark.parametrize("name", ["holiday.jpg", "base/0041_a/mine.png", "base/cats/000.png", "glyphs.json.txt"])
    def test_files_of_the_user_are_never_replaced(self, tmp_path: Path, tiny: int, name: str) -> None:
        folder = glyphs.ensure_glyphs(tmp_path)
        mine = folder / name
        mine.parent.mkdir(exist_ok=True)
        mine.write_bytes(b"precious")
        with pytest.raises(FsbenchError, match="did not write") as caught:
            glyphs.ensure_glyphs(tmp_path)
        assert name in str(caught.value)
        assert mine.read_bytes() == b"precious"

    def test_a_file_in_its_place_is_reported(self, tmp_path: Path, tiny: int) -> None:
        (tmp_path / "glyphs").write_bytes(b"precious")
        with pytest.raises(FsbenchError, match="Expected a folder"):
            glyphs.ensure_glyphs(tmp_path)
        assert (tmp_path / "glyphs").read_bytes() == b"precious"

    def test_an_interrupted_run_leaves_nothing(self, tmp_path: Path, tiny: int) -> None:
        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            glyphs.ensure_glyphs(tmp_path, progress=interrupt)
        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk_is_reported_and_leaves_nothing(
        self, tmp_path: Path, tiny: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def save(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Image.Image, "save", save)
        with pytest.raises(FsbenchError, match="No space left"):
            glyphs.ensure_glyphs(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_root_that_cannot_be_made_is_reported(self, tmp_path: Path, tiny: int) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(FsbenchError, match="could not be written"):
            glyphs.ensure_glyphs(tmp_path / "file")

    @pytest.mark.parametrize("damaged", [False, True])
    def test_two_at_the_same_time_end_well(self, tmp_path: Path, tiny: int, damaged: bool) -> None:
        if damaged:
            (glyphs.ensure_glyphs(tmp_path) / "val" / "0043_c" / "000.png").unlink()
        others: list[Path] = []

        def other_runs_meanwhile(done: int, total: int) -> None:
            if done == total:
                others.append(glyphs.ensure_glyphs(tmp_path))
                (others[0] / ".first").touch()

        folder = glyphs.ensure_glyphs(tmp_path, progress=other_runs_meanwhile)
        assert others == [folder]
        assert (folder / ".first").exists()  # the one that was ready first stays: somebody may be reading it
        assert len(contents(folder)) == tiny + 2
        assert [path.name for path in tmp_path.iterdir()] == ["glyphs"]

    def test_remains_of_killed_runs_are_swept_away(self, tmp_path: Path, tiny: int) -> None:
        (tmp_path / ".glyphs-killed" / "glyphs").mkdir(parents=True)
        (tmp_path / ".glyphs-running" / "glyphs").mkdir(parents=True)
        long_ago = time.time() - 2 * 86400.0
        os.utime(tmp_path / ".glyphs-killed", (long_ago, long_ago))
        glyphs.ensure_glyphs(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"glyphs", ".glyphs-running"}


@pytest.mark.slow
def test_the_whole_data_set_is_the_pinned_one(tmp_path: Path) -> None:
    folder = glyphs.ensure_glyphs(tmp_path)
    assert len(contents(folder)) == 8001
    assert json.loads((folder / "glyphs.json").read_text())["pixels"] == ALL_DIGEST
    start = time.perf_counter()
    glyphs.ensure_glyphs(tmp_path)
    assert time.perf_counter() - start < 2.0  # about 0.2 s on an idle machine
