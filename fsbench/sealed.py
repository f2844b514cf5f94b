"""JSON files that know the SHA-256 of their own content, so that damage is never taken for a result."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError, system_trouble
from fsbench.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SEAL = "sha256"


def write_sealed(path: Path, content: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write an object with its seal, whole or not at all."""
    separators = (",", ":") if indent is None else None
    sealed = {**content, SEAL: _digest(content)}
    write_text(
        path, json.dumps(sealed, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False) + "\n"
    )


def read_sealed(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """Read an object, without its seal; files from before there were seals have none.

    Args:
        path: The file.
        what: It should be, for messages: `record`.
        remedy: What to do about a damaged one.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise system_trouble(f"The {what} {path} cannot be read", error) from error
    except (ValueError, RecursionError) as error:
        raise FsbenchError(f"The {what} {path} is damaged: it is no JSON.", remedy) from error
    if not isinstance(content, dict):
        raise FsbenchError(f"The {what} {path} is damaged: it is no JSON object.", remedy)
    seal = content.pop(SEAL, None)
    if seal is not None and seal != _digest(content):
        raise FsbenchError(f"The {what} {path} is not what was written: its SHA-256 differs.", remedy)
    return content


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
