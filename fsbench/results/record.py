"""Records: one file per run, with what determines it, where it comes from, and the answer to every query.

A record is an HDF5 file: a JSON text that `Record` describes, and arrays, compressed. A run with more tasks of the
same list replaces it by a longer one, a request for fewer tasks reads its beginning.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, field_serializer

from fsbench.errors import FsbenchError
from fsbench.features.store import Provenance
from fsbench.io.files import is_name, readable_part
from fsbench.io.hdf5 import attribute_of, open_hdf5, sealed_hdf5
from fsbench.results.metrics import ACCURACY, class_pseudo_values, metric_of
from fsbench.results.statistics import FEW_TASKS, Interval, interval
from fsbench.tasks.protocol import TaskProtocol

FORMAT = "fsbench-record"
VERSION = 1
_REMEDY = "Delete it, or recompute it with --force."
_ARRAYS = ("predicted", "labels", "confidence", "classes", "outlier")
NO_OUTLIERS = np.zeros((0, 0), np.float32)
Value = bool | int | float | str  # of a parameter
Origin = Literal["default", "preset", "given", "tuned"]
_LATE = ("present", "pooled", "unknown", "support")  # fields of a protocol that few have


@dataclass(frozen=True, eq=False)
class Answers:
    """What one method answered to T tasks with at most Q queries and K classes each."""

    predicted: NDArray[np.signedinteger]  # (T, Q) label that a query got, 0..K-1; -1 where a task has fewer queries
    labels: NDArray[np.signedinteger]  # (T, Q) its true label; -1 if there is none, -2 for one of an unknown class
    confidence: NDArray[np.float16]  # (T, Q) probability of the predicted label; NaN where there is no query
    classes: NDArray[np.signedinteger]  # (T, K) class of the split behind every label; -1 where a task has fewer
    # (T, Q) how little a query looks like the classes of its task; (T, 0) where there are no unknown classes
    outlier: NDArray[np.float32] = field(default_factory=lambda: NO_OUTLIERS)
    metrics: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)  # computed so far

    def __post_init__(self) -> None:
        if not self.outlier.size:
            object.__setattr__(self, "outlier", np.zeros((len(self.labels), 0), np.float32))

    def __len__(self) -> int:
        return len(self.labels)

    def __eq__(self, other: object) -> bool:
        """Whether all answers are the same; NaN, where there is no query, equals itself."""
        if not isinstance(other, Answers):
            return NotImplemented
        pairs = [(getattr(self, name), getattr(other, name)) for name in _ARRAYS]
        return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)

    def __getitem__(self, part: Any) -> Answers:
        """The answers to some of the tasks."""
        return Answers(*(getattr(self, name)[part] for name in _ARRAYS))

    def __add__(self, more: Answers) -> Answers:
        """The answers to these tasks and to those that follow them."""
        return Answers(*(np.concatenate([getattr(self, name), getattr(more, name)]) for name in _ARRAYS))


_NO_ANSWERS = Answers(*(np.zeros((0, 0), dtype=kind) for kind in (np.int8, np.int8, np.float16, np.int8)))
_FROZEN = ConfigDict(frozen=True, extra="forbid")


class Run(BaseModel):
    """Everything that determines the answers to a task: equal runs give equal answers."""

    model_config = _FROZEN

    features: str  # SHA-256 of the features of the split
    base: str  # the same of the base classes, or empty
    split: str
    protocol: TaskProtocol
    seed: int
    method: str  # name; of one's own, with a digest of its file
    version: int  # of the method
    params: dict[str, Value]  # all of them

    @field_serializer("protocol")
    def _plain_protocol(self, protocol: TaskProtocol) -> dict[str, Any]:
        """Fields that only some protocols have are left out of others, so that digests do not change with new ones."""
        fields, usual = dataclasses.asdict(protocol), TaskProtocol()
        return {name: fields[name] for name in fields if name not in _LATE or fields[name] != getattr(usual, name)}

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of all of it."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()[:12]

    @cached_property
    def tasks_digest(self) -> str:
        """The same of what determines the tasks and their features, without the method."""
        content = self.model_dump(mode="json", exclude={"method", "version", "params"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


class MethodFacts(BaseModel):
    """What is known of the method of a run; it may change or vanish later."""

    model_config = _FROZEN

    label: str  # its name with the variant, as typed
    title: str
    reference: str = ""
    url: str = ""
    assumes: str = ""  # in this run: `inductive`, `no prior`, `uniform prior` or `free prior`
    order: int = 0  # its place in lists of methods
    starts_from: str = ""  # method whose result it starts from, and should not end below
    learns: bool = False  # whether its parameters are meant to be learned on val tasks
    published_as: tuple[str, ...] = ()  # its names in published tables, with these parameters
    elsewhere: bool = False  # whether another program answered, whose predictions were scored here


class Tuning(BaseModel):
    """A search for parameters on the val classes; `edge` names those at an end of the searched range."""

    model_config = _FROZEN

    how: Literal["grid", "gradient"]
    trials: int
    tasks: int
    edge: tuple[str, ...] = ()


class Origins(BaseModel):
    """Where every parameter comes from."""

    model_config = _FROZEN

    params: dict[str, Origin] = {}  # a parameter that is not named has its default
    variant: str = ""  # the parameter that the word behind the method's name sets, if it has variants
    preset: str = ""  # the benchmark whose published parameters were asked for
    blind: bool = False  # whether the defaults do not depend on the setting
    tuning: Tuning | None = None

    @property
    def kind(self) -> str:
        """Where parameters come from that were not given, in a word."""
        return "tuned" if self.tuning else "blind" if self.blind else "preset" if self.preset else "default"

    @property
    def given(self) -> list[str]:
        """Names of the parameters that were given, the variant's included."""
        return sorted(name for name, origin in self.params.items() if origin == "given")

    @property
    def by_hand(self) -> list[str]:
        """The same without the variant."""
        return [name for name in self.given if name != self.variant]

    def __str__(self) -> str:
        """As signatures have it: `default`, `preset:mini + given:tau`, `tuned:val:grid:50x500:edge:sigma`."""
        text = f"preset:{self.preset}" if self.kind == "preset" else self.kind
        if tuning := self.tuning:
            edge = f":edge:{','.join(tuning.edge)}" if tuning.edge else ""
            text = f"tuned:val:{tuning.how}:{tuning.trials}x{tuning.tasks}{edge}"
        return f"{text} + given:{','.join(self.given)}" if self.given else text


