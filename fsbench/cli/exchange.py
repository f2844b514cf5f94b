"""`fsbench import`, `tasks` and `score`."""

from __future__ import annotations

from dataclasses import replace

from fsbench.cli.options import Import, Score, Tasks
from fsbench.data.catalog import find_info
from fsbench.errors import FsbenchError
from fsbench.evaluation.options import Compare
from fsbench.evaluation.spec import options_of, protocols_of
from fsbench.exchange.frozen import freeze
from fsbench.exchange.frozen import score as score_predictions
from fsbench.exchange.importing import Naming, import_files
from fsbench.features.store import FeatureFile
from fsbench.report.writers import stdout_console
from fsbench.reporter import Reporter
from fsbench.results.record import record_path, save_record
from fsbench.tasks.protocol import ALL


def import_(options: Import) -> None:
    """Write a feature file of the features in other files, and print what is in it."""
    info = find_info(options.dataset)
    naming = Naming(info.name if info else options.dataset, options.backbone, options.crops)
    out = options.out or options.features_dir / naming.file_name()
    file = import_files(options.files, out, naming, Reporter(options.quiet), force=options.force)
    stdout_console().print(str(file), soft_wrap=True)


def tasks(options: Tasks) -> None:
    """Write a list of tasks."""
    if options.out.exists() and not options.force:
        raise FsbenchError(f"{options.out} exists already.", "Replace it with --force, or give another --out.")
    file, (protocol,) = FeatureFile.open(options.features), protocols_of(options)
    if protocol.ways == ALL:
        protocol = replace(protocol, ways=len(file.summary(options.split).class_names))
    count = options.tasks or protocol.preset.tasks
    frozen = freeze(options.out, file, options.split, protocol, seed=options.seed, tasks=count)
    Reporter(options.quiet).say(f"Wrote {options.out}: {frozen.tasks:,} tasks, {protocol.title}, list {frozen.digest}.")


def score(options: Score) -> None:
    """Store the record of a model, and print it in a line."""
    file = FeatureFile.open(options.features)
    record = score_predictions(file, options.tasks, options.predictions, name=options.name, assumes=options.assumes)
    path = record_path(options.results_dir, record)
    save_record(path, record)
    stdout_console().print(str(record), soft_wrap=True)
    rules = record.run.protocol
    same = {"settings": ("balanced" if rules.equal else "unbalanced",), "seed": record.run.seed, "others": [path]}
    words = {**options_of(rules), **same, "tasks": record.tasks}
    others = Compare(features=[file.path], **words).words()
    Reporter(options.quiet).say(f"Wrote {path}. Compare it: fsbench compare {others}")
