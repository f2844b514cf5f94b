"""Arrays in memory as feature files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fsbench.data.catalog import SPLITS
from fsbench.errors import FsbenchError, UsageError
from fsbench.features.store import FeatureFile, Provenance, Split, make_split, write_features

Pair = tuple[Any, Any]  # features (M, D) and labels (M,), as arrays or tensors
Arrays = Pair | Mapping[str, Pair]  # of novel classes alone, or by split
_EXAMPLE = 'Give a feature file, or arrays: {"base": (features, labels), "novel": (features, labels)}.'


def is_arrays(value: object) -> bool:
    """Whether something is meant as features and labels in memory, right or wrong."""
    return isinstance(value, Mapping) or (isinstance(value, tuple) and len(value) == 2 and hasattr(value[0], "shape"))


@contextmanager
def opened(values: Any, argument: str) -> Iterator[list[FeatureFile]]:
    """Open the value of an argument: None, or one or a list of paths, open files, and arrays.

    Arrays lie in a file of a temporary folder meanwhile, so that everything works on them that works on files.
    """
    with TemporaryDirectory(prefix="fsbench-") as folder:
        files = []
        for number, one in enumerate(values if isinstance(values, list) else [] if values is None else [values]):
            if isinstance(one, FeatureFile):
                files.append(one)
            elif isinstance(one, str | Path):
                files.append(FeatureFile.open(one))
            elif is_arrays(one):
                path = Path(folder) / f"arrays{number or ''}.h5"
                write_features(path, Provenance("arrays", "memory"), _splits(one, argument))
                files.append(FeatureFile.open(path))
            else:
                raise UsageError(argument, f"expected a feature file, got {described(one)}", _EXAMPLE)
        yield files


def _splits(arrays: Arrays, argument: str) -> dict[str, Split]:
    pairs = arrays if isinstance(arrays, Mapping) else {"novel": arrays}
    for name in pairs:
        if name not in SPLITS:
            raise UsageError(argument, f"{name!r} is not a split; expected {', '.join(SPLITS)}", _EXAMPLE)
    if not pairs:
        raise UsageError(argument, "there are no arrays", _EXAMPLE)
    named = isinstance(arrays, Mapping)
    return {
        name: _split(pairs[name], f"{argument}[{name!r}]" if named else argument) for name in SPLITS if name in pairs
    }


def _split(pair: Any, argument: str) -> Split:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise UsageError(argument, f"expected (features, labels), got {described(pair)}", _EXAMPLE)
    try:
        return make_split(*(array.detach().cpu() if hasattr(array, "detach") else array for array in pair))
    except (FsbenchError, ValueError, TypeError) as error:
        problem = error.message if isinstance(error, FsbenchError) else str(error)
        raise UsageError(argument, problem.rstrip(".")) from error


def described(value: object) -> str:
    """A value in a few words: its shape, or its type."""
    shape = getattr(value, "shape", None)
    return f"an array of shape {tuple(shape)}" if shape is not None else f"a {type(value).__name__}"
