"""Speed of what comes before and around tasks: scatter, extraction, training, the start of commands, memory."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import product, repeat
from pathlib import Path

import torch

from fsbench.backbones.load import load_backbone
from fsbench.backbones.networks import Backbone
from fsbench.data.scan import OwnData
from fsbench.data.transforms import transform_for
from fsbench.features.extract import Settings, extract
from fsbench.features.forward import Forward
from fsbench.features.image_hashes import image_hashes
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.train.images import Keys, make_views
from fsbench.train.loop import Objective, Trainer
from fsbench.train.run import Plan
from fsbench.train.settings import TrainSettings
from tests.bench.measure import Measure, in_turns
from tests.bench.solver import draw_split
from tests.comparing import CPU, QUIET
from tests.images import SPLITS, write_images
from tests.records import four_settings, store


def scatter(repeats: int, classes: int = 64, images: int = 600, dimension: int = 640) -> list[Measure]:
    """From a feature file to S_w with its eigenvectors, against one product Xᵀ X of the same rows in float64."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.h5"
        split = draw_split(classes, images, dimension)
        write_features(path, Provenance("bench", "none"), {"base": split})
        file, rows = FeatureFile.open(path), torch.from_numpy(split.features).double()
        times = in_turns(repeats, scatter=lambda: BaseStatistics.fit_file(file), product=lambda: rows.mT @ rows)
    against = f"one product XᵀX, {len(rows):,} × {dimension}, float64"
    return [Measure("scatter, from disk", against, times["scatter"] / times["product"])]


def extraction(repeats: int, images: int = 16, width: float | None = None) -> list[Measure]:
    """Images on disk to a feature file, against the bare forward pass on tensors in memory."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = OwnData(write_images(Path(folder) / "own", SPLITS, images, 84, ending="jpg")).load()
        network, settings = load_backbone("rn12", random_seed=0, width=width), Settings(batch=32)
        forward = Forward(network, "fp32", CPU, transform_for("feat", None), batch=32)
        tensors = torch.randn(sum(len(split) for split in dataset.splits.values()), 1, 3, 84, 84)

        def bare() -> None:
            for part in tensors.split(32):
                forward(part)

        def whole() -> None:
            out = Path(folder) / "out.h5"
            out.unlink(missing_ok=True)
            extract(dataset, network, out, settings, CPU, QUIET)

        hashing = partial(image_hashes, dataset.splits.values(), None, QUIET)
        times = in_turns(repeats, whole=whole, bare=bare, hashing=hashing)
    against = f"the bare forward pass of rn12, {len(tensors)} images"
    return [
        Measure("extract", against, times["whole"] / times["bare"]),
        Measure("hash images", "extracting them", 100 * times["hashing"] / times["whole"], "%"),
    ]


def listing(repeats: int, images: int = 5000) -> list[Measure]:
    """A folder that has not changed, listed again with the hashes of its images, against bare calls of the system."""
    with tempfile.TemporaryDirectory() as folder:
        root, index = Path(folder) / "own", Path(folder) / "index"
        for split, name in product(("base", "novel"), "abcdef"):
            (root / split / f"{split}-{name}").mkdir(parents=True)
            for number in range(images // 12):
                (root / split / f"{split}-{name}" / f"{number}.png").write_bytes(f"{name}{number}".encode())
        time.sleep(2.5)  # what has just changed is not remembered
        times = in_turns(
            repeats,
            again=lambda: image_hashes(OwnData(root).load().splits.values(), index, QUIET),
            bare=lambda: [entry.stat() for place in root.glob("*/*") for entry in os.scandir(place)],
        )
    return [Measure("list images", f"os.scandir with stat, {images:,} images", times["again"] / times["bare"])]


def training(repeats: int, batches: int = 8, width: float = 24) -> list[Measure]:
    """An epoch of `fsbench train`, whose images are decoded, against bare steps on the same batch again and again."""
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainSettings(width=width, epochs=1, image_size=32)
        images = batches * settings.batch // len(SPLITS["base"])
        root = write_images(Path(folder) / "own", SPLITS, images, 32, ending="jpg")
        plan = Plan.make(OwnData(root).load(), settings)
        views = make_views(plan.base, plan.transform, settings, QUIET)
        keys = Keys(settings, len(plan.base))
        assert isinstance(plan.backbone.network, Backbone)
        trainer = Trainer(Objective(plan.backbone.network, len(SPLITS["base"]), rotation=False, seed=0), keys, CPU)

        def epoch(repeated: bool = False) -> None:
            batches = (views.batch(key, CPU) for key in keys)
            for step, batch in enumerate(repeat(next(batches), keys.steps) if repeated else batches):
                trainer.step(batch, 0, step)

        times = in_turns(repeats, epoch=epoch, bare=lambda: epoch(repeated=True))
    against = f"bare steps, rn12 of width {width:g}, {len(plan.base)} images of 32 pixels"
    return [Measure("train", against, times["epoch"] / times["bare"])]


# What people ask a hundred times a day: case, arguments (none if the shell asks), the import it is measured against.
FIRST_ANSWERS = (
    ("fsbench --help", ("--help",), "typer"),
    ("fsbench solve --tasks 100", ("solve", "features.h5", "--tasks", "100", "--force"), "torch"),
    ("fsbench doctor", ("doctor",), "torchvision"),
    ("fsbench report of 200 records", ("report", "records"), "torch"),
    ("completion of an option", (), "typer"),
)
_COMPLETION = {"_FSBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "fsbench\nsolve\n--me", "COMP_CWORD": "2"}
_METHODS = "ncm,simpleshot,laplacianshot,bd-cspn,pt-map,paddle,tim-adm,unem-gaussian,soft-kmeans,bavardage"


def start(repeats: int) -> list[Measure]:
    """CPU time of commands against that of an import, all in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        splits = {"base": draw_split(16, 50, 64, seed=1), "novel": draw_split(10, 100, 64)}
        write_features(Path(folder) / "features.h5", Provenance("bench", "none"), splits)

        def run(*arguments: str, **told: str) -> None:
            kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder, env=kept | told)

        for method, number in product(_METHODS.split(","), range(5)):
            names = {"dataset": f"bench{number}", "features": f"{number}" * 64}
            store(Path(folder) / "records", *four_settings(method, 0.6, tasks=1_000, **names))
        commands = {
            case: partial(run, "-m", "fsbench", *arguments, **({} if arguments else _COMPLETION))
            for case, arguments, _ in FIRST_ANSWERS
        }
        imports = {name: partial(run, "-c", f"import {name}") for _, _, name in FIRST_ANSWERS}
        times = in_turns(repeats, _cpu_of_children, **commands, **imports)
    against = 'python -c "import {}", CPU time'
    return [Measure(case, against.format(name), times[case] / times[name]) for case, _, name in FIRST_ANSWERS]


def _cpu_of_children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # finer than os.times(), which counts in hundredths
    return used.ru_utime + used.ru_stime
