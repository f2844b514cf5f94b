"""Images → feature files, for one or many data sets.

A row of features is determined by its recipe (network, transform, crops, precision) and by the content of its image,
and computed once: rows lie in the feature files of a folder, and until a file is finished in blocks, in a hidden folder
beside it. An extraction resumes from the blocks and reuses the files.
"""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from glob import escape
from itertools import compress, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from fsbench.backbones.clip_models import text_prototypes
from fsbench.backbones.families import BACKBONES, describe_architecture
from fsbench.backbones.load import Weights, transform_of
from fsbench.backbones.networks import Extractor
from fsbench.data.catalog import EMBEDDED
from fsbench.data.dataset import ImageDataset, counted, first_names
from fsbench.data.scan import choose_datasets
from fsbench.data.transforms import crops_for
from fsbench.devices import reading_processes, while_workers_live
from fsbench.errors import FsbenchError
from fsbench.features.forward import Forward, Images
from fsbench.features.image_hashes import INDEX, hashed
from fsbench.features.store import (
    FeatureFile,
    Provenance,
    digest,
    library_versions,
    make_split,
    overlaps,
    repeated_rows,
    with_text,
    write_features,
)
from fsbench.io.files import is_name, only_writer, readable_part, whole_file
from fsbench.ranks import ALONE, Ranks, SharedError
from fsbench.reporter import Reporter

IMAGES_PER_BLOCK = 1024
_FIRST_WITH_TF32 = (8, 0)  # compute capability
_DAMAGE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)

Row = NDArray[np.float32] | str  # features, or the reason why an image has none
Place = tuple[str, str, str, str]  # split, class, name and hash of an image


@dataclass(frozen=True)
class Settings:
    """How to extract."""

    crops: int = 1  # 1 is the evaluation transform; more averages the features of that many random crops
    precision: str = "fp32"
    transform: str | None = None  # name of one that replaces the backbone's own
    batch: int | None = None  # images per forward pass; None is automatic
    workers: int | None = None  # processes that read images; None is automatic
    skip_broken: bool = False  # leave out images that cannot be read, and record them, instead of stopping
    text: Sequence[str] = ()  # templates of the text prototypes, for backbones that know text
    library: Path | None = None  # folder of feature files whose rows are reused, beside that of the output
    replaces: bool = False  # whether a file with other features is replaced and its rows reused: a cache


def extract_all(
    datasets: list[ImageDataset],
    weights: Weights,
    settings: Settings,
    device: torch.device,
    out: Path,
    reporter: Reporter,
    *,
    force: bool = False,
    ranks: Ranks = ALONE,
) -> list[FeatureFile]:
    """Extract every data set into the folder `out`, or a single one into the file `out` if it ends in `.h5`.

    A data set that fails is reported at the end, after the others are done.
    """
    if out.suffix == ".h5" and len(datasets) > 1:
        raise FsbenchError(f"{len(datasets)} data sets do not fit into one file {out}.", "Choose one with --dataset.")
    files, failures = [], []
    for dataset in datasets:
        name = f"{readable_part(dataset.name)}-{weights.backbone.replace('/', '_')}.h5"
        path = out if out.suffix == ".h5" else out / name
        try:
            backbone = ranks.first_alone(partial(weights.load, dataset.name))
            reporter.say(backbone.info.describe())
            files.append(extract(dataset, backbone, path, settings, device, reporter, force=force, ranks=ranks))
        except FsbenchError as failure:
            if len(datasets) == 1 or not (ranks.count == 1 or isinstance(failure, SharedError)):
                raise
            reporter.warn(f"{dataset.name} could not be extracted: {failure.message}")
            failures.append((dataset.name, failure.hint))
    if failures:
        names = ", ".join(name for name, _ in failures)
        message = f"{len(failures)} of {len(datasets)} data sets could not be extracted: {names}. The others are done."
        raise FsbenchError(message, failures[0][1])
    return files


def embedded_features(
    data: Path, weights: Path, features: Path, reporter: Reporter, ranks: Ranks = ALONE
) -> FeatureFile:
    """The feature file of the embedded data set, rendered and extracted with the shipped weights where missing."""
    datasets = ranks.first_alone(lambda: choose_datasets(EMBEDDED, None, data, reporter))
    chosen, cpu = Weights(BACKBONES[0], None, None, weights), torch.device("cpu")
    return extract_all(datasets, chosen, Settings(), cpu, features, reporter, ranks=ranks)[0]


