"""Images → feature files, for one or many data sets; an interrupted extraction resumes."""

from __future__ import annotations

import json
import re
import shutil
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from fsbench.backbones.families import BACKBONES, TIMM, describe_architecture
from fsbench.backbones.find_weights import find_weights
from fsbench.backbones.load import load_backbone, transform_of
from fsbench.backbones.timm_models import find_timm_weights
from fsbench.data.catalog import EMBEDDED
from fsbench.data.choose import choose_datasets
from fsbench.data.pixels import pixel_cache
from fsbench.data.published_transforms import crops_for
from fsbench.devices import reading_processes, while_workers_live
from fsbench.errors import FsbenchError, UsageError
from fsbench.features.forward import PRECISIONS, Forward, Images, collate
from fsbench.features.overlap import overlaps
from fsbench.features.reuse import asked_places, differences, known_rows
from fsbench.features.shards import Shards, fingerprint
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.io.files import is_name, only_writer, readable_part
from fsbench.machine import library_versions, precision_problem
from fsbench.ranks import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.backbones.base import Extractor
    from fsbench.data.dataset import ImageDataset
    from fsbench.ranks import Ranks
    from fsbench.reporter import Reporter


_FIRST_WITH_TF32 = (8, 0)  # compute capability
_MOST_CROPS = 1000  # all crops of an image are in memory at once


@dataclass(frozen=True)
class Settings:
    """How to extract.

    Attributes:
        crops: 1 is the evaluation transform; more averages the features of that many random crops.
        precision: fp32, tf32, bf16 or fp16.
        transform: Name of a transform that replaces the backbone's own.
        batch: Images per forward pass; None is automatic.
        workers: Processes that read images; None is automatic.
        skip_broken: Leave out images that cannot be read, and record them, instead of stopping.
        tag: A word at the end of the file's name, so that features of two networks can stand side by side.
        library: Folder of feature files whose rows are reused, beside that of the output.
        cache: Folder of decoded images, which are used where they are there; None uses none.
    """

    crops: int = 1
    crop_seed: int = 0
    precision: str = "fp32"
    transform: str | None = None
    batch: int | None = None
    workers: int | None = None
    skip_broken: bool = False
    tag: str = ""
    library: Path | None = None
    cache: Path | None = None


@dataclass(frozen=True)
class Weights:
    """A backbone by name, and where its weights come from.

    Attributes:
        file: A checkpoint given by the user.
        seed: Random weights of this seed instead.
        root: Folder that is searched for `<dataset>/<backbone>.*` if there is neither.
        pretrained: Use the published weights of a timm model, and let timm download them.
    """

    backbone: str
    file: Path | None
    seed: int | None
    root: Path
    pretrained: bool = False

    def __post_init__(self) -> None:
        if self.pretrained and (self.file or self.seed is not None or not self.backbone.startswith(TIMM)):
            raise UsageError("pretrained", "downloads the published weights of timm/NAME, and takes no others")

    def load(self, dataset: str) -> Extractor:
        """The backbone for a data set."""
        file = self.file
        if self.file is None and self.seed is None and self.backbone.startswith(TIMM):
            file = find_timm_weights(self.root, dataset, self.backbone, pretrained=self.pretrained)
        elif self.file is None and self.seed is None:
            file = find_weights(self.root, dataset, self.backbone)
        return load_backbone(self.backbone, file, random_seed=self.seed)


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
    if settings.tag and (out.suffix == ".h5" or not re.fullmatch(r"\w[\w.+-]{0,63}", settings.tag)):
        message = f"--tag {settings.tag!r} ends the name of a file in a folder: letters, digits and .+-_"
        raise FsbenchError(message, "Give a short word, or the whole name with --out FILE.h5.")
    files, failures = [], []
    for dataset in datasets:
        words = readable_part(dataset.name), weights.backbone.replace("/", "_"), settings.tag
        path = out if out.suffix == ".h5" else out / f"{'-'.join(filter(None, words))}.h5"
        try:
            backbone = ranks.first_alone(partial(weights.load, dataset.name))
            reporter.say(backbone.info.describe())
            file = extract(
                dataset, backbone, path, settings=settings, device=device, reporter=reporter, force=force, ranks=ranks
            )
            files.append(file)
        except FsbenchError as failure:
            if len(datasets) == 1 or not ranks.can_go_on_after(failure):
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
    chosen = Weights(BACKBONES[0], None, None, weights)
    return extract_all(
        datasets,
        chosen,
        Settings(cache=pixel_cache(data)),
        device=torch.device("cpu"),
        out=features,
        reporter=reporter,
        ranks=ranks,
    )[0]


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
    """Write the features of a data set, or open the file if it is there already.

    A file that holds anything else is not replaced unless forced; images that it lacks are added to it. Rows that the
    folder's files have already are reused, unless the very same file is to be made again. After an interruption at any
    moment the same call resumes, and the file is that of an uninterrupted run. Several processes share the shards;
    process 0 puts them together.
    """
    refuse_unusable(settings.precision, device)
    if not is_name(dataset.name):
        raise FsbenchError(f"{dataset.name!r} cannot name a data set: it has control characters.", "Rename the folder.")
    job = Extraction(dataset, backbone, settings)
    with ExitStack() as held:
        stored = ranks.agree(lambda: _stored(out, job, force))
        if stored is None:
            ranks.agree(lambda: held.enter_context(only_writer(out, reporter.warn)))
            stored = ranks.agree(lambda: _stored(out, job, force))  # by the writer waited for
        if stored is not None:
            reporter.say(f"{out} exists already, with the same settings.")
            return stored
        known: dict[int, NDArray[np.float32]] = {}  # process 0 alone holds the features
        ranks.agree(lambda: known.update(known_rows(out, settings.library, job.provenance(()), job.images.splits)))
        rows = ranks.agree(lambda: [row for row in range(len(job.images)) if row not in known])
        if len(rows) < len(job.images):
            reporter.say(f"Reusing the features of {len(job.images) - len(rows):,} of {len(job.images):,} images.")
            job = replace(job, rows=tuple(rows))
        shards = Shards.open(out, job.plan, len(job.images), backbone.info.feature_dim)
        _fill(shards, job, device, reporter, ranks)
        file = ranks.agree(lambda: _assemble(shards, job, known, out))
    for note in file.provenance.notes[len(dataset.notes) :]:
        reporter.warn(f"{dataset.name}: {note}")
    return file


