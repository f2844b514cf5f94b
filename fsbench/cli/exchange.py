"""`fsbench import` and `fsbench export`."""

from __future__ import annotations

import json

from fsbench.cli.options import Export, Import
from fsbench.exchange.exporting import export_file
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
    """Write a feature file in another format, and print the names of the files."""
    file, reporter = FeatureFile.open(options.features), Reporter(options.quiet)
    written = [str(path) for path in export_file(file, options.to, options.out, reporter, force=options.force)]
    if options.as_json:
        print(json.dumps({"files": written}, indent=1))
    else:
        stdout_console().print("\n".join(written), soft_wrap=True)
