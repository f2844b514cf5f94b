"""Sound files of every kind that fsbench reads, and how each is read."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.data.images import open_image
from fsbench.data.scan import load_own
from fsbench.data.splitting import read_split_file
from fsbench.exchange.detect import read_file
from fsbench.exchange.importing import split_from
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.results.curves import Curve, Panel, Point, Sweep, load_sweep, save_sweep
from fsbench.results.record import load_record, save_record
from fsbench.results.tuned import Trial, Tuned, read_memory, write_memory
from fsbench.train.checkpoint import CheckpointFile, Progress
from tests.images import write_images
from tests.records import make_record
from tests.unit.exchange.samples import PARQUET, WRITERS, Rows, easy, make_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: For people.
        write: Writes a sound one at a path.
        read: Reads one as a command would; what it returns is compared with what the sound one gave.
        sealed: Whether damage that changes what is read must be noticed.
        file: Its name.
    """

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], object]
    sealed: bool = False
    file: str = "file"


def _small_split(seed: int, classes: int) -> object:
    rng = np.random.default_rng(seed)
    return make_split(
        rng.random((3 * classes, 6), dtype=np.float32), np.repeat(np.arange(classes), 3),
        [f"c{seed}-{c}" for c in range(classes)], [f"c{seed}/{i}.png" for i in range(3 * classes)],
    )  # fmt: skip


def _write_features(path: Path) -> None:
    splits = {name: _small_split(seed, 3) for seed, name in enumerate(("base", "val", "novel"))}
    write_features(path, Provenance("mini", "wrn", crops=2, notes=("a note",)), splits)  # type: ignore[arg-type]


def _read_features(path: Path) -> object:
    file = FeatureFile.open(path)
    found = {name: file.read(name) for name in file.splits}
    content = {
        name: (split.features.tobytes(), split.offsets.tobytes(), split.class_names, split.images)
        for name, split in found.items()
    }
    return content, replace(file.provenance, notes=tuple(file.provenance.notes)), file.describe()


def _write_scatter(path: Path) -> None:
    split = _small_split(0, 3)
    replace(BaseStatistics.fit(split.features, split.labels), digest="ab" * 32).save(path)  # type: ignore[attr-defined]


def _read_scatter(path: Path) -> object:
    base = BaseStatistics.load(path)
    arrays = (base.mean, base.scatter, base.class_weighted, base.eigenvalues, base.eigenvectors)
    return [array.numpy().tobytes() for array in arrays], base.class_counts, base.digest


def _write_sweep(path: Path) -> None:
    curve = Curve("bavardage", (Point(0.1, 60.25, 0.5), Point("learned", 61.5)), (Point(0.1, 60.0),))
    save_sweep(path, Sweep("a", "A", "fsbench", (Panel("τ", "1-shot", (curve,)),)))


def _write_tuned(path: Path) -> None:
    trials = [Trial({"tau": 0.1}, 60.25, 0.5), Trial({"tau": "learned"}, 61.0, None)]
    write_memory(path, {"0123456789abcdef": Tuned("bavardage", "1-shot", "grid", 40, trials)})


def _network() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    network = torch.nn.Linear(3, 2)
    return network, torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)


def _write_training(path: Path) -> None:
    network, optimiser = _network()
    CheckpointFile(path, "f" * 64).write(network, optimiser, Progress(3, 2, 1.5))


def _read_training(path: Path) -> object:
    network, optimiser = _network()
    progress = CheckpointFile(path, "f" * 64).restore(network, optimiser)
    return progress, [value.numpy().tobytes() for value in network.state_dict().values()], str(optimiser.state_dict())


STATE: dict[str, Any] = {
    "state_dict": {"module.conv1.weight": torch.arange(12.0).reshape(3, 4), "fc.bias": torch.ones(3)},
    "epoch": 3,
}


def _read_weights(path: Path) -> object:
    return {name: tensor.shape for name, tensor in read_checkpoint(path).tensors.items()}


def _write_foreign(writer: Callable[[Path, Rows], None], path: Path) -> None:
    writer(path, make_rows())


def _read_foreign(path: Path) -> object:
    _, found = read_file(path, "own", "novel")
    return [split_from(part, str(path)).features.shape for part in found.parts]


def _picture(kind: str, **options: object) -> Callable[[Path], None]:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 10, 3), dtype=np.uint8)

    def write(path: Path) -> None:
        Image.fromarray(pixels).save(path, format=kind, **options)

    return write


def _write_csv_split(path: Path) -> None:
    folder = path.parent / "pictures"
    if not folder.is_dir():
        write_images(folder, {"all": ["a", "b"]}, images=2, side=4)
    rows = [f"pictures/all/{label}/{i:03d}.png,{label}" for label in "ab" for i in range(2)]
    path.write_text("filename,label\n" + "\n".join(rows) + "\n")


def _read_csv_split(path: Path) -> object:
    return {name: split.sources for name, split in load_own(path.parent).splits.items()}


def _write_json_split(path: Path) -> None:
    path.write_text(json.dumps({"base": ["a", "b"], "val": ["c"], "novel": ["d", "e"]}))


def _write_list(path: Path) -> None:
    path.write_text("class,split\na,base\nb,base\nc,val\nd,novel\n")


KINDS = [
    Kind("feature file", _write_features, _read_features, sealed=True, file="a.h5"),
    Kind("scatter file", _write_scatter, _read_scatter, sealed=True, file="a.scatter.h5"),
    Kind("record", lambda path: save_record(path, make_record(tasks=30)), load_record, sealed=True, file="a.json"),
    Kind("sweep", _write_sweep, load_sweep, sealed=True, file="a.json"),
    Kind("tuned.json", _write_tuned, read_memory, sealed=True, file="a.tuned.json"),
    Kind("training checkpoint", _write_training, _read_training, sealed=True, file=".a.training"),
    Kind("torch weights", lambda path: torch.save(STATE, path), _read_weights, file="a.pth"),
    Kind("old torch weights", lambda path: torch.save(STATE, path, _use_new_zipfile_serialization=False),
         _read_weights, file="a.pth"),
    Kind("safetensors", lambda path: save_file(STATE["state_dict"], path, {"fsbench": "{}"}), _read_weights,
         file="a.safetensors"),
    *(Kind(f"import {name}", partial(_write_foreign, writer), _read_foreign, file="novel.dat")
      for name, writer in {**WRITERS, **(PARQUET if importlib.util.find_spec("pyarrow") else {})}.items()),
    Kind("import easy", lambda path: easy(path, make_rows().features.reshape(3, 4, 5)), _read_foreign, file="novel.pt"),
    *(Kind(f"{kind} picture", _picture(kind), lambda path: open_image(path).size, file=f"a.{kind.lower()}")
      for kind in ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")),
    Kind("csv of pictures", _write_csv_split, _read_csv_split, file="train.csv"),
    Kind("json split", _write_json_split, read_split_file, file="split.json"),
    Kind("csv split", _write_list, read_split_file, file="split.csv"),
]  # fmt: skip
