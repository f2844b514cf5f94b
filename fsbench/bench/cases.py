"""All cases by name: the solver, scatter, extraction, the start of the command, memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from fsbench.backbones.load import load_backbone
from fsbench.bench import solver
from fsbench.bench.measure import Measure, draw_split, in_turns
from fsbench.data.scan import load_own
from fsbench.features.extract import Settings, extract
from fsbench.features.forward import Forward
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable


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


def extraction(repeats: int, backbone: str = "rn12", images: int = 16) -> list[Measure]:
    """Images on disk to a feature file, against the bare forward pass on tensors in memory."""
    rng, cpu = np.random.default_rng(0), torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "own"
        for split in ("base", "val", "novel"):
            for name in ("a", "b"):
                (root / split / f"{split}-{name}").mkdir(parents=True)
                for number in range(images):
                    pixels = rng.integers(0, 256, (84, 84, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(root / split / f"{split}-{name}" / f"{number}.jpg")
        network, dataset, settings = load_backbone(backbone, random_seed=0), load_own(root), Settings(batch=32)
        forward = Forward(network, "fp32", cpu, 84, batch=32)
        tensors = torch.randn(6 * images, 1, 3, 84, 84)

        def bare() -> None:
            for part in tensors.split(32):
                forward(part)

        def whole() -> None:
            out = Path(folder) / "out.h5"
            out.unlink(missing_ok=True)
            extract(dataset, network, out, settings, cpu, Reporter(quiet=True))

        times = in_turns(repeats, whole=whole, bare=bare)
    return [
        Measure(
            f"extract {backbone}, {6 * images} images", "the bare forward pass", times["whole"] / times["bare"], "ratio"
        )
    ]


def start(repeats: int) -> list[Measure]:
    """`fsbench --help` against `import typer`, both in fresh processes."""

    def run(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    times = in_turns(repeats, help=lambda: run("-m", "fsbench", "--help"), typer=lambda: run("-c", "import typer"))
    return [Measure("fsbench --help", 'python -c "import typer"', times["help"] / times["typer"], "ratio")]


def memory(*counts: int) -> list[Measure]:
    """Peak memory of fresh processes that solve more and more tasks."""
    code = (
        "import sys, torch\n"
        "from fsbench.bench.measure import mini_like\n"
        "from fsbench.bench.solver import CPU, solve\n"
        "from fsbench.devices import peak_memory\n"
        "from fsbench.methods.bavardage import Bavardage\n"
        "solve(Bavardage(), mini_like(64), int(sys.argv[1]))\n"
        "print(peak_memory(CPU))\n"
    )
    found = []
    for count in counts:
        done = subprocess.run([sys.executable, "-c", code, str(count)], check=True, capture_output=True, text=True)
        found.append(Measure(f"peak memory, {count:,} tasks", "whole process, D = 64", int(done.stdout) / 2**30, "GB"))
    return found


CASES: dict[str, Callable[[bool], list[Measure]]] = {
    "solver": lambda quick: solver.against_the_machine(1_000 if quick else 10_000, 1 if quick else 5),
    "growth": lambda quick: solver.as_the_problem_grows(100 if quick else 1_000, 1 if quick else 3),
    "methods": lambda quick: solver.other_methods(100 if quick else 1_000, 1 if quick else 3),
    "scatter": lambda quick: scatter(1, 16, 60) if quick else scatter(5),
    "extract": lambda quick: extraction(1, images=4) if quick else extraction(3),
    "start": lambda quick: start(1 if quick else 5),
    "memory": lambda quick: memory(100) if quick else memory(1_000, 10_000, 100_000),
}
