"""Which data sets a command works on: named, found under the data root, a user's own, or the built-in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.catalog import EMBEDDED, dataset_info, names_for_folder, resolve_name
from fsbench.data.check import preflight
from fsbench.data.glyphs import ensure_glyphs
from fsbench.data.scan import accept, find_dataset, find_datasets, load_dataset, load_own
from fsbench.data.splitting import parse_fractions
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageDataset
    from fsbench.reporter import Reporter


@dataclass(frozen=True)
class OwnData:
    """A user's own images, in class folders."""

    folder: Path
    split_file: Path | None = None
    fractions: str | None = None  # shares of base, val and novel classes: `0.64,0.16,0.2`
    min_images: int | None = None  # smaller classes are left out
    split_seed: int | None = None  # of the draw by fractions

    @classmethod
    def given(
        cls,
        folder: Path | None,
        split_file: Path | None,
        fractions: str | None,
        min_images: int | None = None,
        split_seed: int | None = None,
    ) -> OwnData | None:
        """What a user said about own images, if anything; without a folder of images the rest is an error."""
        if split_seed is not None and fractions is None:
            message = f"--split-seed {split_seed} draws the classes of --split-fractions, which are not given."
            raise FsbenchError(message, "Give --split-fractions 0.64,0.16,0.2, or leave the seed out.")
        if folder is not None:
            return cls(folder, split_file, fractions, min_images, split_seed)
        for what, value in (
            ("A split file divides", split_file),
            ("Split fractions divide", fractions),
            ("A minimum of images chooses", min_images),
        ):
            if value is not None:
                raise FsbenchError(
                    f"{what} the classes of your own images, and no folder of images is given.",
                    "Name the folder with --data FOLDER; data sets known by name are used as published.",
                )
        return None

    def load(self, name: str | None) -> ImageDataset:
        """Read the folder; a name of the catalog makes it that data set, any other name is just its name."""
        try:
            known = resolve_name(name) if name else None
        except FsbenchError:
            known = None
        if known and (self.split_file or self.fractions or self.min_images):
            raise FsbenchError(
                f"{known} is a benchmark, whose classes are those that were published.",
                "Choose another name for a division of your own.",
            )
        if known:
            return load_dataset(self.folder, known)
        return load_own(
            self.folder,
            split_file=self.split_file,
            fractions=parse_fractions(self.fractions) if self.fractions is not None else None,
            seed=self.split_seed or 0,
            min_images=self.min_images or 1,
            name=name,
        )


def choose_datasets(names: str | None, own: OwnData | None, root: Path, reporter: Reporter) -> list[ImageDataset]:
    """The data sets asked for; without names, all that are under the data root, else the built-in one.

    Names are separated by commas; with own images there is one, what their data set is called.
    """
    if own is not None:
        chosen = [own.load(names)]
    elif names:
        chosen = [_named(resolve_name(name.strip()), root, reporter) for name in names.split(",")]
    else:
        chosen = _all_found(root, reporter) or [_embedded(root, reporter)]
    for dataset in chosen:
        for line in preflight(dataset) if own is not None else dataset.ignored:
            reporter.say(f"{dataset.name}: {line}")
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
    found = find_dataset(root, name)
    if found is not None and found.listing is not None:
        if name not in names_for_folder(found.path.name):
            reporter.say(f"{name}: images of {found.path}, which are the same, with the classes of {name}.")
        return accept(found.listing, info)
    if found is not None and found.problem is not None:
        raise found.problem
    raise FsbenchError(
        f"{info.title} is not under {root}/.",
        f"Put its folder there, for example as {root / name}, or name it with --data. See `fsbench doctor`.",
    )


def _embedded(root: Path, reporter: Reporter) -> ImageDataset:
    reporter.say(f"Using the built-in data set {EMBEDDED}, rendered into {root / EMBEDDED}.")
    with reporter.bar(f"rendering {EMBEDDED}", 0) as advance:
        seen = 0

        def progress(done: int, total: int) -> None:
            nonlocal seen
            advance(done - seen, total)
            seen = done

        return load_dataset(ensure_glyphs(root, progress=progress), EMBEDDED)
