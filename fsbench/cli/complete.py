"""Names that the shell completes; `fast_completion` is what makes that fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbench.backbones import families
from fsbench.data.catalog import SPLITS, dataset_names
from fsbench.methods.registry import installed_info, method_names
from fsbench.tasks.protocol import PROTOCOL_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BACKBONES = (*families.BACKBONES, families.TIMM)
NAMED_BACKBONES = ", ".join(families.BACKBONES)  # for help texts


def methods(incomplete: str) -> list[str]:
    """Methods, one or several with commas between them; their variants once there is a colon."""
    name, colon, _ = incomplete.rpartition(",")[2].partition(":")
    known = installed_info(name) if colon else None
    if known and known.variants:
        return _in_a_list([f"{name}:{word}" for word in known.variants.values], incomplete)
    return _in_a_list([*method_names(), "all"], incomplete)


def datasets(incomplete: str) -> list[str]:
    """Data sets of the catalog, one or several with commas between them."""
    return _in_a_list(dataset_names(), incomplete)


def words(*known: str) -> Callable[[str], list[str]]:
    """A completion of fixed words."""

    def complete(incomplete: str) -> list[str]:
        return _in_a_list(known, incomplete)

    return complete


splits = words(*SPLITS)
protocols = words(*PROTOCOL_NAMES)
settings = words("unbalanced", "balanced")
formats = words("rich", "markdown", "latex", "csv", "json")


def _in_a_list(names: Iterable[str], incomplete: str) -> list[str]:
    """Names that continue the last part of a list; those before the last comma are kept, and not offered again."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [before + comma + name for name in names if name.startswith(last) and name not in taken]
