"""Which split a file belongs to."""

from __future__ import annotations

import re
from pathlib import Path

from fsbench.data.catalog import SPLIT_ALIASES, canonical_split
from fsbench.errors import FsbenchError

_WORDS = {alias for aliases in SPLIT_ALIASES.values() for alias in aliases}


def split_of_word(word: str) -> str:
    """`base`, `val` or `novel` for one of the words in circulation."""
    return canonical_split(word)


def parse_source(text: str) -> tuple[str, Path]:
    """`novel=path` as split and path; without a split, the first is empty."""
    word, sign, path = text.partition("=")
    if not sign or Path(text).exists():
        return "", Path(text)
    if word.lower() not in _WORDS:
        raise FsbenchError(f"{word!r} in {text!r} is no split.", "Write base=FILE, val=FILE or novel=FILE.")
    return canonical_split(word), Path(path)


def split_in_name(path: Path) -> str:
    """The one split that the file's name, or else its folder's, speaks of; empty if there is none."""
    for words in (re.split(r"[^a-z]+", path.stem.lower()), [path.absolute().parent.name.lower()]):
        found = {canonical_split(word) for word in words if word in _WORDS}
        if len(found) == 1:
            return found.pop()
        if found:
            break
    return ""