class Record(BaseModel):
    """The result of one method over one list of tasks."""

    model_config = _FROZEN

    run: Run
    method: MethodFacts
    origins: Origins
    also: tuple[Origins, ...] = ()  # other ways in which the same parameters were asked for
    asked: tuple[str, str] = ("", "")  # the command that computes it again, without options of the method, and these
    provenance: Provenance  # of the features
    base_provenance: Provenance | None = None  # of the base classes, if they are of another file
    network: str = ""  # how the network differs from the published one of its family; empty if nothing is known
    images: str = ""  # how the numbers of images differ from those of the benchmark; empty if they do not
    class_names: tuple[str, ...]  # of the split
    warnings: tuple[str, ...] = ()  # what the run itself has shown that a reader must know
    seconds: float  # wall time from drawing the tasks to the answers; embedding all images comes before
    peak_memory: int  # bytes
    redrawn: float = 0.0  # share of the drawn class proportions that were refused for lack of images
    device: str
    ranks: int = 1  # processes that shared the tasks: time covers all of them, memory and device describe process 0
    created: str  # UTC, ISO 8601
    versions: dict[str, str]  # of fsbench, torch and Python
    answers: InstanceOf[Answers] = Field(default=_NO_ANSWERS, exclude=True, repr=False)  # not in the JSON text

    def __eq__(self, other: object) -> bool:
        """Whether all fields are the same as they are stored, and all answers."""
        if not isinstance(other, Record):
            return NotImplemented
        return self.model_dump_json() == other.model_dump_json() and self.answers == other.answers

    @property
    def command(self) -> str:
        """What computes it again; empty for arrays in memory."""
        return " ".join(self.asked).strip()

    @property
    def tasks(self) -> int:
        """T."""
        return len(self.answers.labels)

    def metric(self, name: str) -> NDArray[np.float64]:
        """(T,) a metric of every task, in percent; pseudo-values of one over all queries, such as `ece`. Read-only."""
        computed = self.answers.metrics
        if name not in computed:
            computed[name] = metric_of(name).per_task(self.answers)
            computed[name].flags.writeable = False
        return computed[name]

    def samples(self, name: str) -> list[NDArray[np.float64]]:
        """What intervals and tests of a metric rest on: (T,) that of every task; of few tasks also (G,) by classes."""
        if self.tasks >= FEW_TASKS:
            return [self.metric(name)]
        key = f"{name} by classes"
        if key not in self.answers.metrics:
            self.answers.metrics[key] = class_pseudo_values(metric_of(name), self.answers)
        return [self.answers.metrics[key], *([self.metric(name)] if self.tasks > 1 else [])]

    def interval(self, name: str) -> Interval:
        """A metric over all tasks, with its 95 % interval; of few tasks the wider one, over tasks or over classes."""
        pooled = metric_of(name).pooled
        mean = pooled(self.answers) if pooled else float(self.metric(name).mean())
        return Interval(mean, max(interval(sample).half_width for sample in self.samples(name)))

    @property
    def per_task(self) -> NDArray[np.float64]:
        """(T,) accuracy of every task, in percent; read-only."""
        return self.metric(ACCURACY.name)

    @property
    def accuracy(self) -> float:
        """Mean over tasks, in percent."""
        return float(self.metric(ACCURACY.name).mean())

    @property
    def ci95(self) -> float | None:
        """Half-width of its 95 % interval over sampled tasks, or over classes where these are few."""
        half_width = self.interval(ACCURACY.name).half_width
        return None if math.isnan(half_width) else half_width

    @property
    def dataset(self) -> str:
        """Data set of the features."""
        return self.provenance.dataset

    @property
    def backbone(self) -> str:
        """Backbone of the features."""
        return self.provenance.backbone

    @property
    def base_dataset(self) -> str:
        """Data set of the base classes, if it is another one."""
        other = self.base_provenance.dataset if self.base_provenance else ""
        return "" if other == self.dataset else other

    @property
    def tasks_per_second(self) -> float:
        """Speed; NaN where another program answered."""
        return self.tasks / self.seconds if self.seconds else math.nan

    @property
    def source(self) -> tuple[str, ...]:
        """What tells its feature file from others: the content, and the names it goes by."""
        made = self.provenance
        names = made.dataset, made.backbone, str(made.crops), self.base_dataset, made.family, made.named_weights
        return self.run.features, self.run.base, *names

    def first(self, tasks: int) -> Record:
        """The result over the first tasks; the time is their share."""
        if tasks >= self.tasks:
            return self
        share = {"answers": self.answers[:tasks], "seconds": self.seconds * tasks / self.tasks}
        return self.model_copy(update=share)

    def __str__(self) -> str:
        width = "" if self.ci95 is None else f" ± {self.ci95:.2f}"
        weights = self.provenance.named_weights
        backbone = f"{self.backbone} ({weights})" if weights.startswith("random ") else self.backbone
        name = self.run.method if "@" in self.run.method else self.method.label  # of another program, with its hash
        return (
            f"{name} on {self.dataset} {backbone}, {self.run.protocol.title}: "
            f"{self.accuracy:.2f}{width} % over {self.tasks:,} tasks"
        )

    @property
    def signature(self) -> str:
        """One line that a paper can print under a table."""
        run = self.run
        method = run.method if run.version == 1 else f"{run.method}:{run.version}"
        values = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in run.params.items()}
        params = ",".join(f"{name}:{value}" for name, value in values.items())
        return common_signature([self], f"{method}({params})" if params else method, f"params:{self.origins}")


