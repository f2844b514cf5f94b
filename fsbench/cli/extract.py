"""`fsbench extract`."""

from __future__ import annotations

from fsbench.backbones.load import Weights, refuse_unknown
from fsbench.data.scan import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.errors import UsageError
from fsbench.evaluation.options import Extract
from fsbench.features.extract import Settings, extract_all
from fsbench.ranks import join_ranks
from fsbench.report.writers import stdout_console
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
