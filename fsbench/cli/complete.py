"""Names that the shell completes. Nothing heavy is imported for them, but for the variants of a method."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

from fsbench.backbones import families
from fsbench.data.catalog import SPLITS, dataset_names
from fsbench.methods.registry import installed_class, method_names
from fsbench.tasks.protocol import PROTOCOL_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BACKBONES = (*families.BACKBONES, families.TIMM)
NAMED_BACKBONES = ", ".join(families.BACKBONES)  # for help texts


def methods(incomplete: str) -> list[str]:
    """Methods, one or several with commas between them; their variants once there is a colon."""
    name, colon, _ = incomplete.rpartition(",")[2].partition(":")
    known = installed_class(name) if colon else None  # which loads the method, and torch with it
    if known and known.info.variants:
        return _in_a_list([f"{name}:{word}" for word in known.info.variants.values], incomplete)
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


@contextlib.contextmanager
def colons_within_words() -> Iterator[None]:
    """Let bash complete words with a colon in them, which it passes and replaces in parts: `bavardage`, `:`, `rel`."""
    if os.environ.get("_FSBENCH_COMPLETE") != "complete_bash":
        yield
        return
    current = int(os.environ["COMP_CWORD"])
    words: list[str] = []
    for place, word in enumerate(os.environ["COMP_WORDS"].split("\n")[: current + 1]):
        if place > 1 and (word == ":" or words[-1].endswith(":")):
            words[-1] += word
        else:
            words.append(word)
    joined = len(words) <= current
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        lines = printed.getvalue().splitlines(keepends=True)
        sys.stdout.writelines(line.rpartition(":")[2] if joined else line for line in lines)


def _in_a_list(names: Iterable[str], incomplete: str) -> list[str]:
    """Names that continue the last part of a list; those before the last comma are kept, and not offered again."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [before + comma + name for name in names if name.startswith(last) and name not in taken]
