"""`fsbench label`."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.options import Label
from fsbench.io.files import require_place
from fsbench.labelling.page import write_page
from fsbench.labelling.run import Labels, label_images
from fsbench.report.writers import stdout_console
from fsbench.reporter import Reporter


def label(options: Label) -> None:
    """Write labels.csv and its page, and print what to know about them."""
    if options.out.suffix != ".csv":
        raise UsageError("out", f"{options.out} must end in .csv")
    reporter, page = Reporter(options.quiet), options.out.with_suffix(".html")
    _refuse_outputs(options, page)
    labels = label_images(options.unlabelled, options.support, options, reporter)
    labels.to_csv(options.out)
    written = [str(options.out)]
    if options.page:
        write_page(labels, page, reporter)
        written.append(str(page))
    if options.sort_into:
        sort_into(labels, options.sort_into, copies=options.copy_files)
        written.append(f"{options.sort_into}/")
    if options.as_json:
        print(json.dumps(labels.as_json(), indent=1, ensure_ascii=False))
        return
    console = stdout_console()
    for sentence in labels.summary():
        console.print(sentence, soft_wrap=True)
    if labels.suggested:
        console.print("Label these next, the most helpful first:")
        for file in labels.suggested:
            console.print(f"  {file}", soft_wrap=True)
    console.print(f"Wrote {', '.join(written)}.", soft_wrap=True)


def _refuse_outputs(options: Label, page: Path) -> None:
    """Refuse what would be overwritten, or could not be written, before anything is computed."""
    if options.copy_files and not options.sort_into:
        raise UsageError("copy", "belongs to --sort-into DIR, which is not given")
    for path in (options.out, *([page] if options.page else [])):
        require_place(path)
        if path.exists() and not options.force:
            raise FsbenchError(f"{path} exists already.", "Overwrite it with --force, or write elsewhere with --out.")
    if options.sort_into and options.sort_into.exists() and any(options.sort_into.iterdir()):
        raise FsbenchError(f"{options.sort_into} is not empty.", "Give a new folder with --sort-into.")


def sort_into(labels: Labels, folder: Path, *, copies: bool) -> None:
    """Make one folder per class, with links to the images, or copies; names that occur twice get a number."""
    places: dict[str, Path] = {}
    for row in labels.rows:
        if not row.label:
            continue
        if row.label not in places:
            places[row.label] = _free(folder / (re.sub(r"[/\\\x00]", "_", row.label).strip(". ") or "_"))
            places[row.label].mkdir(parents=True)
        source, target = Path(row.file), _free(places[row.label] / Path(row.file).name)
        if copies:
            shutil.copy2(source, target)
        else:
            target.symlink_to(os.path.abspath(source))  # noqa: PTH100 - a link may lead to a link


def _free(path: Path) -> Path:
    """The path, or one with a number if it is taken."""
    free, number = path, 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
