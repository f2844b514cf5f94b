"""Damaged files end in success or in an error that names them and a remedy: no traceback, no wrong number.

The damage is the same for the same kind of file and number.
"""

import contextlib
import re
import resource
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.data.dataset import open_image
from fsbench.errors import FsbenchError
from fsbench.exchange.importing import split_from
from fsbench.exchange.layouts import read_file
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.io.files import read_sealed, write_sealed
from fsbench.results.record import load_record, save_record
from tests.records import make_record
from tests.unit.exchange.samples import WRITERS, Rows, easy, make_rows


class Kind(NamedTuple):
    """A kind of file, how a sound one is written, and how it is read; damage to a sealed one must be noticed."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    sealed: bool = False
    file: str = "file"


def _write_features(path: Path) -> None:
    splits = {}
    for name in ("base", "val", "novel"):
        rows, images = make_rows(seed=len(name)), [f"{name}/{i}.png" for i in range(12)]
        splits[name] = make_split(rows.features, np.repeat(np.arange(3), 4), [f"{name} {c}" for c in "abc"], images)
    write_features(path, Provenance("mini", "wrn", crops=2, notes=("a note",)), splits)


def _read_features(path: Path) -> object:
    file = FeatureFile.open(path)
    splits = [file.read(name) for name in file.splits]
    content = [(one.features.tobytes(), one.offsets.tobytes(), one.class_names, one.images) for one in splits]
    return content, replace(file.provenance, notes=tuple(file.provenance.notes)), str(file)


FACTS: dict[str, Any] = {"name": "bavardage", "points": [0.25, "learned", None], "seconds": 1.5}
STATE = {"module.conv1.weight": torch.arange(12.0).reshape(3, 4), "fc.bias": torch.ones(3)}


def _read_weights(path: Path) -> object:
    return {name: tensor.shape for name, tensor in read_checkpoint(path).tensors.items()}


def _write_rows(write: Callable[[Path, Rows], None], path: Path) -> None:
    write(path, make_rows())


def _read_foreign(path: Path) -> object:
    _, recognised = read_file(path, "own", "novel")
    return [split_from(part, str(path)).features.shape for part in recognised.parts]


IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 10, 3), dtype=np.uint8))
KINDS = [
    Kind("sealed JSON", lambda path: write_sealed(path, FACTS),
         lambda path: read_sealed(path, dict[str, Any], "record", "Make it again."), sealed=True, file="a.json"),
    Kind("feature file", _write_features, _read_features, sealed=True, file="a.h5"),
    Kind("record", lambda path: save_record(path, make_record(tasks=2)), load_record, sealed=True, file="a.h5"),
    Kind("torch weights", lambda path: torch.save({"state_dict": STATE}, path), _read_weights, file="a.pth"),
    Kind("old torch weights", lambda path: torch.save(STATE, path, _use_new_zipfile_serialization=False),
         _read_weights, file="a.pth"),
    Kind("safetensors", lambda path: save_file(STATE, path, {"fsbench": "{}"}), _read_weights,
         file="a.safetensors"),
    *(Kind(f"import {name}", partial(_write_rows, writer), _read_foreign, file="novel.dat")
      for name, writer in WRITERS.items() if name != "s2m2_hdf5"),  # damaged HDF5 can crash its library
    Kind("import easy", lambda path: easy(path, make_rows().features.reshape(3, 4, 5)), _read_foreign, file="novel.pt"),
    *(Kind(f"{kind} image", IMAGE.save, lambda path: open_image(path).size, file=f"a.{kind.lower()}")
      for kind in ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")),
]  # fmt: skip


NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"99999999999999999999", b"1.5", b"null", b'"x"', b"[]", b"{}", b"true")
WORDS = (b"\x00", b"\x1b[2J", b"\xff\xfe", b"../../", b"\n", b'"', b"\\u0000", b"\\ud800", b"[" * 2000, b"," * 200)


def _flip(content: bytes, rng: Random) -> bytes:
    """Change bits, half of the time near the beginning, where headers and indices stand."""
    changed = bytearray(content)
    reach = min(len(changed), rng.choice((1024, len(changed))))
    for _ in range(rng.randint(1, 4) if changed else 0):
        changed[rng.randrange(reach)] ^= rng.randrange(1, 256)
    return bytes(changed)


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randint(0, len(content))]


def _replace(content: bytes, rng: Random) -> bytes:
    """A piece is repeated, dropped, becomes zeros, or gets a word before it."""
    start = rng.randint(0, len(content))
    piece = content[start : start + rng.choice((1, 8, 64, 512))]
    other = rng.choice((piece * 3, b"", bytes(len(piece)), rng.choice(WORDS) + piece))
    return content[:start] + other + content[start + len(piece) :]


def _number(content: bytes, rng: Random) -> bytes:
    """A number in a text becomes another thing."""
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", content[:20_000]))
    place = rng.choice(numbers) if numbers else None
    return content[: place.start()] + rng.choice(NUMBERS) + content[place.end() :] if place else _flip(content, rng)


def damaged(content: bytes, rng: Random) -> bytes:
    """A file with damage of one to three kinds."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice((_flip, _flip, _cut, _replace, _replace, _number))(content, rng)
    return content


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Allow another gigabyte, so that a size that a damaged file claims is a MemoryError."""
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (present + (1 << 30), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


@pytest.mark.parametrize("cases", [range(25), pytest.param(range(25, 525), marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_files(kind: Kind, cases: range, tmp_path: Path) -> None:
    path = tmp_path / kind.file
    kind.write(path)
    whole, expected = path.read_bytes(), kind.read(path)
    refused = 0
    with limited_memory(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for case in cases:
            path.write_bytes(damaged(whole, Random(f"{kind.name} {case}")))
            try:
                content = kind.read(path)
                sound = content == expected or not kind.sealed
            except FsbenchError as error:  # any other exception fails the test
                sound, content = path.name in error.message and bool(error.hint), error
                refused += 1
            assert sound, f"{kind.name} {case}: {content}"
    assert refused > len(cases) // 10
