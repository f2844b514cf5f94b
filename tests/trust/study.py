"""A small study, command by command, and what its files say apart from times."""

import hashlib
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fsbench.results.record import load_record
from tests.images import write_images
from tests.synthetic import make_features
from tests.unit.exchange.samples import by_class, make_rows

TASKS = ("--tasks", "300", "--quiet", "--device", "cpu")
COMMANDS: dict[str, tuple[str, ...]] = {
    "extract": ("extract", "--data", "photos", "--random-weights", "0", "--device", "cpu", "--quiet"),
    "scatter": ("scatter", "--quiet"),
    "solve": ("solve", *TASKS),
    "compare": ("compare", "--methods", "ncm,soft-kmeans,bavardage,pt-map", "--out", "table.md", "--format",
                "markdown", *TASKS),
    "tune": ("tune", "--over", "tau=0.1,0.2,0.3", "--over", "sigma=10,20", "--shots", "1,5", *TASKS),
    "sweep": ("sweep", "--over", "tau=0.1,0.2,0.3,0.5", "--split", "val,novel", *TASKS),
    "train": ("train", "--data", "photos", "--width", "1", "--epochs", "4", "--batch", "16", "--device", "cpu",
              "--no-rotation", "--eval-every", "2", "--quiet"),
    "import": ("import", "base=base.plk", "novel=novel.plk", "--dataset", "own", "--backbone", "theirs", "--quiet"),
}  # fmt: skip
_TIMES = ("seconds", "created", "peak_memory", "device", "sha256", "versions")


@dataclass(frozen=True)
class Study:
    """A folder in which a command can run."""

    arguments: tuple[str, ...]
    folder: Path

    @classmethod
    def prepare(cls, command: str, folder: Path) -> Self:
        """Put there what the command needs."""
        folder.mkdir(parents=True)
        if command in {"extract", "train"}:
            classes = {"base": ["b0", "b1", "b2"], "val": ["v0", "v1"], "novel": ["n0", "n1"]}
            write_images(folder / "photos", classes, images=16, side=16)
        elif command == "import":
            for seed, name in enumerate(("base", "novel")):
                rows = make_rows(images=400, dimension=64, seed=seed)
                (folder / f"{name}.plk").write_bytes(pickle.dumps(by_class(rows)))
        else:
            make_features(dimension=24).write(folder / "features" / "synthetic-none.h5")
        return cls(COMMANDS[command], folder)

    def visible(self) -> dict[str, str]:
        """The files that a user sees, and what they say."""
        inputs = ("photos", "base.plk", "novel.plk")
        files = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        relative = {path.relative_to(self.folder).as_posix(): path for path in files}
        return {
            name: _content(path)
            for name, path in relative.items()
            if not any(part.startswith(".") for part in name.split("/")) and not name.startswith(inputs)
        }

    def hidden(self) -> list[str]:
        """What a user does not see, apart from caches, which are meant to stay."""
        return [path.name for path in self.folder.rglob(".*") if path.name not in {".pixels", ".images.index"}]


def _content(path: Path) -> str:
    """A digest of a file, without times."""
    content = path.read_bytes()
    if path.suffix == ".json":
        data = json.loads(content)
        content = json.dumps({name: data[name] for name in data if name not in _TIMES}, sort_keys=True).encode()
    elif path.parent.name in ("results", "points"):
        record = load_record(path)
        content = f"{record.run} {record.answers.predicted.tolist()}".encode()
    return hashlib.sha256(content).hexdigest()
