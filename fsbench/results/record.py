"""Run records: one JSON file per (features, protocol, method), with the outcome of every task."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from glob import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import ValidationError

from fsbench.errors import FsbenchError
from fsbench.io.files import is_name, readable_part
from fsbench.io.sealed import adapter_of, read_sealed, write_sealed
from fsbench.results.statistics import interval
from fsbench.tasks.protocol import TaskProtocol, setting_title

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

VERSION = 1


@dataclass(frozen=True)
class RunKey:
    """Everything that determines a result. Equal keys mean equal results, so a record with this key is reused."""

    features_sha256: str
    base_sha256: str
    split: str
    protocol: dict[str, Any]
    seed: int
    tasks: int
    method: str
    params: dict[str, Any]
    version: int = VERSION
    method_version: int = 1  # of `MethodInfo`; 1 in records from before there were versions

    def digest(self, *without: str) -> str:
        """Twelve hexadecimal digits of the SHA-256 of the key; a first version is not in it, as it once was not."""
        content = {name: value for name, value in vars(self).items() if name not in without}
        if self.method_version == 1:
            del content["method_version"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class OwnMethod:
    """What a record keeps of the `MethodInfo` of a user's file or of another package, which may change or vanish."""

    title: str
    reference: str
    transductive: bool
    prior: Literal["none", "uniform", "free"]
    needs_base: bool
    assumes: str  # in this run
    url: str = ""


@dataclass(frozen=True)
class RunRecord:
    """The result of one method over one list of tasks.

    Attributes:
        params_from: Where the parameters come from: given, the article's preset, defaults, or tuned on val.
        accuracy: Mean over tasks, in percent.
        ci95: Half-width of the 95 % interval over sampled tasks, in percent.
        correct: Right answers per task.
        seconds: Wall time from drawing the tasks to the counts; embedding all images comes before.
        peak_memory: Bytes.
        created: UTC, ISO 8601.
        crops: Crops per image that the features are averaged over.
        base_dataset: Data set of the base classes, if it is another one.
        versions: Of fsbench, torch and Python.
        ranks: Processes that shared the tasks. Time covers all of them, memory and device describe process 0.
        other_base: Whether the base classes come from another file than the features.
        family: Family of the backbone, such as `wrn-s2m2`; empty if it is not known.
        weights: Name of the weights file and eight digits of its SHA-256, `rn12.pt1@0a1b2c3d`, or `random seed 0`.
        network: How the network differs from the published one of its family; empty if nothing is known.
        images: How the numbers of images differ from those of the benchmark; empty if they do not, or there is none.
        origin: The folder of other people's records that it was read from; empty for one's own. Not stored.
        asked: Tasks asked for, where a budget of time allowed fewer, or the run was interrupted; else 0.
        own_method: What is known of a method that is not part of fsbench; None for those that are.
    """

    key: RunKey
    dataset: str
    backbone: str
    params_from: str
    accuracy: float
    ci95: float | None
    correct: list[int] = field(repr=False)
    queries: list[int] = field(repr=False)
    seconds: float
    peak_memory: int
    device: str
    signature: str
    created: str
    crops: int = 1
    base_dataset: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    other_base: bool = False
    family: str = ""
    weights: str = ""
    network: str = ""
    images: str = ""
    origin: str = ""
    asked: int = 0
    own_method: OwnMethod | None = None

    def __str__(self) -> str:
        protocol = TaskProtocol(**self.key.protocol)
        setting, shots = setting_title(protocol.alpha, protocol.present, protocol.pooled), protocol.shots
        width = "" if self.ci95 is None else f" ± {self.ci95:.2f}"
        backbone = f"{self.backbone} ({self.weights})" if self.weights.startswith("random ") else self.backbone
        return (
            f"{self.key.method} on {self.dataset} {backbone}, {setting} {shots}-shot: "
            f"{self.accuracy:.2f}{width} % over {self.key.tasks:,} tasks"
        )

    @property
    def tasks_per_second(self) -> float:
        """Speed."""
        return self.key.tasks / self.seconds

    @cached_property
    def per_task(self) -> NDArray[np.float64]:
        """(T,) accuracy of every task, in percent. Kept, as a table asks for it dozens of times; so it is read-only."""
        values: NDArray[np.float64] = 100.0 * np.array(self.correct, np.float64) / np.array(self.queries, np.float64)
        values.flags.writeable = False
        return values

    @property
    def source(self) -> tuple[str, ...]:
        """What tells its feature file from others: the content, and the names it goes by."""
        digests = self.key.features_sha256, self.key.base_sha256
        return *digests, self.dataset, self.backbone, str(self.crops), self.base_dataset, self.family, self.weights

    @property
    def base_name(self) -> str:
        """Base classes of another file, as signatures name them; empty if they are the file's own, or none."""
        other = self.other_base or self.base_dataset
        return named_base(self.base_dataset or self.dataset, self.key.base_sha256) if other else ""

    def row(self) -> dict[str, Any]:
        """The record as one row of plain data, without the outcomes of single tasks."""
        key, protocol = self.key, self.key.protocol
        measured = ("accuracy", "ci95", "seconds", "tasks_per_second", "peak_memory", "device", "ranks", "signature")
        return {
            **{name: getattr(self, name) for name in ("dataset", "backbone", "family", "weights")},
            "base_dataset": self.base_dataset or self.dataset,
            "method": key.method,
            "variant": key.params.get("variant"),
            "setting": TaskProtocol(**protocol).setting,
            **{name: protocol[name] for name in ("alpha", "shots", "ways", "queries")},
            "protocol": protocol["name"],
            **({"present": protocol["present"], "pooled": protocol["pooled"]} if "present" in protocol else {}),
            **{name: getattr(key, name) for name in ("split", "tasks", "seed")},
            **{name: getattr(self, name) for name in measured},
            "params": key.params,
            "params_from": self.params_from,
        }


