"""Labels for unlabelled images, from files to a table: what `fsbench label` and `fsbench.label` do."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fsbench.backbones.clip_models import OPEN_CLIP, text_prototypes
from fsbench.backbones.find_weights import find_weights
from fsbench.backbones.load import Weights, refuse_unknown
from fsbench.data.dataset import counted, first_names
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.options import PROMPT, Labelling
from fsbench.evaluation.source import base_of, check_network
from fsbench.features.extract import Settings
from fsbench.features.preprocess import unit_norm
from fsbench.features.store import FeatureFile
from fsbench.io.files import write_text
from fsbench.labelling import images, solve
from fsbench.labelling.images import CHECKED, NONE, FeatureTable
from fsbench.methods.pool import ENOUGH, POOL
from fsbench.methods.registry import BASELINE, method_class, split_variant
from fsbench.reporter import Reporter

UNSURE = 0.5  # confidence below which a label is more likely wrong than right
UNCERTAIN, UNLIKE, COPY, TWIN = "uncertain", "unlike any class", "copy of", "near-duplicate of"
WITH_TEXT = "bavardage-text"  # the default method where classes have text
_FEW = 3  # labelled images of a class, of which hiding one leaves much less


@dataclass(frozen=True)
class Row:
    """One unlabelled image: a line of labels.csv."""

    file: str
    label: str = ""
    confidence: float | None = None
    second_label: str = ""
    second_confidence: float | None = None
    outlier_score: float | None = None
    flag: str = ""
    image: str = ""  # tells the content


@dataclass(frozen=True)
class Expected:
    """What to expect of the labels: how many labelled images came back right when they were hidden."""

    # labelled images that came back right, and those that could be hidden: of classes with two or more
    by_class: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)  # of the classes, as far as they can be told
    labelled: int = 0  # images, hidden or not

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Expected accuracy and its 95 % interval in percent; None if nothing could be hidden.

        p = Σ_k π_k r_k / h_k with π_k the share of class k, and r_k of its h_k hidden images right. The interval is
        Wilson's for as many images as have the variance of p: 1 / Σ_k (π_k² / h_k).
        """
        if not self.by_class:
            return None
        total = sum(self.shares[name] for name in self.by_class)
        parts = [(self.shares[name] / total, right, hidden) for name, (right, hidden) in self.by_class.items()]
        share = sum(weight * right / hidden for weight, right, hidden in parts)
        low, high = solve.wilson(share, 1 / sum(weight**2 / hidden for weight, _, hidden in parts))
        return 100 * share, 100 * low, 100 * high

    def __str__(self) -> str:
        if self.interval is None:
            return (
                "How many labels are right cannot be told: there is no labelled image that could be hidden. "
                "Label two or more of each class."
            )
        (right, hidden), (share, low, high) = map(sum, zip(*self.by_class.values(), strict=True)), self.interval
        back = f"{right:,} came back right when they were hidden."
        if hidden < self.labelled:
            back = f"{hidden:,} could be hidden, and {right:,} of them came back right."
        counts = [count for _, count in self.by_class.values()]
        sentences = [
            f"Of your {max(hidden, self.labelled):,} labelled images {back}",
            f"Expect {share:.0f} % of the labels to be right ({low:.0f} to {high:.0f}).",
        ]
        if untried := len(self.shares) - len(self.by_class):
            many = counted(untried, "class has", "classes have")
            sentences.append(f"{many} too few labelled images to hide one: expect less there.")
        elif max(counts) > 2 * min(counts):
            sentences.append("If classes with few labelled images are harder than others, fewer labels are right.")
        elif min(counts) <= _FEW:
            sentences.append("With so few labelled images, hiding one matters: rather more labels are right than that.")
        by_share = sorted((right / count, name) for name, (right, count) in self.by_class.items() if 2 * right < count)
        worst = [f"{name} ({self.by_class[name][0]} of {self.by_class[name][1]})" for _, name in by_share]
        return " ".join([*sentences, *([f"Below half: {first_names(worst, 5)}."] if worst else [])])


