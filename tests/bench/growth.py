"""`python -m tests.bench.growth FILE`: time and memory of fast methods as one task grows, drawn into a figure file."""

import sys

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fsbench.report.plots.style import COLOURS, MARKERS, Paper, faint_grid
from tests.bench.solver import by_method

Size = tuple[int, ...]
LARGEST: Size = (1_000, 50_000, 512)
GROWING: dict[str, Size] = {"classes": (10, 100, 1_000), "queries": (1_000, 10_000, 50_000), "features": (64, 256, 512)}
SIZES = [[(*LARGEST[:i], x, *LARGEST[i + 1 :]) for x in values] for i, values in enumerate(GROWING.values())]
NAMED = ("ncm", "laplacianshot", "soft-kmeans", "bavardage", "bavardage:weighted", "protolp")  # the others are grey


def draw(taken: dict[Size, dict[str, tuple[float, ...]]]) -> Figure:
    """Time above, memory below, one column for each thing that grows, all axes logarithmic."""
    with Paper("page").figure(3.9) as figure:
        grid = figure.subplots(2, 3, sharex="col", sharey="row", subplot_kw={"xscale": "log", "yscale": "log"})
        for column, sizes, (axis, x) in zip(grid.T, SIZES, GROWING.items(), strict=True):
            for name in sorted(taken[LARGEST], key=NAMED.__contains__):
                at = NAMED.index(name) if name in NAMED else -1
                colour, marker, width = (COLOURS[at], MARKERS[at], 1.2) if name in NAMED else ("0.8", "", 0.8)
                for axes, value, unit in zip(column, (2, 1), (taken[LARGEST]["ncm"][2], 1), strict=True):
                    y = [taken[size][name][value] / unit for size in sizes]
                    axes.plot(x, y, color=colour, marker=marker, linewidth=width, markersize=3, label=name)
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
    draw({size: by_method(size) for size in {size for sizes in SIZES for size in sizes}}).savefig(sys.argv[1], dpi=110)
