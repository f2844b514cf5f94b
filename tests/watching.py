"""What a function was called with, without changing what it does."""

from collections.abc import Callable
from typing import Any

import pytest


def watch(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, noted: Callable[..., Any]) -> list[Any]:
    """From now on, what `noted` gives for the arguments of every call of `place.name`."""
    original, calls = getattr(place, name), list[Any]()

    def watched(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        calls.append(noted(*arguments, **options))
        return result

    monkeypatch.setattr(place, name, watched)
    return calls