def network_words(made: Provenance) -> str:
    """Family and weights of a backbone in a heading: `wrn-s2m2, wrn.pth@0a1b2c3d`; empty if nothing is known."""
    return ", ".join(part for part in ("" if made.family == made.backbone else made.family, made.named_weights) if part)


def common_signature(records: Sequence[Record], *methods: str) -> str:
    """Everything that determines runs of one split, protocol, seed and number of tasks, in one line.

    In place of methods, parameters are named by their origins and a digest, which is the same for the same ones.
    """
    run, protocols = records[0].run, [record.run.protocol for record in records]
    versions = sorted({record.versions.get("fsbench", "unknown") for record in records})
    names: dict[str, None] = {}
    for made, one in ((one.provenance, one.run) for one in records):  # `mini/wrn(wrn-s2m2@0a1b2c3d)/novel@4d5e6f`
        seed = made.weights.removeprefix("none, seed ")
        mark = made.weights_sha256[:8] or (f"seed{seed}" if seed != made.weights else "")
        details = "@".join(part for part in ("" if made.family == made.backbone else made.family, mark) if part)
        network = f"{made.backbone}({details})" if details else made.backbone
        names[f"{made.dataset}/{network}/{one.split}@{one.features[:6]}"] = None
    others = {(one.run.base, one.base_provenance.dataset if one.base_provenance else "") for one in records}
    bases = sorted("pool" if base == "pool" else f"{name}@{base[:6]}" if base and name else "" for base, name in others)
    shots = "+".join(map(str, sorted({protocol.shots for protocol in protocols})))
    ways, queries = ("+".join(dict.fromkeys(str(getattr(one, n)) for one in protocols)) for n in ("ways", "queries"))
    counts = [record.tasks for record in records]
    mixes = dict.fromkeys(one.mix for one in sorted(protocols, key=lambda one: one.alpha or math.inf))
    if not methods:
        origins = {word for one in records for word in (one.origins.kind, *(["given"] if one.origins.given else []))}
        of_method = {"method", "version", "protocol", "params"}
        runs = {json.dumps(one.run.model_dump(mode="json", include=of_method), sort_keys=True) for one in records}
        digest = hashlib.sha256("\n".join(sorted(runs)).encode()).hexdigest()[:8]
        methods = (f"params:{'+'.join(sorted(origins))}@{digest}",)
    parts = [
        f"fsbench:{'+'.join(versions)}",
        "+".join(names),
        *([f"base:{'+'.join(name or 'own' for name in dict.fromkeys(bases))}"] if any(bases) else []),
        protocols[0].signature(ways=ways, shots=shots, queries=queries, mix="+".join(mixes)),
        f"seed:{run.seed}|tasks:{'-'.join(map(str, sorted({min(counts), max(counts)})))}",
        *methods,
    ]
    return "|".join(parts)


