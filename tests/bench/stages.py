"""Speed of what comes before and around tasks: scatter, extraction, training, the start of commands, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from fsbench.backbones.base import Backbone
from fsbench.backbones.load import load_backbone
from fsbench.data.scan import load_own
from fsbench.data.transforms import transform_for
from fsbench.features.contents import image_hashes
from fsbench.features.extract import Settings, extract
from fsbench.features.forward import Forward
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.reporter import Reporter
from fsbench.results.record import load_record, record_path, save_record
from fsbench.train.images import Batch, Keys, load_batches, make_views
from fsbench.train.loop import Objective, Trainer
from fsbench.train.run import Plan
from fsbench.train.settings import TrainSettings
from tests.bench.measure import Measure, in_turns
from tests.bench.solver import CPU, draw_split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbench.data.dataset import ImageDataset


def scatter(repeats: int, classes: int = 64, images: int = 600, dimension: int = 640) -> list[Measure]:
    """From a feature file to S_w with its eigenvectors, against one product Xᵀ X of the same rows in float64."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.h5"
        split = draw_split(classes, images, dimension)
        write_features(path, Provenance("bench", "none"), {"base": split})
        file, rows = FeatureFile.open(path), torch.from_numpy(split.features).double()
        times = in_turns(repeats, scatter=lambda: BaseStatistics.fit_file(file), product=lambda: rows.mT @ rows)
    against = f"one product XᵀX, {len(rows):,} × {dimension}, float64"
    return [Measure("scatter, from disk", against, 100 * times["product"] / times["scatter"], "%")]


def _write_images(root: Path, splits: Sequence[str], images: int, side: int) -> ImageDataset:
    """Noise as JPEG files: two classes of so many images in every split."""
    rng = np.random.default_rng(0)
    for split in splits:
        for name in ("a", "b"):
            (root / split / f"{split}-{name}").mkdir(parents=True)
            for number in range(images):
                pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / f"{split}-{name}" / f"{number}.jpg")
    return load_own(root)


def extraction(repeats: int, images: int = 16, width: float | None = None) -> list[Measure]:
    """Images on disk to a feature file, against the bare forward pass on tensors in memory."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = _write_images(Path(folder) / "own", ("base", "val", "novel"), images, 84)
        network, settings = load_backbone("rn12", random_seed=0, width=width), Settings(batch=32)
        forward = Forward(network, "fp32", CPU, transform_for("feat", None), batch=32)
        tensors = torch.randn(6 * images, 1, 3, 84, 84)

        def bare() -> None:
            for part in tensors.split(32):
                forward(part)

        def whole() -> None:
            out = Path(folder) / "out.h5"
            out.unlink(missing_ok=True)
            extract(dataset, network, out, settings, CPU, Reporter(quiet=True))

        hashing = partial(image_hashes, dataset.splits.values(), None, Reporter(quiet=True))
        times = in_turns(repeats, whole=whole, bare=bare, hashing=hashing)
    against = f"the bare forward pass of rn12, {6 * images} images"
    return [
        Measure("extract", against, times["whole"] / times["bare"], "ratio"),
        Measure("hash images", "extracting them", 100 * times["hashing"] / times["whole"], "%"),
    ]


def training(repeats: int, batches: int = 8, width: float = 24) -> list[Measure]:
    """An epoch of `fsbench train`, whose images are decoded, against bare steps on the same batch again and again."""
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainSettings(width=width, epochs=1, image_size=32)
        splits, images = ("base", "val", "novel"), batches * settings.batch // 2
        plan = Plan.make(_write_images(Path(folder) / "own", splits, images, 32), settings)
        views = make_views(plan.base, plan.transform, settings, Reporter(quiet=True))
        keys = Keys(settings, len(plan.base))
        assert isinstance(plan.backbone.network, Backbone)
        trainer = Trainer(Objective(plan.backbone.network, 2, rotation=False, seed=0), keys, CPU)

        def epoch(repeated: bool = False) -> None:
            batches = load_batches(views, keys, 0, CPU)
            for step, batch in enumerate(repeat(next(batches), keys.steps) if repeated else batches):
                assert isinstance(batch, Batch)
                trainer.step(batch, 0, step)

        times = in_turns(repeats, epoch=epoch, bare=lambda: epoch(repeated=True))
    against = f"bare steps, rn12 of width {width:g}, {len(plan.base)} images of 32 pixels"
    return [Measure("train", against, times["epoch"] / times["bare"], "ratio")]


# What people ask a hundred times a day: case, arguments (none if the shell asks), the import it is measured against.
FIRST_ANSWERS = (
    ("fsbench --help", ("--help",), "typer"),
    ("fsbench solve --tasks 100", ("solve", "features.h5", "--tasks", "100", "--force"), "torch"),
    ("fsbench doctor", ("doctor",), "torch"),
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

        if any("report" in arguments for _, arguments, _ in FIRST_ANSWERS):
            run("-m", "fsbench", "compare", "features.h5", "--methods", _METHODS, "--tasks", "100")
            _write_records(Path(folder))
        commands = {
            case: partial(run, "-m", "fsbench", *arguments, **({} if arguments else _COMPLETION))
            for case, arguments, _ in FIRST_ANSWERS
        }
        imports = {name: partial(run, "-c", f"import {name}") for _, _, name in FIRST_ANSWERS}
        times = in_turns(repeats, _cpu_of_children, **commands, **imports)
    return [
        Measure(case, f'python -c "import {name}", CPU time', times[case] / times[name], "ratio")
        for case, _, name in FIRST_ANSWERS
    ]


def _write_records(folder: Path) -> None:
    """Records as of five feature files and 1,000 tasks, from those of one file and 100 tasks."""
    for path in (folder / "results").glob("*.h5"):
        short = load_record(path)
        answers = short.answers.first(100)
        for _ in range(9):
            answers += short.answers
        for number in range(5):
            run = short.run.model_copy(update={"features": f"{number}" * 64})
            made = replace(short.provenance, dataset=f"bench{number}")
            record = short.update(answers, run=run, provenance=made)
            save_record(record_path(folder / "records", record), record)


def _cpu_of_children() -> float:
    """CPU seconds of the processes that have ended."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # finer than os.times(), which counts in hundredths
    return used.ru_utime + used.ru_stime


def memory(*counts: int) -> list[Measure]:
    """Peak memory of fresh processes that solve more and more tasks."""
    code = (
        "import sys, torch\n"
        "from tests.bench.solver import CPU, mini_like, solve\n"
        "from fsbench.devices import peak_memory\n"
        "from fsbench.methods.bavardage import Bavardage\n"
        "solve([Bavardage()], mini_like(64), int(sys.argv[1]))\n"
        "print(peak_memory(CPU))\n"
    )
    peaks = {}
    for count in counts:
        done = subprocess.run([sys.executable, "-c", code, str(count)], check=True, capture_output=True, text=True)
        peaks[count] = int(done.stdout) / 2**30
    first, last = peaks[counts[0]], peaks[counts[-1]]
    return [
        *(
            Measure(f"peak memory, {count:,} tasks", "whole process, D = 64", peak, "GB")
            for count, peak in peaks.items()
        ),
        Measure(f"memory of {counts[-1]:,} tasks", f"that of {counts[0]:,}", last / first, "ratio"),
    ]
