"""The size of content whose parts are shared: written out, a few bytes may be more than any memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from fsbench.exchange.found import Opened

MANY = 1 << 60  # where counting ends


def check_unfolded(opened: Opened) -> None:
    """Refuse content that holds itself, or has more items than the file has bytes.

    Layouts go through all items, however often a dict or a list occurs; an item that is not shared takes a byte.
    """
    items = _items(opened.content, {})
    if items > opened.room:
        raise FsbenchError(
            f"{opened.path} claims {items} values, more than a file of its size can hold.",
            "The file is damaged or not what it claims to be.",
        )


def _items(value: object, done: dict[int, int | None]) -> int:
    if not isinstance(value, Mapping | list):
        return 1
    if id(value) not in done:
        done[id(value)] = None
        parts = value.values() if isinstance(value, Mapping) else value
        done[id(value)] = min(MANY, 1 + sum(_items(part, done) for part in parts))
    found = done[id(value)]
    if found is None:
        raise FsbenchError("Its content holds itself.")
    return found