def named_base(dataset: str, digest: str) -> str:
    """Base classes of another file in a signature: their data set, and six digits of their digest."""
    return f"{dataset}@{digest[:6]}"


def named_network(backbone: str, family: str, weights: str) -> str:
    """A backbone in a signature, with its family and weights as far as they are known: `wrn(wrn-s2m2@0a1b2c3d)`."""
    digest, seed = re.search(r"@([0-9a-f]{8})$", weights), re.fullmatch(r"random seed (\d+)", weights)
    mark = digest[1] if digest else f"seed{seed[1]}" if seed else ""
    known = "@".join(part for part in ("" if family == backbone else family, mark) if part)
    return f"{backbone}({known})" if known else backbone


def network_words(backbone: str, family: str, weights: str) -> str:
    """Family and weights of a backbone in a heading: `wrn-s2m2, wrn.pth@0a1b2c3d`; empty if nothing is known."""
    return ", ".join(part for part in ("" if family == backbone else family, weights) if part)


_ORIGINS = ("blind", "default", "given", "preset", "tuned")


def common_signature(records: Sequence[RunRecord]) -> str:
    """Everything that determines runs of one split, protocol, seed and number of tasks, in one line.

    The parameters are named by their origins and a digest: the same digest means the same methods and parameters.
    """
    key = records[0].key
    protocols = [TaskProtocol(**record.key.protocol) for record in records]
    made = sorted({record.versions.get("fsbench", "unknown") for record in records})
    names = dict.fromkeys(
        f"{one.dataset}/{named_network(one.backbone, one.family, one.weights)}/{key.split}" for one in records
    )
    bases = sorted({record.base_name for record in records})
    shots = "+".join(map(str, sorted({protocol.shots for protocol in protocols})))
    counts = [record.key.tasks for record in records]
    mixes = dict.fromkeys(one.mix for one in sorted(protocols, key=lambda one: one.alpha or math.inf))
    parts = [
        f"fsbench:{'+'.join(made)}",
        "+".join(names),
        *([f"base:{'+'.join(name or 'own' for name in bases)}"] if any(bases) else []),
        protocols[0].signature(shots=shots, mix="+".join(mixes)),
        f"seed:{key.seed}|tasks:{'-'.join(map(str, sorted({min(counts), max(counts)})))}",
        f"params:{'+'.join(_origins(records))}@{_digest(records)}",
    ]
    return "|".join(parts)


def _origins(records: Sequence[RunRecord]) -> list[str]:
    """Where parameters come from, each once, as the words of `_ORIGINS`."""
    words = (record.params_from.replace(" + given:", ":given:").split(":") for record in records)
    return sorted({word for one in words for word in one if word in _ORIGINS})


def _digest(records: Sequence[RunRecord]) -> str:
    """Eight digits of the SHA-256 of all methods, their versions, settings and parameters."""
    keys = [record.key for record in records]
    runs = {json.dumps([key.method, key.method_version, key.protocol, key.params], sort_keys=True) for key in keys}
    return hashlib.sha256("\n".join(sorted(runs)).encode()).hexdigest()[:8]


