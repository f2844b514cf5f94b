"""`fsbench extract` and `scatter`."""

from __future__ import annotations

from fsbench.backbones.load import Weights, refuse_unknown
from fsbench.cli.options import Scatter
from fsbench.cli.session import find_features
from fsbench.data.scan import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.errors import UsageError
from fsbench.evaluation.options import Extract
from fsbench.features.extract import Settings, extract_all
from fsbench.features.scatter import BaseStatistics, scatter_path
from fsbench.methods.bavardage import Bavardage
from fsbench.ranks import join_ranks
from fsbench.report.writers import Column, Table, cells, numbers, show, stdout_console
from fsbench.reporter import Reporter
from fsbench.tasks.sampling import feasible_settings


def extract(options: Extract) -> None:
    """Write one feature file per data set, and print what is in it."""
    out, data_dir = options.out, options.data_dir
    refuse_unknown(options.backbone)
    if out and out.suffix not in {"", ".h5"} and not out.is_dir():
        raise UsageError("out", f"{out} is neither a .h5 file nor an existing folder")
    own = OwnData.given(options)
    same = {name: getattr(options, name) for name in Settings.__annotations__ if hasattr(options, name)}
    settings = Settings(**same, library=options.features_dir)
    weights = Weights(
        options.backbone, options.weights, options.random_weights, options.weights_dir, options.pretrained
    )
    with join_ranks() as ranks:
        reporter, device = Reporter(options.quiet, not ranks.leads), choose_device(options.device)
        datasets = ranks.first_alone(lambda: choose_datasets(options.dataset, own, data_dir, reporter))
        for split in [dataset.splits["novel"] for dataset in datasets if own and "novel" in dataset.splits]:
            reporter.say(f"{datasets[0].name}: {feasible_settings(split)}")
        place = out or options.features_dir
        files = extract_all(datasets, weights, settings, device, place, reporter, force=options.force, ranks=ranks)
        for file in files if ranks.leads else ():
            stdout_console().print(str(file), soft_wrap=True)


def scatter(options: Scatter) -> None:
    """Compute and store the statistics of the base classes, and print them with the clamp that `solve` would use."""
    reporter, sigma, rows = Reporter(options.quiet), Bavardage.sigma, []
    for file in find_features(options, reporter):
        with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
            base = BaseStatistics.fit_file(file, advance)
        base.save(scatter_path(file.path))
        counts = (f"{sum(base.class_counts):,}", f"{len(base.class_counts):,}", str(file.dimension))
        clamped = f"{100 * base.share_clamped(sigma):.0f} % at σ = {sigma:g}"
        rows.append(cells(file.path.name, *counts, f"{base.effective_rank:.1f}", clamped))
    columns = [Column("features"), *numbers("N_base", "classes", "D", "effective rank", "clamped")]
    show(Table("Within-class scatter of the base classes", columns, rows))
