"""JSON files that know the SHA-256 of their own content, so that damage is never taken for a result."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fsbench.errors import FsbenchError, system_trouble
from fsbench.io.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SEAL = "sha256"
_LARGEST = 10**20  # above all seeds
_DEEPEST = 32
T = TypeVar("T")


def write_sealed(path: Path, content: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write an object with its seal, whole or not at all."""
    separators = (",", ":") if indent is None else None
    sealed = {**content, _SEAL: _digest(content)}
    text = json.dumps(sealed, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    write_text(path, f"{text}\n")


def read_sealed(path: Path, kind: type[T], what: str, remedy: str) -> T:
    """Read and check an object of a type; files from before there were seals have none.

    Messages call the file a `what`, such as `record`, and tell the remedy.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise system_trouble(f"The {what} {path} cannot be read", error) from error
    try:
        content = json.loads(text, parse_float=_finite, parse_constant=_finite)
        _refuse_extremes([content])
    except (ValueError, RecursionError) as error:
        raise FsbenchError(f"The {what} {path} is damaged: it is not JSON as fsbench writes it.", remedy) from error
    if not isinstance(content, dict):
        raise FsbenchError(f"The {what} {path} is damaged: it is not a JSON object.", remedy)
    seal = content.pop(_SEAL, None)
    if seal is not None and seal != _digest(content):
        raise FsbenchError(f"The {what} {path} is not as it was written: its SHA-256 differs.", remedy)
    try:
        checked: T = adapter_of(kind).validate_python(content)  # type: ignore[arg-type]  # types are hashable
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise FsbenchError(f"The {what} {path} is damaged: {where}: {first['msg']}.", remedy) from error
    return checked


@functools.cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """What checks values of a type; made once, as that takes longer than a check."""
    return TypeAdapter(kind)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def _refuse_extremes(content: str | dict[str, Any] | list[Any], depth: int = 0) -> None:
    """Refuse texts that no file can hold, huge numbers, and objects that are nested too deeply."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(content, str):
        content.encode()  # fails on half a character, which JSON can write as an escape
        return
    parts = [*content, *content.values()] if isinstance(content, dict) else content
    alike = {*map(type, parts)} == {int}  # the long lists of a record are
    numbers = parts if alike else [part for part in parts if isinstance(part, int)]
    if numbers and not -_LARGEST < min(numbers) <= max(numbers) < _LARGEST:
        raise ValueError("a number too large")
    for part in () if alike else parts:
        if isinstance(part, str | dict | list):
            _refuse_extremes(part, depth + 1)


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