def extract(
    dataset: ImageDataset,
    backbone: Extractor,
    out: Path,
    settings: Settings,
    device: torch.device,
    reporter: Reporter,
    *,
    force: bool = False,
    ranks: Ranks = ALONE,
) -> FeatureFile:
    """Write the features of a data set, or open the file if it exists already.

    A file that holds anything else is not replaced unless forced; images that it lacks are added to it. Rows that the
    folder's files have already are reused, unless forced. After an interruption at any moment the same call resumes,
    and the file is that of an uninterrupted run. Several processes share the blocks; process 0 joins them.
    """
    refuse_tf32(settings.precision, device)
    if settings.text:
        text_prototypes(backbone, ["class"], settings.text)  # an error before the work
    if not is_name(dataset.name):
        raise FsbenchError(f"{dataset.name!r} cannot name a data set: it has control characters.", "Rename the folder.")
    job = Extraction(hashed(dataset, out.with_name(f".{INDEX}"), reporter, ranks), backbone, settings)
    store = RowStore(out, job.provenance().recipe)
    with ExitStack() as held:
        stored = ranks.agree(lambda: _finished(out, job, force))
        if stored is None or ranks.agree(store.folder.exists):
            ranks.agree(lambda: held.enter_context(only_writer(out, reporter.warn)))
            stored = ranks.agree(lambda: _finished(out, job, force))  # by the writer waited for
            if stored is not None:
                ranks.agree(lambda: store.clear(own=True))  # of a run that was killed after its last write
        if stored is not None:
            reporter.say(f"{out} exists already, with the same settings.")
            return stored
        rows: dict[str, Row] = {}  # process 0 alone holds features
        ranks.agree(lambda: rows.update(_existing(store, job, reporter, force)))
        _fill(store, job, ranks.agree(lambda: job.missing(rows)), device, reporter, ranks)
        file = ranks.agree(lambda: _assemble(store, job, rows))
    for note in () if settings.replaces else file.provenance.notes[len(dataset.notes) :]:
        reporter.warn(f"{dataset.name}: {note}")
    return file


def refuse_tf32(precision: str, device: torch.device) -> None:
    """Refuse the precision tf32 where there is none."""
    ampere = device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_WITH_TF32
    if precision == "tf32" and not ampere:
        reason = f"tf32 is a number format of NVIDIA GPUs from Ampere on, which {device} is not."
        raise FsbenchError(reason, "Use --precision fp32.")


@dataclass(frozen=True)
class Extraction:
    """One data set through one backbone; provenance and keys need a data set with hashes."""

    dataset: ImageDataset
    backbone: Extractor
    settings: Settings

    @cached_property
    def images(self) -> Images:
        """The images, with the transform that belongs to the backbone on this data set."""
        name, chosen, benchmark = self.dataset.name, self.settings.transform, self.dataset.info is not None
        side = None if benchmark else self.dataset.common_side()
        transform = transform_of(self.backbone.info, name, benchmark=benchmark, size=side, chosen=chosen)
        random_crops = crops_for(transform, name) if self.settings.crops > 1 else None
        return Images(tuple(self.dataset.splits.values()), transform, random_crops, self.settings.crops)

    @cached_property
    def places(self) -> list[Place]:
        """Split, class, name and hash of every image."""
        return [
            (split.name, split.class_names[label], split.images[row], value)
            for split in self.images.splits
            for row, (label, value) in enumerate(zip(split.labels, split.hashes, strict=True))
        ]

    @cached_property
    def keys(self) -> list[str]:
        """What identifies the row of every image; equal images have equal rows."""
        return [_key(value, name, self.settings.crops) for _, _, name, value in self.places]

    def missing(self, rows: Mapping[str, Row]) -> list[int]:
        """The rows to compute: of every key that is not there yet the first one."""
        first = {key: row for row, key in reversed([*enumerate(self.keys)])}
        return sorted(row for key, row in first.items() if key not in rows)

    def provenance(self, notes: Iterable[str] = ()) -> Provenance:
        """What the feature file says of its origin; `notes` beside those of the data set."""
        info = self.backbone.info
        others = {name for split in self.images.splits if split.name != "base" for name in split.class_names}
        same = info.trained_on == self.dataset.name  # else a number is no name of a class
        made = Provenance(
            dataset=self.dataset.name,
            backbone=info.name,
            family=info.family,
            weights=info.weights,
            weights_sha256=info.sha256,
            architecture=describe_architecture(info.architecture),
            trained_by=info.trained_by,
            seen=tuple(name for name in info.trained_classes if name in others and (same or not name.isdigit())),
            other_transform=self.settings.transform or "",
            split_digest=self.dataset.split_digest,
            transform=json.dumps(asdict(self.images.random_crops or self.images.transform), sort_keys=True),
            image_size=self.images.transform.crop,
            crops=self.settings.crops,
            precision=self.settings.precision,
            libraries=library_versions(),
            notes=(*self.dataset.notes, *notes),
            text_encoder=info.name if self.settings.text else "",
            templates=tuple(self.settings.text),
        )
        return replace(made, fingerprint=digest([made.dataset, made.recipe, self.places, *made.templates]))


