"""`fsbench solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsbench.cli.session import find_features, open_runner
from fsbench.errors import UsageError
from fsbench.evaluation.compare import compare
from fsbench.evaluation.options import BavardageParameters, Setting, Solve
from fsbench.evaluation.spec import Spec
from fsbench.features.store import FeatureFile
from fsbench.io.files import write_text
from fsbench.report.comparison import render
from fsbench.report.tables import solved_table
from fsbench.report.writers import show
from fsbench.results.comparison import Comparison


def solve(options: Solve) -> None:
    """Run one method and its baseline, and print accuracies with their signatures."""
    parameters = parameters_of(options, *BavardageParameters.model_fields, "beta", "mixing", "stage")
    spec = Spec.of(options, [options.method], parameters, published=False)
    base = FeatureFile.open(options.base) if options.base else None
    with open_runner(options) as runner:
        files = find_features(options, runner.reporter, runner.ranks)
        table = compare(spec, files, runner, base)
        if runner.ranks.leads:
            _show(table, options.out, options.as_json)


def parameters_of(options: Setting, *names: str) -> dict[str, Any]:
    """Parameters of a method from `--set NAME=VALUE`, and from options of their own, where those were given."""
    own = {name: value for name in names if (value := getattr(options, name)) is not None}
    for name in own.keys() & options.parameters.keys():
        raise UsageError("set", f"{name} is also given by --{name.replace('_', '-')}; choose one")
    return own | options.parameters


def _show(table: Comparison, out: Path | None, as_json: bool) -> None:
    """Print the table with its signatures, or the rows as JSON."""
    text = render(table, "json")
    if out:
        write_text(out, text)
    if as_json:
        print(text, end="")
    else:
        show(solved_table(table))