def refuse_unusable(precision: str, device: torch.device) -> None:
    """Try a reduced precision in a child process, and refuse it with the reason if it does not work."""
    if precision not in PRECISIONS:
        raise FsbenchError(f"Unknown precision {precision!r}.", f"Use one of {', '.join(PRECISIONS)}.")
    if precision == "fp32":
        return
    if precision == "tf32":
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < _FIRST_WITH_TF32:
            reason = f"tf32 is a number format of NVIDIA GPUs from Ampere on, which {device} is not."
            raise FsbenchError(reason, "Use --precision fp32.")
        return
    problem = precision_problem(str(device), str(PRECISIONS[precision]).removeprefix("torch."))
    if problem:
        raise FsbenchError(f"{precision} cannot be used on {device}: {problem}.", "Use --precision fp32.")


@dataclass(frozen=True)
class Extraction:
    """One data set through one backbone; `rows` are the images to compute, None is all."""

    dataset: ImageDataset
    backbone: Extractor
    settings: Settings
    rows: tuple[int, ...] | None = None

    @cached_property
    def images(self) -> Images:
        """The images, with the transform that belongs to the backbone on this data set."""
        crops = self.settings.crops
        if not 1 <= crops <= _MOST_CROPS:
            raise FsbenchError(f"--crops must be from 1 to {_MOST_CROPS:,}, got {crops}.", "30 are usual.")
        benchmark = self.dataset.info is not None
        size = None if benchmark else self.dataset.common_size()
        transform = transform_of(
            self.backbone.info, self.dataset.name, benchmark=benchmark, size=min(size) if size else None,
            chosen=self.settings.transform,
        )  # fmt: skip
        random_crops = crops_for(transform, self.dataset.name, self.settings.crop_seed) if crops > 1 else None
        return Images(tuple(self.dataset.splits.values()), transform, random_crops, crops, self.rows)

    @property
    def plan(self) -> dict[str, Any]:
        """Everything that determines what is computed."""
        return self.whole if self.rows is None else {**self.whole, "rows": fingerprint({"rows": self.rows})}

    @cached_property
    def whole(self) -> dict[str, Any]:
        """Everything that determines the features.

        Of the images: names and sizes. An image that was replaced by another under its name is noticed unless both
        have the same number of bytes. Times would not survive a copy, and to read all contents would take as long as
        to extract.
        """
        places = asked_places(self.images.splits)
        names = "\n".join(f"{split}\t{label}\t{name}\t{mark}" for name, (split, label, mark) in places)
        info = self.backbone.info
        return {
            "dataset": self.dataset.name,
            "images": fingerprint({"names": names}),
            "backbone": info.name,
            "family": info.family,
            "architecture": {name: str(value) for name, value in info.architecture.items()},
            "weights": info.sha256 or info.weights,
            "transform": (self.images.random_crops or self.images.transform).describe(),
            "crops": self.settings.crops,
            "precision": self.settings.precision,
        }

    def provenance(self, notes: Iterable[str]) -> Provenance:
        """What the feature file says of its origin; `notes` beside those of the data set."""
        info = self.backbone.info
        return Provenance(
            dataset=self.dataset.name,
            backbone=info.name,
            family=info.family,
            weights=info.weights,
            weights_sha256=info.sha256,
            architecture=describe_architecture(info.architecture),
            trained_by=info.trained_by,
            split_digest=self.dataset.split_digest,
            transform=json.dumps(self.whole["transform"], sort_keys=True),
            image_size=self.images.transform.crop,
            crops=self.settings.crops,
            precision=self.settings.precision,
            libraries=library_versions(),
            notes=(*self.dataset.notes, *notes),
            fingerprint=fingerprint(self.whole),
        )