def _key(image_hash: str, name: str, crops: int) -> str:
    """What identifies the image of a row: its content, and with random crops its name, which they are drawn by."""
    return image_hash if crops == 1 else f"{image_hash} {name}"


@dataclass(frozen=True)
class RowStore:
    """The rows of one recipe, for the feature file `out`. A block appears whole or not at all, with a checksum."""

    out: Path
    recipe: str

    @property
    def folder(self) -> Path:
        """The folder of the blocks."""
        return self.out.with_name(f".{self.out.name}.{self.recipe[:12]}.rows")

    def clear(self, *, own: bool) -> None:
        """Remove the blocks of other recipes for the same file, and the `own` ones too if told to."""
        for folder in self.out.parent.glob(f".{escape(self.out.name)}.*.rows"):
            if own or folder != self.folder:
                shutil.rmtree(folder, ignore_errors=True)

    def write(self, keys: list[str], features: NDArray[np.float32], reasons: list[str]) -> None:
        """Write a block; `reasons` say why an image has no features, and are empty for the others."""
        path = self.folder / f"{digest(keys)[:32]}.npz"
        with whole_file(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, keys=np.array(keys), features=features, reasons=np.array(reasons))

    def blocks(self) -> dict[str, Row]:
        """The rows of all blocks; a damaged block has none."""
        rows: dict[str, Row] = {}
        for path in sorted(self.folder.glob("*.npz")):
            with suppress(*_DAMAGE), np.load(path, allow_pickle=False) as block:
                keys, features, reasons = block["keys"].tolist(), block["features"], block["reasons"].tolist()
                rows |= {key: why or row for key, row, why in zip(keys, features, reasons, strict=True)}
        return rows

    def reusable(self, keys: Set[str], library: Path | None) -> dict[str, Row]:
        """The rows with these keys in the finished files beside `out`, `out` itself included, and in the library."""
        rows: dict[str, Row] = {}
        folders = {folder.resolve() for folder in (self.out.parent, library) if folder}
        for path in sorted(path for folder in folders for path in folder.glob("*.h5")):
            if path.name.endswith(".scatter.h5") or len(rows) == len(keys):
                continue
            with suppress(FsbenchError):  # a damaged file has nothing to offer
                file = FeatureFile.open(path)
                for name in file.splits if file.provenance.recipe == self.recipe else ():
                    named = zip(*file.images(name), strict=False)
                    own_keys = [_key(value, image, file.provenance.crops) for image, value in named]
                    if not keys.isdisjoint(own_keys):
                        features = file.read(name, with_images=False).features
                        rows |= {key: row for key, row in zip(own_keys, features, strict=True) if key in keys}
        return rows


def _finished(out: Path, job: Extraction, force: bool) -> FeatureFile | None:
    """The finished file if it is what is asked for, None if it is to be made or completed; any other is refused."""
    if force or not out.exists():
        return None
    stored, wanted = FeatureFile.open(out), job.provenance()
    if stored.provenance.imported:
        message = f"{out} holds imported features, which fsbench cannot compute again."
        raise FsbenchError(message, "Write elsewhere with --out FILE, or overwrite it with --force.")
    if stored.provenance.fingerprint == wanted.fingerprint:
        return stored
    if not job.settings.replaces and (sentences := _differences(stored, wanted, job.places)):
        message = "\n  ".join([f"{out} holds other features than those asked for:", *sentences])
        raise FsbenchError(message, "Replace it with --force, or keep both with --out FILE.")
    return None


