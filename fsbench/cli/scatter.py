"""`fsbench scatter`."""

from __future__ import annotations

from pathlib import Path

from fsbench.cli.options import AsJson, FeaturesArgument, FeaturesRoot, Quiet, find_features


def scatter(
    features: FeaturesArgument = None,
    features_dir: FeaturesRoot = Path("features"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute the mean and the within-class scatter S_w of the base features, into a file beside each feature file.

    Example: [bold]fsbench scatter features/mini-wrn.h5[/bold]
    """
    import json

    from fsbench.features.scatter import BaseStatistics, scatter_path
    from fsbench.methods.base import Context
    from fsbench.methods.bavardage import Bavardage
    from fsbench.report.progress import Reporter
    from fsbench.report.tables import scatter_table, stdout_console

    reporter = Reporter(quiet)
    rows = []
    for file in find_features(features, features_dir, reporter):
        path = file.path
        with reporter.bar(f"scatter of {path.name}", 2 * file.summary("base").rows) as advance:
            base = BaseStatistics.fit_file(file, advance)
        base.save(scatter_path(path))
        context = Context(balanced=False, dataset=file.provenance.dataset, base=base)
        rows.append((path, base, Bavardage.configure(context).sigma))
    if as_json:
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
    else:
        stdout_console().print(scatter_table(rows))
