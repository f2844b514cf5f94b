"""Records made up for tests: as a run would leave them, without running anything."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fsbench.features.store import Provenance
from fsbench.methods.base import Learnable
from fsbench.methods.registry import method_class, method_names
from fsbench.results.record import Answers, MethodFacts, Origins, Record, Run, Tuning, record_path, save_record
from fsbench.tasks.protocol import TaskProtocol

CLASSES = 20  # of the split
TUNED = Tuning(how="grid", trials=50, tasks=500)
_PROTOCOL = ("name", "ways", "shots", "queries", "alpha", "present", "pooled", "unknown", "support")
_OF_RUN = {"features": "f" * 64, "base": "b" * 64, "split": "novel", "seed": 0, "version": 1}
_PROVENANCE = ("family", "weights", "weights_sha256", "crops")


def make_record(method: str = "ncm", right: float = 0.7, **changes: Any) -> Record:
    """A record whose tasks are answered with a given probability.

    Args:
        method: Name; facts of an installed method are its own.
        right: Probability of a right answer.
        changes: Fields of the protocol, the run, the facts of the method, its origins, the provenance or the record;
            `draw` is the seed of the answers, `tasks` their number, `correct` the right answers of every task,
            `base_dataset` the data set of base classes of another file, and `given` names of parameters.
    """

    def taken(names: Any) -> dict[str, Any]:
        return {name: changes.pop(name) for name in names if name in changes}

    rules = TaskProtocol(**taken(_PROTOCOL))
    run = Run(method=method, protocol=rules, **{"params": {}, **_OF_RUN, **taken((*_OF_RUN, "params"))})
    numbers = {"tasks": 40, "correct": None, "draw": 0, **taken(("tasks", "correct", "draw"))}
    answers = make_answers(run, right, **numbers)
    made = Provenance(changes.pop("dataset", "glyphs"), changes.pop("backbone", "rn12"), **taken(_PROVENANCE))
    base = Provenance(changes.pop("base_dataset"), made.backbone) if "base_dataset" in changes else None
    params: dict[str, Any] = dict.fromkeys(changes.pop("given", ()), "given")
    origins = {"params": params, "variant": _variant(method), **taken(Origins.model_fields)}
    if "origins" in changes:
        origins = changes.pop("origins").model_dump()
    facts = _facts(run, bool(params)) | taken(MethodFacts.model_fields)
    fields: dict[str, Any] = {
        "asked": (f"fsbench solve features/{made.dataset}.h5", ""),
        "class_names": tuple(f"class{number:02d}" for number in range(max(CLASSES, int(rules.ways)))),
        "seconds": 0.5,
        "peak_memory": 3 * 2**20,
        "device": "cpu:1 thread",
        "created": "2026-11-16T10:00:00+00:00",
        "versions": {"fsbench": "0.1.0", "torch": "2.15.0", "python": "3.11.7"},
        **changes,
    }
    fields |= {"provenance": made, "base_provenance": base}
    record = Record(run=run, method=MethodFacts(**facts), origins=Origins(**origins), **fields)
    return record.model_copy(update={"answers": answers})


def make_answers(run: Run, right: float, *, tasks: int, correct: ArrayLike | None = None, draw: int = 0) -> Answers:
    """Answers to tasks that are the same for all methods; each right with a given probability, or so many of a task."""
    rules, ways, queries = run.protocol, int(run.protocol.ways), int(run.protocol.queries)
    drawn = np.random.default_rng([run.seed, rules.shots, rules.alpha is None])
    labels = drawn.integers(ways, size=(tasks, queries))
    scores = np.random.default_rng(run.seed).random((tasks, max(CLASSES, ways)))
    classes = np.argsort(scores, axis=1)[:, :ways]
    rng = np.random.default_rng([draw, rules.shots, rules.alpha is None, *run.method.encode()])
    is_right = rng.random(labels.shape) < right
    if correct is not None:
        is_right = np.arange(queries) < np.asarray(correct)[:, None]
    predicted = np.where(is_right, labels, (labels + 1) % ways)
    confidence = rng.uniform(1 / ways, 1, size=labels.shape)
    small = np.min_scalar_type(-classes.max() - 1)
    return Answers(predicted.astype(small), labels.astype(small), confidence.astype(np.float16), classes.astype(small))


@cache
def _known() -> list[str]:
    return method_names()


def _variant(method: str) -> str:
    variants = method_class(method).info.variants if method in _known() else None
    return variants.parameter if variants else ""


def _facts(run: Run, given: bool) -> dict[str, Any]:
    """What a run would know of its method."""
    name, names = run.method.partition("@")[0].rpartition(":")[2], _known()
    if run.method not in names:
        return {"label": name, "title": name, "order": len(names)}
    info = method_class(name).info
    params = {**method_class(name)().params(), **run.params}
    word = params.get(info.variants.parameter, "") if given and info.variants else ""
    return {
        "label": f"{name}:{word}" if info.variants and word not in ("", info.variants.values[0]) else name,
        "title": info.title,
        "assumes": info.assumes(params, run.protocol.alpha),
        "order": names.index(name),
        "starts_from": info.starts_from,
        "learns": issubclass(method_class(name), Learnable),
        "published_as": tuple(
            published
            for published, needed in info.published.items()
            if all(params[key] in values for key, values in needed.items())
        ),
    }


def store(folder: Path, *records: Record) -> list[Path]:
    """Write records as a run does; their paths."""
    paths = [record_path(folder, record) for record in records]
    for path, record in zip(paths, records, strict=True):
        save_record(path, record)
    return paths


def four_settings(method: str, right: float, **changes: Any) -> list[Record]:
    """The same method unbalanced and balanced, with one and five shots."""
    settings = [(alpha, shots) for alpha in (2.0, None) for shots in (1, 5)]
    return [make_record(method, right + 0.02 * shots, shots=shots, alpha=a, **changes) for a, shots in settings]