def _differences(file: FeatureFile, wanted: Provenance, places: list[Place]) -> list[str]:
    """How a finished file differs from what is asked for, in words; empty if it merely lacks images or classes."""
    there, here = ({"data set": made.dataset, **made.aspects} for made in (file.provenance, wanted))
    sentences = [
        f"{name}: {there.get(name) or 'none'} there, {here.get(name) or 'none'} asked for"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    asked, others = set(places), list[str]()
    for split, summary in file.splits.items():
        labels = np.repeat(summary.class_names, np.diff(summary.offsets)).tolist()
        rows = zip(labels, *file.images(split), strict=True)
        others += [name for label, name, value in rows if (split, label, name, value) not in asked]
    if others:
        images = counted(len(others), "image of the file is", "images of the file are")
        sentences.append(f"{images} gone, changed, or of another class or split now: {first_names(others)}")
    return sentences


def _existing(store: RowStore, job: Extraction, reporter: Reporter, force: bool) -> dict[str, Row]:
    """The rows that need not be computed: of an interrupted run, and of other files."""
    store.clear(own=force)
    if force:
        return {}
    keys, skip = set(job.keys), job.settings.skip_broken
    blocks = {key: row for key, row in store.blocks().items() if key in keys and (skip or not isinstance(row, str))}
    reused = store.reusable(keys - blocks.keys(), job.settings.library)
    for rows, what in ((blocks, "Resuming: the features of {} are done."), (reused, "Reusing the features of {}.")):
        if rows:
            reporter.say(what.format(f"{sum(key in rows for key in job.keys):,} of {len(job.keys):,} images"))
    return reused | blocks


def _fill(
    store: RowStore, job: Extraction, missing: list[int], device: torch.device, reporter: Reporter, ranks: Ranks
) -> None:
    """Compute the missing rows block by block; of several processes each takes its share of the blocks."""
    blocks = [missing[start : start + IMAGES_PER_BLOCK] for start in range(0, len(missing), IMAGES_PER_BLOCK)]
    own = blocks[ranks.number :: ranks.count]
    with reporter.bar(f"{job.dataset.name} {job.backbone.info.name}", sum(map(len, own))) as advance:
        for block, features, broken in _features(job, own, device) if own else ():
            if broken and not job.settings.skip_broken:
                row, reason = next(iter(broken.items()))
                message = f"An image of {job.dataset.root} cannot be used: {job.places[row][2]}: {reason}"
                raise FsbenchError(message, "Repair it, or leave out and list all such images with --skip-broken.")
            store.write([job.keys[row] for row in block], features, [broken.get(row, "") for row in block])
            advance(len(block))
    ranks.wait()


def _features(
    job: Extraction, blocks: Sequence[list[int]], device: torch.device
) -> Iterator[tuple[list[int], NDArray[np.float32], dict[int, str]]]:
    """The features of one block after another, with the reasons for images that could not be read."""
    settings, images = job.settings, job.images
    batch = settings.batch or (64 if device.type == "cpu" else 256)
    step = max(1, batch // settings.crops)
    batches = [block[start : start + step] for block in blocks for start in range(0, len(block), step)]
    workers = reading_processes(device) if settings.workers is None else settings.workers
    pinned = device.type == "cuda"
    loader = DataLoader(images, batch_size=None, sampler=batches, num_workers=workers, pin_memory=pinned)
    loaded = while_workers_live(loader)
    forward = Forward(job.backbone, settings.precision, device, images.transform, batch)
    for block in blocks:
        read: list[int] = []
        broken: dict[int, str] = {}
        pieces = [torch.empty(0, job.backbone.info.feature_dim, device=device)]
        while len(read) + len(broken) < len(block):
            part = next(loaded)
            if isinstance(part, FsbenchError):
                raise part
            broken |= part.broken
            if part.rows:
                read += part.rows
                pieces.append(forward(part.tensors))
        features = np.full((len(block), job.backbone.info.feature_dim), np.nan, dtype=np.float32)
        features[np.isin(block, read)] = torch.cat(pieces).cpu().numpy()
        yield block, features, broken


def _assemble(store: RowStore, job: Extraction, existing: dict[str, Row]) -> FeatureFile:
    """Write the feature file from the rows that existed and from the blocks, and delete the blocks."""
    rows = existing | store.blocks()
    if not rows.keys() >= set(job.keys):
        raise FsbenchError(f"A block of the extraction in {store.folder} is missing.", "Run extract again.")
    splits, skipped, rest = {}, [], zip(job.keys, job.places, strict=True)
    for split in job.images.splits:
        part = [(rows[key], name, value) for key, (_, _, name, value) in islice(rest, len(split))]
        good = [not isinstance(row, str) for row, _, _ in part]
        skipped += [f"skipped {name}: {row}" for row, name, _ in part if isinstance(row, str)]
        features, names, hashes = zip(*compress(part, good), strict=True) if any(good) else ((), (), ())
        table = np.array(features, np.float32).reshape(len(names), job.backbone.info.feature_dim)
        splits[split.name] = make_split(table, split.labels[good], split.class_names, names, hashes)
        if job.settings.text:
            text = text_prototypes(job.backbone, split.class_names, job.settings.text)
            splits[split.name] = with_text(splits[split.name], text, job.backbone.info.name)
    shared = overlaps(splits)
    shared += [f"{name}: {words}: the same images twice?" for name in splits if (words := repeated_rows(splits[name]))]
    write_features(store.out, job.provenance([*skipped, *shared]), splits)
    store.clear(own=True)
    return FeatureFile.open(store.out)
