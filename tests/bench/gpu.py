"""`python -m tests.bench.gpu`: what fast methods ask of a GPU, counted on a pretended one, as a Markdown table."""

import argparse

import numpy as np

from fsbench.evaluation.engine import TaskList, solve
from fsbench.methods.base import Context
from fsbench.methods.registry import METHODS, method_class
from tests.bench.solver import TASK, Material, mini_like
from tests.pretend import CUDA, PretendedGpu


def counted(name: str, material: Material, tasks: int) -> PretendedGpu:
    """The counts of a whole run of one method; a variant stands behind a colon."""
    cls = method_class(name.partition(":")[0])
    options = {cls.info.variants.parameter: name.partition(":")[2]} if ":" in name and cls.info.variants else {}
    method = cls.configure(Context(balanced=False, base=material.base, shots=1, alpha=TASK.alpha), **options)
    with PretendedGpu(values=False) as gpu:
        solve([method], material.novel, material.base, TaskList(TASK, 0, np.arange(tasks)), device=CUDA)
    return gpu


def main() -> None:
    """Print one row per method."""
    fast = [name for name in METHODS if method_class(name).info.cost == "fast"]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument("--methods", default=",".join([*fast, "bavardage:transport", "bavardage:released"]))
    parser.add_argument("--tasks", type=int, default=10_000)
    options = parser.parse_args()
    material = mini_like()
    print("| method | MB to the GPU | MB back | copies | operations | waits |\n|---|---|---|---|---|---|")
    for name in options.methods.split(","):
        gpu = counted(name, material, options.tasks)
        megabytes = f"{gpu.sent / 1e6:.1f} | {gpu.fetched / 1e6:.1f}"
        print(f"| `{name}` | {megabytes} | {gpu.copies} | {gpu.kernels.total():,} | {gpu.waits} |", flush=True)


if __name__ == "__main__":
    main()
