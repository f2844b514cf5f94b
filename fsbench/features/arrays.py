"""Arrays in memory, used wherever a feature file can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fsbench.data.catalog import SPLITS
from fsbench.errors import FsbenchError, UsageError
from fsbench.features.store import (
    FeatureFile,
    Provenance,
    Split,
    SplitSummary,
    content_digest,
    in_blocks,
    make_split,
    with_text,
)

# features (M, D) and labels (M,), as arrays or tensors; and text prototypes (C, D) of the classes
Pair = tuple[Any, Any] | tuple[Any, Any, Any]
Arrays = Pair | Mapping[str, Pair]  # of novel classes alone, or by split
_EXAMPLE = 'Give a feature file, or arrays: {"base": (features, labels), "novel": (features, labels)}.'


@dataclass(frozen=True, eq=False)
class FeaturesInMemory(FeatureFile):
    """Features and labels that are in no file."""

    in_memory: ClassVar[bool] = True

    held: Mapping[str, Split]

    def stream(self, name: str) -> Iterator[NDArray[np.float32]]:
        """One split in blocks of whole rows."""
        self.summary(name)
        return in_blocks(self.held[name].features)

    def images(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Arrays do not name their images."""
        return (), ()


def is_arrays(value: object) -> bool:
    """Whether something is meant as features and labels in memory, right or wrong."""
    return isinstance(value, Mapping) or (
        isinstance(value, tuple) and 1 < len(value) < 4 and hasattr(value[0], "shape")
    )


def opened(values: Any, argument: str) -> list[FeatureFile]:
    """Open the value of an argument: None, or one or a list of paths, open files, and arrays."""
    listed = values if isinstance(values, list) else [] if values is None else [values]
    return [_opened(one, f"arrays{number or ''}", argument) for number, one in enumerate(listed)]


def _opened(value: Any, name: str, argument: str) -> FeatureFile:
    if isinstance(value, FeatureFile):
        return value
    if isinstance(value, str | Path):
        return FeatureFile.open(value)
    if not is_arrays(value):
        raise UsageError(argument, f"expected a feature file, got {described(value)}", _EXAMPLE)
    pairs = value if isinstance(value, Mapping) else {"novel": value}
    for split in pairs or ("nothing",):
        if split not in SPLITS:
            raise UsageError(argument, f"{split!r} is not a split; expected {', '.join(SPLITS)}", _EXAMPLE)
    named = {split: f"{argument}[{split!r}]" if pairs is value else argument for split in SPLITS if split in pairs}
    held = {split: _split(pairs[split], place) for split, place in named.items()}
    if len({one.features.shape[1] for one in held.values()}) > 1:
        raise FsbenchError("All splits must have the same number of features.")
    summaries = {
        split: SplitSummary(
            len(x := one.features), x.shape[1], one.offsets, one.class_names, content_digest(one), one.text
        )
        for split, one in held.items()
    }
    return FeaturesInMemory(Path(name), Provenance("arrays", "memory"), summaries, held)


def _split(pair: Any, argument: str) -> Split:
    if not isinstance(pair, Sequence) or len(pair) not in (2, 3):
        raise UsageError(argument, f"expected (features, labels), got {described(pair)}", _EXAMPLE)
    try:
        features, labels, *text = (array.detach().cpu() if hasattr(array, "detach") else array for array in pair)
        split = make_split(features, labels)
        return with_text(split, text[0], "text") if text else split
    except (FsbenchError, ValueError, TypeError) as error:
        problem = error.message if isinstance(error, FsbenchError) else str(error)
        raise UsageError(argument, problem.rstrip(".")) from error


def described(value: object) -> str:
    """A value in a few words: its shape, or its type."""
    shape = getattr(value, "shape", None)
    return f"an array of shape {tuple(shape)}" if shape is not None else f"a {type(value).__name__}"
