"""`fsbench compare`."""

from __future__ import annotations

from collections.abc import Sequence

from fsbench.cli.session import find_features, format_of, open_runner
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.options import Compare
from fsbench.evaluation.spec import Spec
from fsbench.features.store import FeatureFile
from fsbench.methods.registry import BASELINE, BASELINE_WITHOUT_BASE
from fsbench.report.comparison import ComparisonTable


def compare(options: Compare) -> None:
    """Compare methods and print or write the table; with `--fail-if-worse`, an error if a method is too weak."""
    form = format_of(options.output or ("json" if options.as_json else None), options.out)
    spec = Spec.of(options, options.methods, {})
    base = FeatureFile.open(options.base) if options.base else None
    with open_runner(options) as runner:
        files = find_features(options, runner.reporter, runner.ranks)
        _check_watched(options, spec, files if base is None else [])
        table = compare_files(spec, files, runner, base)
        if runner.ranks.leads:
            shown = table.best_first() if options.sort else table
            ComparisonTable(shown).show(form, options.out, timing=options.timing)
            if options.out:
                runner.reporter.say(f"Wrote {options.out}.")
    if options.fail_if_worse and (worse := table.below_baseline(options.fail_if_worse, options.by)):
        raise FsbenchError(f"{options.fail_if_worse} is below {table.baseline}: {'; '.join(worse)}.")


def _check_watched(options: Compare, spec: Spec, files: Sequence[FeatureFile]) -> None:
    """Refuse, before anything is computed, to watch a method that is not compared with the baseline."""
    watched, labels = options.fail_if_worse, [choice.label for choice in spec.methods]
    if options.by and not watched:
        raise UsageError("by", "has a meaning with --fail-if-worse METHOD only")
    if watched and watched not in labels:
        raise UsageError("fail_if_worse", f"expected one of {', '.join(labels)}, got {watched!r}")
    usual = BASELINE if all("base" in file.splits for file in files) else BASELINE_WITHOUT_BASE
    if watched and watched == (spec.baseline or usual):
        raise UsageError("fail_if_worse", f"{watched} is the baseline itself", "Name another one with --baseline.")
