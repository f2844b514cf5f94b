"""`fsbench scatter`."""

from __future__ import annotations

import json

from fsbench.cli.options import Scatter
from fsbench.cli.session import find_features
from fsbench.features.scatter import BaseStatistics, base_statistics, scatter_path
from fsbench.methods.bavardage import Bavardage
from fsbench.report.tables import scatter_table
from fsbench.report.writers import show
from fsbench.reporter import Reporter


def scatter(options: Scatter) -> None:
    """Compute and store the statistics of the base classes, and print them with the clamp that `solve` would use."""
    reporter = Reporter(options.quiet)
    files = find_features(options, reporter)
    for file in files:
        with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
            BaseStatistics.fit_file(file, advance).save(scatter_path(file.path))
    rows = [(file.path, base_statistics(file, reporter), Bavardage.sigma) for file in files]
    if not options.as_json:
        show(scatter_table(rows))
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
