"""`fsbench tune`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from fsbench.cli.options import Tune
from fsbench.cli.session import find_features, open_runner
from fsbench.evaluation.source import base_of, with_pixels
from fsbench.evaluation.spec import Axis, protocols_of, varied_methods
from fsbench.evaluation.tuning import CALIBRATIONS, Search, grid_of, validation_source
from fsbench.evaluation.tuning import tune as search_parameters
from fsbench.report.tables import surface_tables
from fsbench.report.writers import show, stdout_console
from fsbench.results.studies import Tuned, tuning_path


def tune(options: Tune) -> None:
    """Search parameters for every feature file and setting, and print what was tried and chosen."""
    protocols = protocols_of(options)
    (choice,) = varied_methods([options.method], options)
    confidence = [Axis("calibration", CALIBRATIONS)] if options.goal == "confidence" else []
    grid = [Axis(*item) for item in options.over.items()] or confidence or grid_of(choice)
    with open_runner(options) as runner:
        searched: list[Tuned] = []
        for file in find_features(options, runner.reporter, runner.ranks):
            val = validation_source(file, base_of(file, runner.reporter, runner.ranks))
            val = with_pixels(val, choice.network, file, runner) if choice.network else val
            for protocol in protocols:
                search = Search(choice, val, protocol, tuning_path(file.path))
                search = search.for_confidence() if confidence else search
                tuned = search_parameters(search, grid, runner, tasks=options.tasks, seed=options.seed)
                if not runner.ranks.leads:
                    continue
                searched.append(tuned)
                if not options.as_json:
                    _show(tuned, search.memory if search.stored() == tuned else None)
        if runner.ranks.leads and options.as_json:
            print(json.dumps([asdict(tuned) | {"params": tuned.params} for tuned in searched], indent=1))


def _show(tuned: Tuned, memory: Path | None) -> None:
    """Print the searched grid, the outcome, and the file that stores it, if one does."""
    show(*surface_tables(tuned))
    stored = f" Kept in {memory} for --tune." if memory else ""
    stdout_console().print(f"{tuned.describe()}.{stored}", soft_wrap=True)
