"""Solve tasks of stored records again, and compare the right answers task by task."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.evaluation.source import base_of
from fsbench.methods.base import Context
from fsbench.methods.registry import installed_class, method_class, method_key
from fsbench.results.collect import variant_suffix
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from numpy.typing import NDArray

    from fsbench.evaluation.image_source import ImagePlaces
    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import FeatureFile, Split
    from fsbench.methods.base import Method
    from fsbench.methods.networks import ImageNetwork
    from fsbench.reporter import Reporter
    from fsbench.results.record import RunKey, RunRecord


@dataclass(frozen=True)
class Verdict:
    """What solving tasks of a record again has shown.

    Attributes:
        record: The record.
        tasks: (S,) numbers of the tasks that were solved again.
        found: (S,) their right answers.
        features: The file that the features come from.
        reason: Why nothing could be verified; empty if it was.
    """

    record: RunRecord
    tasks: NDArray[np.int64]
    found: NDArray[np.int64]
    features: str = ""
    reason: str = ""

    @property
    def method(self) -> str:
        """The method with its variant."""
        return self.record.key.method + variant_suffix(self.record)

    @property
    def different(self) -> NDArray[np.int64]:
        """Numbers of the tasks whose right answers are not those of the record."""
        stored = np.array(self.record.correct, dtype=np.int64)[self.tasks]
        return np.compress(self.found != stored, self.tasks)

    @property
    def state(self) -> str:
        """`equal`, `different` or `not verified`."""
        return "not verified" if self.reason else "different" if len(self.different) else "equal"

    def details(self) -> list[str]:
        """What a reader wants to know of a record that is not equal: the tasks that differ, or why there are none."""
        name = str(self.record).rpartition(": ")[0]
        if self.reason:
            return [f"{name}: not verified, as {self.reason}."]
        if not len(self.different):
            return []
        task = int(self.different[0])
        found = int(self.found[self.tasks == task][0])
        return [
            f"{name}: different in {len(self.different)} of {len(self.tasks)} tasks; task {task} has "
            f"{self.record.correct[task]} right answers in the record, and {found} here."
        ]

    def row(self) -> dict[str, Any]:
        """Plain data for `--json`: tasks that differ have their number, the stored and the found right answers."""
        stored = self.record.correct
        found = dict(zip(self.tasks.tolist(), self.found.tolist(), strict=True))
        return {
            "record": self.record.signature,
            "state": self.state,
            "reason": self.reason,
            "features": self.features,
            "tasks": self.record.key.tasks,
            "checked": len(self.tasks),
            "different": [
                {"task": task, "stored": stored[task], "found": found[task]} for task in self.different.tolist()
            ],
        }


class Verifier:
    """Solves samples of records again. Features are read once for all records of the same ones that follow each other.

    Args:
        files: Where features are looked for, by their content.
        own: Methods that are not installed, as `path/to/file.py:CLASS`.
        sample: Tasks of a record that are solved again; None is all of them.
        seed: Random seed of the samples.
        images: Where methods on images find these, and their networks.
    """

    def __init__(
        self,
        files: Sequence[FeatureFile],
        own: Sequence[str],
        sample: int | None,
        seed: int,
        device: torch.device,
        reporter: Reporter,
        images: ImagePlaces,
    ) -> None:
        self.files, self.sample, self.device, self.reporter, self.images = files, sample, device, reporter, images
        self._own = {method_key(name): method_class(name) for name in own}
        self._rng = np.random.default_rng(seed)
        self._bases: dict[str, BaseStatistics | None] = {}
        self._split: tuple[str, Split] | None = None  # the last one, with its digest

    def count(self, record: RunRecord) -> int:
        """How many tasks of a record are to be solved."""
        return record.key.tasks if self.sample is None else min(self.sample, record.key.tasks)

    def verify(self, record: RunRecord, advance: Callable[[int], None] = lambda done: None) -> Verdict:
        """Solve a sample of a record's tasks again."""
        key, none = record.key, np.zeros(0, dtype=np.int64)
        try:
            kind, file = self._class(key), self._file(key.split, key.features_sha256, "features")
            base = self._base(key.base_sha256)
            name = kind.info.network_for(key.params)
            network = self.images.network(name, file) if name else None
            method = self._method(kind, key, network)
            split = self._read(file, key, network)
        except FsbenchError as error:
            advance(self.count(record))
            return Verdict(record, none, none, reason=error.message)
        chosen = np.sort(self._rng.permutation(key.tasks)[: self.count(record)])
        tasks = TaskList(TaskProtocol(**key.protocol), key.seed, key.tasks, chosen=chosen)
        outcome = solve_tasks(method, split, base, tasks, device=self.device, progress=advance)
        asked = np.array(record.queries, dtype=np.int64)[chosen]
        found = np.where(outcome.queries == asked, outcome.correct, -1)  # with other queries it is another task
        return Verdict(record, chosen, found, str(file.path))

    def _read(self, file: FeatureFile, key: RunKey, network: ImageNetwork | None) -> Split:
        """The features of a record, or for a method on images their pixels."""
        if self._split is None or self._split[0] != key.features_sha256:
            self._split = key.features_sha256, file.read(key.split, with_images=False)
        if network is None:
            return self._split[1]
        pixels: Any = self.images.pixels(file, key.split, network, self.reporter)
        return replace(self._split[1], features=pixels)

    def _class(self, key: RunKey) -> type[Method]:
        """The class of a record's method, of the very version."""
        name = key.method.partition("@")[0]
        found = self._own.get(key.method) or (None if ".py:" in key.method else installed_class(name))
        if found is None:
            known = any(one.partition("@")[0] == name for one in self._own)
            raise FsbenchError(
                f"its method {key.method} is of another version of that file"
                if known
                else f"its method {key.method} is not here: name it with --methods"
            )
        if key.method not in self._own and method_key(name) != key.method:
            raise FsbenchError(f"its method is {key.method}, and {method_key(name)} is installed")
        if found.info.version != key.method_version:
            raise FsbenchError(
                f"it is of version {key.method_version} of {name}, this fsbench has {found.info.version}"
            )
        return found

    def _method(self, kind: type[Method], key: RunKey, network: ImageNetwork | None) -> Method:
        """The method of a record, with the record's parameters."""
        name = key.method.partition("@")[0]
        params = {word: math.inf if value == "inf" else value for word, value in key.params.items()}
        if network is not None and (weights := params.pop("weights", network.name)) != network.name:
            raise FsbenchError(f"its weights are {weights}, and {network.name} are here")
        try:
            context = Context(balanced=False, network=network)
            method = kind(**params) if network is None else kind.configure(context, **params)
        except (TypeError, FsbenchError) as error:
            raise FsbenchError(f"its parameters are not those of {name} ({error})") from error
        if method.params() != key.params:
            raise FsbenchError(f"its parameters are not as {name} would record them")
        return method

    def _file(self, split: str, digest: str, what: str) -> FeatureFile:
        """The file whose split has this content."""
        for file in self.files:
            if split in file.splits and file.summary(split).digest == digest:
                return file
        raise FsbenchError(f"its {what} ({split} {digest[:8]}) are in none of the feature files")

    def _base(self, digest: str) -> BaseStatistics | None:
        if digest and digest not in self._bases:
            self._bases[digest] = base_of(self._file("base", digest, "base classes"), self.reporter)
        return self._bases[digest] if digest else None


def detectable_share(sample: int, confidence: float = 0.95) -> float:
    """The share of changed tasks of which a sample holds at least one with this probability."""
    return 1.0 - math.pow(1 - confidence, 1 / sample)
