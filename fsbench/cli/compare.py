"""`fsbench compare`, and `fsbench solve`, which compares one method with its baseline."""

from __future__ import annotations

from collections.abc import Sequence

from fsbench.cli.session import find_features, format_of, open_runner
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.options import Compare, Solve
from fsbench.evaluation.source import base_named
from fsbench.evaluation.spec import Spec
from fsbench.features.store import FeatureFile
from fsbench.methods.registry import usual_baseline
from fsbench.report.comparison import ComparisonTable, render
from fsbench.results.leaderboard import best_first


def compare(options: Compare) -> None:
    """Compare methods and print or write the table; with `--fail-if-worse`, an error if a method is too weak."""
    form = format_of(options.output or ("json" if options.as_json else None), options.out)
    spec, watched = Spec.of(options, options.methods, {}), options.fail_if_worse
    base = base_named(options.base)
    with open_runner(options) as runner:
        files = find_features(options, runner.reporter, runner.ranks)
        if watched:
            _check_watched(watched, spec, files if base is None else [])
        table = compare_files(spec, files, runner, base, others=options.others)
        if runner.ranks.leads:
            shown = best_first(table) if options.sort else table
            ComparisonTable(shown).show(form, options.out, per_class=options.per_class)
            if options.out:
                runner.reporter.say(f"Wrote {options.out}.")
    if watched and (worse := table.below_baseline(watched, options.by)):
        raise FsbenchError(f"{watched} is below {table.baseline}: {'; '.join(worse)}.")


def _check_watched(watched: str, spec: Spec, files: Sequence[FeatureFile]) -> None:
    """Refuse, before anything is computed, to watch a method that is not compared with the baseline."""
    labels = [choice.label for choice in spec.methods]
    if watched not in labels:
        raise UsageError("fail_if_worse", f"expected one of {', '.join(labels)}, got {watched!r}")
    if watched == (spec.baseline or usual_baseline(base=all("base" in file.splits for file in files))):
        raise UsageError("fail_if_worse", f"{watched} is the baseline itself", "Name another one with --baseline.")


def solve(options: Solve) -> None:
    """Run one method and its baseline, and print the table and signatures with all parameters."""
    spec = Spec.of(options, [options.method], options.parameters, published=False)
    base = base_named(options.base)
    with open_runner(options) as runner:
        table = compare_files(spec, find_features(options, runner.reporter, runner.ranks), runner, base)
        if not runner.ranks.leads:
            return
        if options.as_json:
            print(render(table, "json"), end="")
        else:
            ComparisonTable(table).show()
            own = [one for one in table.records if one.method.label != table.baseline] or table.records
            print(*(one.signature for one in own), sep="\n")  # with all parameters
