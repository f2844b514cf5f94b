"""labels.html: one self-contained page to look at labels and correct them."""

from __future__ import annotations

import base64
import hashlib
import io
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import resources
from pathlib import Path

from markupsafe import Markup

import fsbench
from fsbench.data.dataset import open_image
from fsbench.devices import cpu_share
from fsbench.io.files import write_text
from fsbench.labelling.images import mark
from fsbench.labelling.run import Labels, Row
from fsbench.report.writers import render_template
from fsbench.reporter import Reporter

SIDE = 160  # pixels of a thumbnail
MOST = 10_000  # images with a thumbnail, so that a page stays below 50 MB
_EXAMPLES = 5  # labelled images shown with a class
_AT_ONCE = 256  # thumbnails that are stored together


def write_page(labels: Labels, path: Path, reporter: Reporter) -> None:
    """Write the page; thumbnails are kept in a hidden file beside it, by the content of their images."""
    solved = [row for row in labels.rows if row.label]
    urgent = sorted(solved, key=lambda row: (row.file not in labels.suggested, row.flag == "", row.confidence or 0))
    by_class: dict[str, list[str]] = {}
    for file, name in labels.labelled.items():
        by_class.setdefault(name, []).append(file)
    examples = [file for files in by_class.values() for file in files[:_EXAMPLES]]
    shown = [*examples, *(row.file for row in urgent)][: MOST + len(examples)]
    if len(urgent) > MOST:
        reporter.say(f"{path}: the {MOST:,} most doubtful images have a thumbnail.")
    thumbnails = thumbnails_of({file: labels.hashes[file] for file in shown if file in labels.hashes}, path, reporter)
    number = {name: place for place, name in enumerate(labels.classes)}
    places = {row.file: place for place, row in enumerate(labels.rows)}
    data = {
        "name": path.with_suffix(".csv").name,
        "key": hashlib.sha256(repr([labels.classes, sorted(labels.hashes.items())]).encode()).hexdigest()[:16],
        "columns": [*Row.__dataclass_fields__],
        "classes": labels.classes,
        "rows": [
            [number.get(str(cell)) if "label" in name else cell for name, cell in vars(row).items()]
            + [thumbnails.get(row.file, "")]
            for row in labels.rows
        ],
        "labelled": [
            [file, number.get(name, -1), thumbnails.get(file, ""), mark(labels.hashes.get(file, ""))]
            for file, name in labels.labelled.items()
        ],
        "suggested": [places[file] for file in labels.suggested],
    }
    folder = resources.files("fsbench.report") / "html"
    texts = {
        name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "labels.css", "labels.js")
    }
    page = render_template(
        "labels.html",
        title=f"{len(labels.rows):,} images, {len(labels.classes)} classes",
        summary=labels.summary(),
        version=fsbench.__version__,
        data=data,
        style=Markup(texts["page.css"] + texts["labels.css"]),
        script=Markup(texts["labels.js"]),
        script_digest=base64.b64encode(hashlib.sha256(texts["labels.js"].encode()).digest()).decode(),
    )
    write_text(path, page)


def thumbnails_of(hashes: Mapping[str, str], page: Path, reporter: Reporter) -> dict[str, str]:
    """Thumbnails by file, as data URIs; those that the hidden file beside the page lacks are made and added to it."""
    with closing(sqlite3.connect(page.with_name(f".{page.stem}.thumbnails"))) as store:
        store.execute("CREATE TABLE IF NOT EXISTS thumbnails (hash TEXT PRIMARY KEY, image BLOB)")
        made: dict[str, bytes] = dict(store.execute("SELECT hash, image FROM thumbnails"))
        missing = {value: file for file, value in hashes.items() if value not in made}
        with reporter.bar("thumbnails", len(missing)) as advance, ThreadPoolExecutor(cpu_share()) as threads:
            for value, image in zip(missing, threads.map(thumbnail, missing.values()), strict=True):
                store.execute("INSERT INTO thumbnails VALUES (?, ?)", (value, image))
                made[value] = image
                advance(1)
                if not len(made) % _AT_ONCE:
                    store.commit()  # so that an interrupted run resumes
        store.commit()
    encoded = {value: f"data:image/webp;base64,{base64.b64encode(made[value]).decode()}" for value in hashes.values()}
    return {file: encoded[value] for file, value in hashes.items()}


def thumbnail(file: str) -> bytes:
    """A small WebP of an image."""
    stream = io.BytesIO()
    open_image(Path(file), side=SIDE).save(stream, "WEBP", quality=60, method=2)
    return stream.getvalue()
