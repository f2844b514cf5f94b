"""What commands begin with: the processes of a run, its device and folders, and the feature files it works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.options import Features
from fsbench.evaluation.run import Runner
from fsbench.features.store import FeatureFile
from fsbench.io.files import require_place
from fsbench.methods.images.loader import ImageLoader
from fsbench.ranks import ALONE, Ranks, join_ranks
from fsbench.reporter import Reporter

_FORMATS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json", ".txt": "rich", "": "rich"}


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
            images=ImageLoader(options.data_dir, options.weights_dir),
        )


def find_features(options: Features, reporter: Reporter, ranks: Ranks = ALONE) -> list[FeatureFile]:
    """The feature files to work on: those given, else all in the folder, else those of the built-in data set.

    Scatter files among others are left out, so that `features/*.h5` can be given.
    """
    root, scatter = options.features_dir, ".scatter.h5"
    paths = [path for path in options.features if not path.name.endswith(scatter)] or options.features
    paths = paths or ranks.agree(lambda: sorted(path for path in root.glob("*.h5") if not path.name.endswith(scatter)))
    for path in paths:
        if not path.suffix and not path.exists():
            hint = "Separate names by commas: --methods ncm,bavardage. Feature files end in .h5."
            raise FsbenchError(f"No such feature file: {path}.", hint)
    if paths:
        return [FeatureFile.open(path) for path in {path.resolve(): path for path in paths}.values()]
    if root != Path("features"):
        where = f"{root}, given by --features-dir or FSBENCH_FEATURES"
        raise FsbenchError(f"No feature files in {where}.", "Check the path, or make some with fsbench extract.")
    reporter.say(f"No feature file given, and none in {root}/: using the built-in data set.")
    from fsbench.features.extract import embedded_features  # noqa: PLC0415 - timm takes seconds to import

    return [embedded_features(options.data_dir, options.weights_dir, root, reporter, ranks)]


def format_of(wanted: str | None, out: Path | None) -> str:
    """The format that was chosen, else that of the file's ending, else text; the two must not contradict each other."""
    ending = out.suffix.lower() if out else ""
    if ending not in _FORMATS and not wanted:
        raise UsageError("out", f"cannot write a table as {ending}", f"Endings: {', '.join(filter(None, _FORMATS))}.")
    if wanted and _FORMATS.get(ending, "rich") not in (wanted, "rich"):
        raise UsageError("format", f"{wanted} does not fit --out {out}, whose ending means {_FORMATS[ending]}")
    return wanted or _FORMATS[ending]