def record_path(folder: Path, record: Record) -> Path:
    """The file of a record: a readable name, made unique by the digest of the run."""
    made, run = record.provenance, record.run
    words = [made.dataset, made.backbone, run.method, run.protocol.setting, f"{run.protocol.shots}shot"]
    name = "-".join(words).replace("/", "_").replace(":", "+")
    return folder / f"{readable_part(name)}-{record.run.digest}.h5"


def save_record(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    with sealed_hdf5(path, FORMAT, VERSION) as file:
        text = record.model_dump_json().encode()
        file.create_dataset("record", data=np.frombuffer(text, np.uint8))
        for name in _ARRAYS:
            array = np.ascontiguousarray(getattr(record.answers, name))
            level = 0 if array.dtype.kind == "f" else 1  # confidences hardly shrink, and take longest
            file.create_dataset(name, data=np.frombuffer(zlib.compress(array.tobytes(), level), np.uint8))
            file.attrs[name] = f"{array.dtype.str} {' '.join(map(str, array.shape))}"


def load_record(path: str | Path) -> Record:
    """Read and check a record."""
    with open_hdf5(Path(path), FORMAT, VERSION) as file:
        packed = {name: file[name][()].tobytes() for name in ("record", *_ARRAYS)}
        kinds = {name: str(attribute_of(file, name)) for name in _ARRAYS}
    try:
        record = Record.model_validate_json(packed.pop("record"))
        answers = Answers(**{name: _unpacked(packed[name], *kinds[name].split()) for name in _ARRAYS})
        _check(record, answers)
    except (FsbenchError, ValueError, TypeError, zlib.error) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        where = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else error
        raise FsbenchError(f"The record {path} is damaged: {where}.", _REMEDY) from error
    return record.model_copy(update={"answers": answers})


def _unpacked(packed: bytes, dtype: str, *shape: str) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(packed), np.dtype(dtype)).reshape([int(size) for size in shape])


def _check(record: Record, answers: Answers) -> None:
    """Refuse names that cannot be part of a file name, and arrays that do not fit each other."""
    run, shape = record.run, answers.labels.shape
    if not all(map(is_name, (record.dataset, record.backbone, run.method, run.split))):
        raise ValueError("the name of its data set, backbone, method or split is not valid")
    shapes = [getattr(answers, name).shape for name in _ARRAYS]
    ways = run.protocol.ways if isinstance(run.protocol.ways, int) else shapes[3][-1]
    queries = run.protocol.queries if isinstance(run.protocol.queries, int) else shape[-1]
    if run.protocol.preset.short and not run.protocol.same_size:
        queries = shape[-1]  # as many as there are images
    outlier = queries if run.protocol.unknown else 0
    if 0 in shape or shapes != [(*shape[:1], size) for size in (queries, queries, queries, ways, outlier)]:
        raise ValueError("its answers are not (tasks, queries), or its classes not (tasks, ways)")
    present = answers.labels >= 0
    answered = answers.predicted[present]
    if not present.any(axis=1).all() or max(answers.labels.max(), answered.max()) >= ways or answered.min() < 0:
        raise ValueError("its labels or answers are not those of its classes")
    if not -1 <= answers.classes.min() <= answers.classes.max() < len(record.class_names):
        raise ValueError("its classes are not those of its split")
