"""Arrays in memory as feature files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fsbench.data.catalog import SPLITS
from fsbench.errors import FsbenchError, UsageError
from fsbench.features.store import FeatureFile, Provenance, Split, make_split, write_features

Pair = tuple[Any, Any]  # features (M, D) and labels (M,), as arrays or tensors
Arrays = Pair | Mapping[str, Pair]  # of novel classes alone, or by split
_EXAMPLE = 'Give a feature file, or arrays: {"base": (features, labels), "novel": (features, labels)}.'


def is_arrays(given: object) -> bool:
    """Whether something is meant as features and labels in memory, right or wrong."""
    return isinstance(given, Mapping) or (isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "shape"))


@contextmanager
def opened(given: Any, argument: str) -> Iterator[list[FeatureFile]]:
    """Open what was given for an argument: None, or one or a list of paths, open files, and arrays.

    Arrays lie in a file of a temporary folder meanwhile, so that everything works on them that works on files.
    """
    with TemporaryDirectory(prefix="fsbench-") as folder:
        files = []
        for number, one in enumerate(given if isinstance(given, list) else [] if given is None else [given]):
            if isinstance(one, FeatureFile):
                files.append(one)
            elif isinstance(one, str | Path):
                files.append(FeatureFile.open(one))
            elif is_arrays(one):
                files.append(_written(Path(folder) / f"arrays{number or ''}.h5", one, argument))
            else:
                raise UsageError(argument, f"expected a feature file, got {described(one)}", _EXAMPLE)
        yield files


def _written(path: Path, given: Arrays, argument: str) -> FeatureFile:
    pairs = given if isinstance(given, Mapping) else {"novel": given}
    splits = {}
    for name, pair in pairs.items():
        if name not in SPLITS:
            raise UsageError(argument, f"{name!r} is not a split; expected {', '.join(SPLITS)}", _EXAMPLE)
        splits[name] = _split(pair, f"{argument}[{name!r}]" if isinstance(given, Mapping) else argument)
    if not splits:
        raise UsageError(argument, "there are no arrays", _EXAMPLE)
    write_features(path, Provenance("arrays", "memory"), {name: splits[name] for name in SPLITS if name in splits})
    return FeatureFile.open(path)


def _split(pair: Any, argument: str) -> Split:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise UsageError(argument, f"expected (features, labels), got {described(pair)}", _EXAMPLE)
    try:
        features, labels = (np.asarray(array.detach().cpu() if hasattr(array, "detach") else array) for array in pair)
        return make_split(features, labels)
    except (FsbenchError, ValueError, TypeError) as error:
        problem = error.message if isinstance(error, FsbenchError) else str(error)
        raise UsageError(argument, problem.rstrip(".")) from error


def described(given: object) -> str:
    """What was given, in a few words: its shape, or its type."""
    shape = getattr(given, "shape", None)
    return f"an array of shape {tuple(shape)}" if shape is not None else f"a {type(given).__name__}"