def _stored(out: Path, job: Extraction, force: bool) -> FeatureFile | None:
    """The finished file if it is what is asked for, None if it is to be made or completed; any other is refused."""
    if force or not out.exists():
        return None
    stored = FeatureFile.open(out)
    if stored.provenance.imported:
        message = f"{out} holds imported features, which fsbench cannot compute again."
        raise FsbenchError(message, "Write elsewhere with --out FILE, or overwrite it with --force.")
    asked = job.provenance(())
    if stored.provenance.fingerprint == asked.fingerprint:
        return stored
    if found := differences(stored, asked, job.images.splits):
        raise FsbenchError(
            "\n  ".join([f"{out} holds other features than those asked for:", *found]),
            "Replace it with --force, or keep both with --tag NAME or --out FILE.",
        )
    return None


def _fill(shards: Shards, job: Extraction, device: torch.device, reporter: Reporter, ranks: Ranks) -> None:
    """Compute the shards that are missing."""
    missing, count = ranks.agree(shards.missing), len(job.images)
    total = sum(len(part) for part in missing)
    if total < count:
        reporter.say(f"Resuming: {count - total:,} of {count:,} images of {job.dataset.name} are done.")
    label = f"{job.dataset.name} {job.backbone.info.name}"
    with shards.explaining_interrupts(reporter), reporter.bar(label, total) as advance:
        report, parts = ranks.counting(advance), ranks.hand_out(missing)
        for part, features, broken in _features(job, parts, device) if missing else ():
            if broken and not job.settings.skip_broken:
                message = f"An image of {job.dataset.root} cannot be used: {next(iter(broken.values()))}"
                named = "" if job.dataset.info else f" --data {job.dataset.root}"
                raise FsbenchError(
                    message,
                    "Repair or remove it, or leave such images out with --skip-broken.\n"
                    f"See all of them: fsbench doctor --deep{named}",
                )
            shards.write(part, features, broken)
            report(len(part))
    ranks.wait()


def _features(
    job: Extraction, parts: Iterable[range], device: torch.device
) -> Iterator[tuple[range, NDArray[np.float32], dict[int, str]]]:
    """The features of one range after another, with the reasons for images that could not be read."""
    settings, images = job.settings, job.images.from_cache(job.settings.cache)
    batch = settings.batch or (64 if device.type == "cpu" else 256)
    per_load = max(1, batch // settings.crops)
    taken: deque[range] = deque()  # the loader takes parts a little ahead of the forward pass

    def batches() -> Iterator[list[int]]:
        for part in parts:
            taken.append(part)
            for start in range(part.start, part.stop, per_load):
                yield list(range(start, min(start + per_load, part.stop)))

    workers = reading_processes(device) if settings.workers is None else settings.workers
    loader = DataLoader(
        images, batch_sampler=batches(), num_workers=workers, collate_fn=collate, pin_memory=device.type == "cuda"
    )
    forward = Forward(job.backbone, settings.precision, device, side=images.transform.crop, batch=batch)
    rows: dict[int, NDArray[np.float32]] = {}
    broken: dict[int, str] = {}
    for numbers, tensors, unreadable, gone in while_workers_live(loader):
        if gone is not None:
            raise gone
        broken |= unreadable
        if numbers:
            rows |= dict(zip(numbers, forward(tensors), strict=True))
        if len(rows) + len(broken) == len(taken[0]):
            part, empty = taken.popleft(), np.full(job.backbone.info.feature_dim, np.nan, dtype=np.float32)
            yield part, np.stack([rows.get(row, empty) for row in part]), broken
            rows, broken = {}, {}


def _assemble(shards: Shards, job: Extraction, known: Mapping[int, NDArray[np.float32]], out: Path) -> FeatureFile:
    """Write the feature file from its shards and the features known before, and delete the shards."""
    features, broken = shards.assemble()
    if job.rows is not None:
        computed = dict(zip(job.rows, features, strict=True))
        every = {**computed, **known}
        features = np.stack([every[row] for row in range(len(every))])
        broken = {job.rows[place]: why for place, why in broken.items()}
    splits, start = {}, 0
    for split in job.images.splits:
        kept = [i for i in range(len(split)) if start + i not in broken]
        names, marks = [split.image_name(i) for i in kept], [split.image_mark(i) for i in kept]
        rows = features[start : start + len(split)][kept]
        splits[split.name] = make_split(rows, split.labels[kept], split.class_names, names, marks)
        start += len(split)
    shared = [found.sentence for found in overlaps(splits) if found.rows]
    write_features(out, job.provenance([*(f"skipped {why}" for why in broken.values()), *shared]), splits)
    shutil.rmtree(shards.folder, ignore_errors=True)
    return FeatureFile.open(out)
