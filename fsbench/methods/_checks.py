"""Checks of parameters that several methods share."""

from __future__ import annotations

import math

from fsbench.errors import FsbenchError

_LARGEST_COUNT = 10**6


def require_count(**values: int) -> None:
    """Refuse parameters that are not whole numbers of at least 1, or that would not come to an end."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_COUNT:
            raise FsbenchError(f"{name} must be a whole number from 1 to {_LARGEST_COUNT:,}, got {value!r}.")


def require_amount(**values: float) -> None:
    """Refuse parameters that are not finite positive numbers."""
    for name, value in values.items():
        if not _is_number(value) or value <= 0:
            raise FsbenchError(f"{name} must be a positive number, got {value!r}.")


def require_weight(**values: float) -> None:
    """Refuse parameters that are not finite numbers of at least 0."""
    for name, value in values.items():
        if not _is_number(value) or value < 0:
            raise FsbenchError(f"{name} must be a number of at least 0, got {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
