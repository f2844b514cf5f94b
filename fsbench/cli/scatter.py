"""`fsbench scatter`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.cli import options as use
from fsbench.cli.session import find_features
from fsbench.features.scatter import BaseStatistics, base_statistics, scatter_path
from fsbench.methods.presets import SIGMA
from fsbench.ranks import join_ranks
from fsbench.report.tables import scatter_table, stdout_console
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from fsbench.features.store import FeatureFile


def scatter(
    features: use.FeaturesArgument = None,
    features_dir: use.FeaturesRoot = Path("features"),
    as_json: use.AsJson = False,
    quiet: use.Quiet = False,
) -> None:
    """Compute mean and within-class scatter S_w of the base features.

    Writes a file next to each feature file. Other commands compute missing ones automatically.

    Example: [bold]fsbench scatter features/mini-wrn.h5[/bold]
    """
    with join_ranks() as ranks:
        reporter = Reporter(quiet, not ranks.leads)
        files = find_features(features, features_dir, reporter, ranks)
        for file in ranks.hand_out(files):
            with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
                BaseStatistics.fit_file(file, advance).save(scatter_path(file.path))
        ranks.wait()
        if ranks.leads:
            _show(files, as_json)


def _show(files: list[FeatureFile], as_json: bool) -> None:
    """Print the table or the JSON list, with the clamp that `solve` would use."""
    rows = [(file.path, base_statistics(file), SIGMA) for file in files]
    if not as_json:
        stdout_console().print(scatter_table(rows))
        return
    fields = [
        {
            "features": str(path),
            "scatter": str(scatter_path(path)),
            "images": sum(base.class_counts),
            "classes": len(base.class_counts),
            "dimension": len(base.mean),
            "effective_rank": base.effective_rank,
            "sigma": sigma,
            "share_clamped": base.share_clamped(sigma),
        }
        for path, base, sigma in rows
    ]
    print(json.dumps(fields, indent=1))
