"""What commands begin with: the processes of a run, its device and folders, and the feature files it works on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError, unknown_name
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.run import Runner
from fsbench.features.store import FeatureFile
from fsbench.io.files import require_place
from fsbench.ranks import ALONE, join_ranks
from fsbench.report.render import FORMATS, Table
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsbench.ranks import Ranks
    from fsbench.results.comparison import Comparison

_FORMAT_OF_ENDING = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
}


@contextmanager
def open_runner(
    device: str,
    batch: int | None,
    results: Path,
    *,
    out: Path | None = None,
    force: bool = False,
    predictions: bool = False,
    quiet: bool = False,
    images: ImagePlaces | None = None,
) -> Iterator[Runner]:
    """A runner for the duration of the block, shared by all processes; `out` is checked before anything is computed.

    Images and weights are looked for in the folders that the environment names, unless others are given.
    """
    with join_ranks() as ranks:
        if out:
            ranks.agree(lambda: require_place(out))
        reporter = Reporter(quiet, not ranks.leads)
        yield Runner(
            choose_device(device), batch, ranks, reporter, results, force, predictions, images or usual_places()
        )


def usual_places() -> ImagePlaces:
    """The folders of data sets and weights that the environment names, else `data` and `weights`."""
    data, weights = (Path(os.environ.get(f"FSBENCH_{name.upper()}", name)) for name in ("data", "weights"))
    return ImagePlaces(data, weights)


def find_features(
    given: list[Path] | None,
    root: Path,
    reporter: Reporter,
    ranks: Ranks = ALONE,
    images: ImagePlaces | None = None,
) -> list[FeatureFile]:
    """The feature files to work on: those given, else all in the folder, else those of the built-in data set."""
    paths = given or ranks.agree(
        lambda: sorted(path for path in root.glob("*.h5") if not path.name.endswith(".scatter.h5"))
    )
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

    places = images or usual_places()
    return [embedded_features(places.data, places.weights, root, reporter, ranks)]


def format_of(asked: str | None, out: Path | None) -> str:
    """The format asked for, else that of the file's ending, else text; the two must not contradict each other."""
    if asked is not None and asked not in FORMATS:
        raise unknown_name("format", asked, FORMATS)
    by_ending = _FORMAT_OF_ENDING.get(out.suffix.lower()) if out else None
    if out and out.suffix.lower() not in {"", ".txt"} and not asked and by_ending is None:
        raise UsageError(
            "out", f"no table has the ending {out.suffix}", f"Endings: {', '.join(_FORMAT_OF_ENDING)}, .txt."
        )
    if asked and by_ending and asked != by_ending:
        raise UsageError("format", f"{asked} does not fit --out {out}, whose ending means {by_ending}")
    return asked or by_ending or "rich"


def show_table(comparison: Comparison, form: str, out: Path | None, runner: Runner, *, timing: bool = False) -> None:
    """Print a table, or write it to a file, in the first process."""
    if runner.ranks.leads:
        Table(comparison).show(form, out, timing=timing)
        if out:
            runner.reporter.say(f"Wrote {out}.")
