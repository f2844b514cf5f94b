"""`fsbench import` and `fsbench export`."""

from __future__ import annotations

import json

from fsbench.cli.options import Export, Import
from fsbench.exchange.exporting import export_npz
from fsbench.exchange.importing import Naming, import_files, known_dataset
from fsbench.features.store import FeatureFile
from fsbench.report.writers import stdout_console
from fsbench.reporter import Reporter


def import_(options: Import) -> None:
    """Write a feature file of the features in other files, and print what is in it."""
    naming = Naming(known_dataset(options.dataset), options.backbone, options.crops)
    out = options.out or options.features_dir / naming.file_name()
    file = import_files(options.files, out, naming, Reporter(options.quiet), force=options.force)
    if not options.as_json:
        stdout_console().print(str(file), soft_wrap=True)
        return
    splits = {name: {"rows": one.rows, "classes": len(one.class_names)} for name, one in file.splits.items()}
    about = {"dataset": naming.dataset, "backbone": options.backbone, "dimension": file.dimension, "splits": splits}
    print(json.dumps({"file": str(file.path), **about}, indent=1))


def export(options: Export) -> None:
    """Write a feature file as an npz archive, and print the name of the archive."""
    path = export_npz(FeatureFile.open(options.features), options.out, force=options.force)
    print(json.dumps({"file": str(path)}, indent=1) if options.as_json else path)