def record_path(folder: Path, key: RunKey, dataset: str, backbone: str) -> Path:
    """The file of a run's record: a readable name, made unique by the key, then the number of tasks."""
    setting = TaskProtocol(**key.protocol).setting
    words = [dataset, backbone, key.method, setting, f"{key.protocol['shots']}shot"]
    name = "-".join(word.replace("/", "_") for word in words)
    return folder / f"{readable_part(name)}-{key.digest('tasks')}-{key.tasks}.json"


def find_record(path: Path, key: RunKey) -> RunRecord | None:
    """The record of a run, by its path; else one of more tasks of the same list, or the longest of fewer, if any.

    Records of earlier versions of fsbench have the number of tasks in the digest. Of those, only that of as many tasks
    is found.
    """
    start = path.name.removesuffix(f"-{key.digest('tasks')}-{key.tasks}.json")
    for exact in (path, path.with_name(f"{start}-{key.digest()}.json")):
        if exact.exists():
            return load_record(exact, key)
    others: dict[int, Path] = {}
    for other in path.parent.glob(f"{escape(path.name.rpartition('-')[0])}-*.json"):
        number = other.stem.rpartition("-")[2]
        others |= {int(number): other} if number.isdecimal() else {}
    for tasks in sorted(others, key=lambda tasks: (tasks < key.tasks, abs(tasks - key.tasks))):
        with suppress(FsbenchError):  # a damaged one is no help, and does no harm
            return load_record(others[tasks], replace(key, tasks=tasks))
    return None


def first_tasks(record: RunRecord, tasks: int) -> RunRecord:
    """The result over the first tasks of a record; the time is their share."""
    correct, queries = record.correct[:tasks], record.queries[:tasks]
    shorter = replace(record, key=replace(record.key, tasks=tasks), correct=correct, queries=queries)
    mean = interval(shorter.per_task)
    width = mean.half_width if tasks > 1 else None
    return replace(shorter, accuracy=mean.mean, ci95=width, seconds=record.seconds * tasks / record.key.tasks)


def save_record(path: Path, record: RunRecord) -> None:
    """Write a record atomically."""
    content = asdict(record)
    del content["origin"]
    write_sealed(path, content)


def load_record(path: Path, key: RunKey | None = None) -> RunRecord:
    """Read and check a record; with a key, it must be the record of that very run."""
    remedy = "Delete it, or recompute it with --force."
    record = replace(read_sealed(path, RunRecord, "record", remedy), origin="")
    if key is not None and record.key != key:
        raise FsbenchError(f"The record {path} belongs to another run than its name says.", remedy)
    if trouble := _trouble(record):
        raise FsbenchError(f"The record {path} is damaged: {trouble}.", remedy)
    width = None if record.ci95 is None else interval(record.per_task).half_width
    return record if record.ci95 == width else replace(record, ci95=width)


def _trouble(record: RunRecord) -> str:
    """What contradicts itself in a record, or nothing."""
    key = record.key
    if not all(map(is_name, (record.dataset, record.backbone, key.method, key.split))):
        return "the name of its data set, backbone, method or split is not valid"
    words = [record.family, record.weights, record.network, record.images]
    words += map(str, asdict(record.own_method).values()) if record.own_method else []
    if not "".join(words).isprintable():
        return "its family, weights, network or method cannot be printed"
    if key.version != VERSION:
        return f"it has version {key.version}, and this fsbench reads version {VERSION}"
    try:
        protocol = adapter_of(TaskProtocol).validate_python(key.protocol).as_dict()
    except (ValidationError, FsbenchError):
        protocol = None
    if protocol != key.protocol:
        return "fsbench does not know its protocol"
    counts = len(record.correct), len(record.queries)
    sound = min(record.correct, default=0) >= 0 and all(map(operator.le, record.correct, record.queries))
    if counts != (key.tasks, key.tasks) or not sound or min(record.queries, default=0) < 1 or record.seconds < 1e-9:
        return f"its counts do not fit its {key.tasks} tasks"
    mean = record.per_task.mean()
    if not np.isclose(record.accuracy, mean, rtol=1e-9) or not _is_width(record.ci95, record.per_task):
        return "its accuracy does not agree with its tasks"
    return ""


def _is_width(stored: float | None, values: NDArray[np.float64]) -> bool:
    """Whether a half-width is Student's, or the 1.96 standard errors of earlier records; one task has none."""
    if len(values) < 2 or stored is None:
        return len(values) < 2 and stored is None
    earlier = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5
    return bool(np.isclose(stored, [interval(values).half_width, earlier]).any())
