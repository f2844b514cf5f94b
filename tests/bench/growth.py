"""`python -m tests.bench.growth FILE`: time and memory of fast methods as one task grows, drawn into a figure file."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fsbench.report.plots.style import COLOURS, MARKERS, Paper, faint_grid
from tests.bench.solver import fast_methods, large_task

# What grows while the others are at their largest: 1,000 classes, 50,000 queries, 512 features
SIZES = {
    "classes": ((10, 50_000, 512), (100, 50_000, 512), (1_000, 50_000, 512)),
    "queries": ((1_000, 1_000, 512), (1_000, 10_000, 512), (1_000, 50_000, 512)),
    "features": ((1_000, 50_000, 64), (1_000, 50_000, 256), (1_000, 50_000, 512)),
}
NAMED = ("ncm", "laplacianshot", "soft-kmeans", "bavardage", "bavardage:weighted", "protolp")  # the others are grey
Growth = dict[str, dict[tuple[int, int, int], tuple[float, float]]]  # GB and seconds by method and size


def measured() -> Growth:
    """All methods at all sizes, each in a process of its own."""
    sizes = {size for sizes in SIZES.values() for size in sizes}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {name: {size: pool.submit(large_task, *size, name) for size in sizes} for name in fast_methods()}
        return {name: {size: done.result()[1:] for size, done in each.items()} for name, each in futures.items()}


def draw(taken: Growth) -> Figure:
    """Time above, memory below, one column for each thing that grows, all axes logarithmic."""
    with Paper("page").figure(3.9) as figure:
        grid = figure.subplots(2, 3, sharex="col", sharey="row", subplot_kw={"xscale": "log", "yscale": "log"})
        for place, (axis, sizes) in enumerate(SIZES.items()):
            x = [size[place] for size in sizes]
            for name in sorted(taken, key=NAMED.__contains__):
                number = NAMED.index(name) if name in NAMED else -1
                look = (COLOURS[number], MARKERS[number], 1.2) if name in NAMED else ("0.8", "", 0.8)
                for axes, value, unit in ((grid[0, place], 1, taken["ncm"][sizes[-1]][1]), (grid[1, place], 0, 1.0)):
                    y = [taken[name][size][value] / unit for size in sizes]
                    axes.plot(x, y, color=look[0], marker=look[1], linewidth=look[2], markersize=3, label=name)
                    axes.yaxis.set(major_formatter="{x:g}", minor_formatter=NullFormatter())
                    faint_grid(axes)
            axes.set(xlabel=axis, yticks=(0.5, 1, 2, 4), ylim=(0.5, 4), xticks=x, xticklabels=[f"{n:,}" for n in x])
            axes.set_xticks([], minor=True)
        grid[0, 0].set_ylabel("CPU time, relative to ncm")
        grid[1, 0].set_ylabel("memory (GB)")
        lines = {line.get_label() if line.get_label() in NAMED else "other fast methods": line for line in axes.lines}
        figure.legend([*lines.values()][::-1], [*lines][::-1], loc="outside lower left", ncols=4, frameon=False)
    return figure


if __name__ == "__main__":
    draw(measured()).savefig(sys.argv[1], dpi=110)
