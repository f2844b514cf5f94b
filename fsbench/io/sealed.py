"""JSON files with the SHA-256 of their own content, so that a damaged file is never taken for a result."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fsbench.errors import FsbenchError, system_trouble
from fsbench.io.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SEAL = "sha256"
T = TypeVar("T")


def write_sealed(path: Path, content: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write an object with its seal, whole or not at all."""
    separators = (",", ":") if indent is None else None
    sealed = {**content, _SEAL: _digest(content)}
    text = json.dumps(sealed, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    write_text(path, f"{text}\n")


def read_sealed(path: Path, kind: type[T], what: str, remedy: str) -> T:
    """Read an object of a type and compare it with its seal.

    Messages call the file a `what`, such as `record`, and end with the remedy.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise system_trouble(f"The {what} {path} cannot be read", error) from error
    try:
        content = json.loads(text)
        seal = content.pop(_SEAL, None)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # the second two: not an object
        raise FsbenchError(f"The {what} {path} is damaged: it is not JSON as fsbench writes it.", remedy) from error
    if seal != _digest(content):
        raise FsbenchError(f"The {what} {path} is not as it was written: its SHA-256 differs.", remedy)
    try:
        value: T = _adapter_of(kind).validate_python(content)  # type: ignore[arg-type]  # types are hashable
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise FsbenchError(f"The {what} {path} is damaged: {where}: {first['msg']}.", remedy) from error
    return value


@functools.cache
def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    """The validator of a type; made once, as that takes longer than a check."""
    return TypeAdapter(kind)


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
