"""Which data sets a command works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.catalog import dataset_info, resolve_name
from fsbench.data.glyphs import ensure_glyphs
from fsbench.data.scan import accept, find_datasets, load_dataset, load_own
from fsbench.data.splitting import parse_fractions
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageDataset
    from fsbench.reporter import Reporter

EMBEDDED = "glyphs"


@dataclass(frozen=True)
class OwnData:
    """A user's own images.

    Attributes:
        folder: With class folders.
        split_file: Divides the classes.
        fractions: Shares of base, val and novel classes, as text: `0.64,0.16,0.2`.
    """

    folder: Path
    split_file: Path | None = None
    fractions: str | None = None

    @classmethod
    def given(cls, folder: Path | None, split_file: Path | None, fractions: str | None) -> OwnData | None:
        """What a user said of own images, if anything: a division without images to divide is an error."""
        if folder is not None:
            return cls(folder, split_file, fractions)
        if split_file is not None or fractions is not None:
            what = "A split file divides" if split_file is not None else "Split fractions divide"
            raise FsbenchError(
                f"{what} the classes of your own images, and no folder of images is given.",
                "Name the folder with `data`, or --data; data sets known by name are divided as published.",
            )
        return None

    def load(self, name: str | None) -> ImageDataset:
        """Read it; a name of the catalog makes it that data set, any other name is just its name."""
        try:
            known = resolve_name(name) if name else None
        except FsbenchError:
            known = None
        if known and not (self.split_file or self.fractions):
            return load_dataset(self.folder, known)
        shares = parse_fractions(self.fractions) if self.fractions is not None else None
        return load_own(self.folder, split_file=self.split_file, fractions=shares, name=name)


def choose_datasets(names: str | None, own: OwnData | None, root: Path, reporter: Reporter) -> list[ImageDataset]:
    """The data sets asked for; without a word, all that are under the data root, else the embedded one.

    Args:
        names: Names separated by commas.
        own: A folder given by the user; `names` is then its name.
        root: The data root.
        reporter: Hears what was chosen and what is worth knowing about it.
    """
    if own is not None:
        chosen = [own.load(names)]
    elif names:
        chosen = [_named(resolve_name(name.strip()), root, reporter) for name in names.split(",")]
    else:
        chosen = _all_found(root, reporter) or [_embedded(root, reporter)]
    for dataset in chosen:
        for note in dataset.notes:
            reporter.warn(f"{dataset.name}: {note}")
    return chosen


def _all_found(root: Path, reporter: Reporter) -> list[ImageDataset]:
    chosen = []
    for found in find_datasets(root):
        if found.named.name == EMBEDDED:
            continue
        if found.listing is None:
            reporter.warn(f"{found.path} is left out: {found.problem}")
        else:
            chosen.append(accept(found.listing, found.info))
    return chosen


def _named(name: str, root: Path, reporter: Reporter) -> ImageDataset:
    if name == EMBEDDED:
        return _embedded(root, reporter)
    info = dataset_info(name)
    for found in find_datasets(root):
        if name in {found.info.name, found.named.name}:
            if found.problem:
                raise found.problem
            return load_dataset(found.path, name)
    raise FsbenchError(
        f"{info.title} is not under {root}/.",
        f"Put its folder there, for example as {root / name}, or name it with --data. See `fsbench doctor`.",
    )


def _embedded(root: Path, reporter: Reporter) -> ImageDataset:
    reporter.say(f"Using the embedded data set {EMBEDDED}, rendered into {root / EMBEDDED}.")
    with reporter.bar(f"rendering {EMBEDDED}", 0) as advance:
        seen = 0

        def progress(done: int, total: int) -> None:
            nonlocal seen
            advance(done - seen, total)
            seen = done

        return load_dataset(ensure_glyphs(root, progress=progress), EMBEDDED)
