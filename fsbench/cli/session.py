"""What commands begin with: the processes of a run, its device and folders, and the feature files it works on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError, unknown_name
from fsbench.evaluation.options import Features
from fsbench.evaluation.run import Runner
from fsbench.features.store import FeatureFile
from fsbench.io.files import require_place
from fsbench.methods.images.loader import ImageLoader
from fsbench.options import Options
from fsbench.ranks import ALONE, Ranks, join_ranks
from fsbench.report.writers import FORMATS
from fsbench.reporter import Reporter

_FORMATS = {".md": "markdown", ".markdown": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}


@contextmanager
def open_runner(options: Any) -> Iterator[Runner]:
    """A runner for the duration of the block, shared by all processes; `--out` is checked before anything is computed.

    Options that a command lacks have their defaults.
    """
    out = getattr(options, "out", None)
    with join_ranks() as ranks:
        if out:
            ranks.agree(lambda: require_place(out))
        yield Runner(
            choose_device(getattr(options, "device", "auto")),
            getattr(options, "batch", None),
            ranks,
            Reporter(options.quiet, not ranks.leads),
            options.results_dir,
            getattr(options, "force", False),
            images=image_places(options),
        )


def image_places(options: Options) -> ImageLoader:
    """The folders of data sets and weights: those of the options, else those that the environment names."""
    names = {"data_dir": "FSBENCH_DATA", "weights_dir": "FSBENCH_WEIGHTS"}
    usual = {name: Path(os.environ.get(variable, name.partition("_")[0])) for name, variable in names.items()}
    return ImageLoader(*(getattr(options, name, folder) for name, folder in usual.items()))


def find_features(options: Features, reporter: Reporter, ranks: Ranks = ALONE) -> list[FeatureFile]:
    """The feature files to work on: those given, else all in the folder, else those of the built-in data set.

    Scatter files among others are left out, so that `features/*.h5` can be given.
    """
    root, scatter = options.features_dir, ".scatter.h5"
    paths = [path for path in options.features if not path.name.endswith(scatter)] or options.features
    paths = paths or ranks.agree(lambda: sorted(path for path in root.glob("*.h5") if not path.name.endswith(scatter)))
    if paths:
        once: dict[Path, Path] = {}
        for path in paths:
            if once.setdefault(path.resolve(), path) is not path:
                reporter.say(f"{path} is given twice; it is used once.")
            elif not path.suffix and not path.exists():
                hint = "Separate names by commas: --methods ncm,bavardage. Feature files end in .h5."
                raise FsbenchError(f"No such feature file: {path}.", hint)
        return [FeatureFile.open(path) for path in once.values()]
    if root != Path("features"):
        problem = "No feature files in" if root.is_dir() else "Folder not found:"
        raise FsbenchError(
            f"{problem} {root}, given by --features-dir or FSBENCH_FEATURES.",
            "Check the path, or make feature files with fsbench extract.",
        )
    reporter.say(f"No feature file given, and none in {root}/: using the built-in data set.")
    from fsbench.features.extract import embedded_features  # noqa: PLC0415 - timm takes seconds to import

    places = image_places(options)
    return [embedded_features(places.data, places.weights, root, reporter, ranks)]


def format_of(wanted: str | None, out: Path | None) -> str:
    """The format that was chosen, else that of the file's ending, else text; the two must not contradict each other."""
    if wanted is not None and wanted not in FORMATS:
        raise unknown_name("format", wanted, FORMATS)
    by_ending = _FORMATS.get(out.suffix.lower()) if out else None
    if out and out.suffix.lower() not in {"", ".txt"} and not wanted and by_ending is None:
        raise UsageError("out", f"cannot write a table as {out.suffix}", f"Endings: {', '.join(_FORMATS)}, .txt.")
    if wanted and by_ending and wanted != by_ending:
        raise UsageError("format", f"{wanted} does not fit --out {out}, whose ending means {by_ending}")
    return wanted or by_ending or "rich"