@dataclass(frozen=True)
class Labels:
    """The labels of all unlabelled images, sorted by file, and what is known about them."""

    rows: Sequence[Row]
    classes: tuple[str, ...]
    labelled: Mapping[str, str]  # files and classes that were given
    hashes: Mapping[str, str]  # of the content of the readable files
    method: str
    expected: Expected = Expected()
    calibration: tuple[float, float] = (0.0, 1.0)  # a and b of confidence = σ(a + b · log odds)
    suggested: tuple[str, ...] = ()  # files whose labels would help most

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows as plain data."""
        return [asdict(row) for row in self.rows]

    def to_csv(self, path: str | Path) -> None:
        """Write labels.csv, whole or not at all; labelled images are part of it, so that it is enough as support."""
        given = {file: label for file, label in self.labelled.items() if file in self.hashes}
        rows = {
            file: Row(file, label, 1.0, flag=CHECKED if label else NONE, image=images.mark(self.hashes[file]))
            for file, label in given.items()
        }
        rows |= {row.file: row for row in self.rows}
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(Row.__dataclass_fields__)
        writer.writerows([map(_cell, asdict(rows[file]).values()) for file in sorted(rows)])
        write_text(Path(path), stream.getvalue())

    def as_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        expected = {"accuracy": self.expected.interval, "by_class": self.expected.by_class}
        about = {"method": self.method, "classes": self.classes, "calibration": self.calibration}
        return {**about, "expected": expected, "suggested": self.suggested, "labels": self.table}

    def summary(self) -> list[str]:
        """What to know before the labels are used, in sentences."""
        solved = sum(row.outlier_score is not None for row in self.rows)
        flags = Counter(
            next((kind for kind in (COPY, TWIN) if row.flag.startswith(kind)), row.flag) for row in self.rows
        )
        named = [f"{flags[kind]:,} {kind}" for kind in (CHECKED, NONE, UNLIKE, UNCERTAIN) if flags[kind]]
        words = {
            COPY: ("copy of a labelled one", "copies of labelled ones"),
            TWIN: ("near-duplicate", "near-duplicates"),
        }
        named += [counted(flags[kind], *forms) for kind, forms in words.items() if flags[kind]]
        first = f"{solved:,} images labelled with {len(self.classes)} classes by {self.method}"
        return [", ".join([first, *named]) + ".", *([str(self.expected)] if solved else [])]


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else images.guarded(value or "")


def label_images(unlabelled: str, support: Sequence[Path], options: Labelling, reporter: Reporter) -> Labels:
    """Label the images of a folder or a list with the classes of labelled ones."""
    refuse_unknown(options.backbone)
    files = images.unlabelled_files(unlabelled, reporter)
    given = images.labelled_files(support, unlabelled, reporter)
    classes = images.class_names(given.values(), options.classes, reporter)
    options = options.model_copy(update={"method": _method(options, {*classes} - {*given.values()})})
    sizes = Counter({name: 0 for name in classes} | Counter(label for label in given.values() if label))
    each = " to ".join(map(str, sorted({min(sizes.values()), max(sizes.values())})))
    labelled = f"{sizes.total():,} labelled ones of {len(sizes)} classes, {each} of each"
    reporter.say(f"{len(files):,} unlabelled images, {labelled}.")
    depth = len(Path(unlabelled).parts)
    if inside := [file for file in files if not sizes.keys().isdisjoint(Path(file).parts[depth:-1])]:
        many = counted(len(inside), "unlabelled image is in a folder", "unlabelled images are in folders")
        reporter.say(f"{many} named like a class, such as {inside[0]}: folder names are not used as labels.")
    table = _features([*files, *given], classes, options, reporter)
    return _labels(files, given, classes, _examples(given, table, reporter), table, options, reporter)


def _method(options: Labelling, unlabelled: Collection[str]) -> str:
    """The method, which must be able to do without images of some classes."""
    default = options.method == Labelling.model_fields["method"].default
    method = WITH_TEXT if default and _prompts(options) else options.method
    name, variant = split_variant(method)
    info = method_class(name).info
    if info.network_for(variant):
        raise UsageError("method", f"{name} adapts a network, and cannot label by features", "See fsbench methods.")
    if info.text == "needed" and not _prompts(options):
        raise UsageError("method", f"{name} needs text", f'Add --text "{PROMPT}", and --backbone {OPEN_CLIP}NAME.')
    if unlabelled and not info.zero_shot:
        missing = f"{name} needs labelled images of every class; there are none of {first_names(sorted(unlabelled))}"
        raise UsageError("method", missing, f"Use --method {WITH_TEXT}.")
    if _prompts(options) and not options.backbone.startswith(OPEN_CLIP):
        given = "text" if options.text else "classes"
        raise UsageError(given, f"{options.backbone} knows no text", f"Use --backbone {OPEN_CLIP}NAME.")
    return method


def _prompts(options: Labelling) -> list[str]:
    return options.text or ([PROMPT] if options.classes else [])


def _features(files: Iterable[str], classes: Sequence[str], options: Labelling, reporter: Reporter) -> FeatureTable:
    """Features of the files, and text prototypes of the classes if they are asked for."""
    file, name = options.weights, options.backbone
    if file is not None and not file.exists() and len(file.parts) == 1:
        file = find_weights(options.weights_dir, str(file), name)  # `cub`: the network of that data set
    if options.pretrained:
        reporter.say(f"Using the published weights of {name}, which are downloaded unless they are in the cache.")
    backbone = Weights(name, file, None, options.weights_dir, options.pretrained).load(options.out.stem)
    reporter.say(backbone.info.describe())
    prompts = _prompts(options)
    text = unit_norm(torch.from_numpy(text_prototypes(backbone, classes, prompts))) if prompts else None
    out = options.out.with_name(f"{options.out.stem}-{name.replace('/', '_')}.h5")
    settings = Settings(skip_broken=True, replaces=True)
    table = images.features_of(files, backbone, out, settings, choose_device(options.device), reporter)
    return replace(table, text=text)


def _examples(given: Mapping[str, str], table: FeatureTable, reporter: Reporter) -> dict[str, str]:
    """The labelled files to learn from: readable, each content once. Contents with two labels are refused."""
    first: dict[str, str] = {}
    for file, label in given.items():
        if file not in table.hashes:
            reporter.warn(f"The labelled image {file} is left out: {images.why_broken(file)}.")
            continue
        other = first.setdefault(table.hashes[file], file)
        if given[other] != label:
            names = " and ".join(repr(name or NONE) for name in (given[other], label))
            raise FsbenchError(f"{other} and {file} are the same image, labelled {names}.", "Remove one of the two.")
        if other != file:
            reporter.say(f"The labelled image {file} is a copy of {other} and is left out.")
    chosen = {file: given[file] for file in first.values()}
    if lost := sorted({*given.values()} - {*chosen.values()}):
        raise FsbenchError(f"No labelled image of {first_names(lost)} can be read.", "Repair the images.")
    return chosen


def _labels(
    files: Sequence[str], given: Mapping[str, str], classes: tuple[str, ...], examples: Mapping[str, str],
    table: FeatureTable, options: Labelling, reporter: Reporter,
) -> Labels:  # fmt: skip
    """Answers for what is not labelled already, and rows for what is."""
    known = {table.hashes[file]: (file, label) for file, label in examples.items()}
    asked = [file for file in files if file in table.hashes and table.hashes[file] not in known]
    support = [file for file, label in examples.items() if label]
    rows = torch.from_numpy(table.features[[table.rows[file] for file in (*support, *asked)]])
    labels = torch.tensor([classes.index(examples[file]) for file in support], dtype=torch.int64)
    solver = _solver(options, table, len(rows), reporter)
    decided = {"", *known}
    made = {file: _known(file, table, known) for file in files if table.hashes.get(file, "") in decided}
    if not asked:
        return Labels([*made.values()], classes, given, table.hashes, solver.method)
    turns = len(solve.folds(labels.numpy(), whole=solver.knows_names))
    with reporter.bar("hiding labelled images", turns) as advance:
        hidden, back = solve.hide_in_turn(solver, rows, labels, len(classes), advance)
    found = solve.answers(solver, rows, labels, len(classes))
    true, right = labels.numpy()[hidden], labels.numpy()[hidden] == back.labels[:, 0]
    expected = replace(_expected(true, right, classes, found), labelled=len(labels))
    weights = np.array([expected.shares[name] / expected.by_class[name][1] for name in (classes[k] for k in true)])
    calibration = solve.calibrate(back.odds, right, weights, solver)
    queries, sure = rows[len(labels) :], found.confidence(calibration)
    limit = solve.outlier_limit(back.outlier, found.outlier)
    made |= _answered(asked, classes, found, sure, limit, solve.near_duplicates(queries))
    suggested = tuple(asked[place] for place in solve.suggest(queries, sure[:, 0], options.suggest))
    ordered = [replace(made[file], image=images.mark(table.hashes.get(file, ""))) for file in files]
    return Labels(ordered, classes, given, table.hashes, solver.method, expected, calibration, suggested)


def _solver(options: Labelling, table: FeatureTable, count: int, reporter: Reporter) -> solve.Solver:
    """The method, with statistics of a file of base classes or of the images themselves."""
    method, base = options.method, None
    if options.base != POOL:
        other = FeatureFile.open(options.base)
        check_network(table.file, other, reporter)
        base = base_of(other, reporter)
        if base is None:
            raise UsageError("base", f"{options.base} has no base classes", "Use --base pool.")
    elif count < ENOUGH and method == Labelling.model_fields["method"].default:
        method = BASELINE
        reporter.say(f"Fewer than {ENOUGH} images: labelled by {method}, as {options.method} learns from many.")
    return solve.Solver(method, base, choose_device(options.device), table.text)


def _known(file: str, table: FeatureTable, known: Mapping[str, tuple[str, str]]) -> Row:
    """A file that is labelled already, or copies one that is, or cannot be read."""
    if file not in table.hashes:
        return Row(file, flag=f"not readable: {images.why_broken(file)}")
    original, label = known[table.hashes[file]]
    same = Path(original).absolute() == Path(file).absolute()
    flag = NONE if not label else CHECKED if same else f"{COPY} {original}"
    return Row(file, label, 1.0, flag=flag, image=images.mark(table.hashes[file]))


def _answered(
    files: Sequence[str], classes: Sequence[str], found: solve.Answers, confidence: solve.Floats, limit: float,
    twins: Mapping[int, int],
) -> dict[str, Row]:  # fmt: skip
    rows = {}
    for place, file in enumerate(files):
        (one, two), (sure, less), strange = found.labels[place], confidence[place], found.outlier[place]
        twin = f"{TWIN} {files[twins[place]]}" if place in twins else ""
        flag = UNLIKE if strange > limit else UNCERTAIN if sure < UNSURE else twin
        numbers = (round(float(number), 4) for number in (sure, less, strange))
        rows[file] = Row(file, classes[one], next(numbers), classes[two], next(numbers), next(numbers), flag)
    return rows


def _expected(true: solve.Ints, right: Any, classes: Sequence[str], found: solve.Answers) -> Expected:
    """Classes count as frequent as half way from the labelled images to the answers, which go too far."""
    hidden, good, answered = (
        np.bincount(labels, minlength=len(classes)) for labels in (true, true[right], found.labels[:, 0])
    )
    shares = answered / answered.sum() + hidden / max(1, hidden.sum())
    by_class = {name: (int(good[c]), int(hidden[c])) for c, name in enumerate(classes) if hidden[c]}
    return Expected(by_class, dict(zip(classes, shares.tolist(), strict=True)))
