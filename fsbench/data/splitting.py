"""Dividing classes into base, val and novel: by a file, by text lists, or by fractions."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

from fsbench.data.catalog import SPLITS, canonical_split
from fsbench.data.csv_layout import read_csv
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_HEADERS = {"split", "set", "subset", "partition", "part"}
_JSON_EXAMPLE = '{"base": ["cat", "dog"], "val": ["cow"], "novel": ["hen"]}'


def read_split_file(path: Path) -> dict[str, str]:
    """Read the split of each class from a json or csv file.

    The json maps splits to lists of classes; the csv has rows ``class,split``. ``train``, ``validation``,
    ``test`` and the like stand for base, val and novel.

    Raises:
        FsbenchError: The file cannot be read, or puts a class into two splits.
    """
    return _by_class(_pairs_of_json(path) if path.suffix.lower() == ".json" else _pairs_of_csv(path), str(path))


def read_split_lists(files: Mapping[str, Path]) -> dict[str, str]:
    """Read the split of each class from text files with one class per line, one file per split."""
    pairs: list[tuple[str, str]] = []
    for split, path in files.items():
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise FsbenchError(f"Could not read {path}: {error}", "Copy the file again.") from error
        pairs.extend((line.strip(), split) for line in lines if line.strip())
    return _by_class(pairs, " and ".join(str(path) for path in files.values()))


def parse_fractions(text: str) -> tuple[float, float, float]:
    """Read the shares of base, val and novel classes from text such as ``0.64,0.16,0.20``.

    Raises:
        FsbenchError: They are not three shares that add up to 1.
    """
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != 3 or not all(share >= 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise FsbenchError(
            f"Expected three shares of base, val and novel classes that add up to 1, found {text!r}.",
            "Write for example 0.64,0.16,0.20; a share may be 0.",
        )
    return shares[0], shares[1], shares[2]


def split_by_fractions(classes: Iterable[str], fractions: Sequence[float], seed: int) -> dict[str, str]:
    """Divide classes at random, the same way on every machine.

    Classes are drawn in the order of the sha256 of the seed and their name. The numbers of classes are
    rounded by largest remainder, the earlier split first.

    Raises:
        FsbenchError: A split with a share above 0 would stay empty.
    """
    names = sorted(set(classes))
    drawn = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode(errors="surrogatepass")).digest())
    # Shares such as 0.16 have no exact binary value: round before cutting off.
    quotas = [round(len(names) * fraction, 9) for fraction in fractions]
    counts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: len(names) - sum(counts)]:
        counts[i] += 1
    for split, fraction, count in zip(SPLITS, fractions, counts, strict=True):
        if fraction > 0 and count == 0:
            raise FsbenchError(
                f"The share {fraction:g} of {len(names)} classes leaves none for the split {split}.",
                "Give it a larger share, or 0.",
            )
    order = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(drawn, order, strict=True))


def as_folders(split_of: Mapping[str, str], folders: Iterable[str]) -> dict[str, str]:
    """The split of each class, by the names of the folders.

    A letter such as ö can be one character or two; systems and editors differ in which they write.
    """
    present = set(folders)
    composed = {unicodedata.normalize("NFC", name): name for name in present}
    called = {
        name: name if name in present else composed.get(unicodedata.normalize("NFC", name), name) for name in split_of
    }
    return _by_class([(called[name], split) for name, split in split_of.items()], "the list of classes")


def _pairs_of_json(path: Path) -> list[tuple[str, str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_without_repetition)
    except (OSError, ValueError, RecursionError) as error:  # numbers may be too long, too
        raise FsbenchError(f"Could not read {path} as json: {error}", f"Write {_JSON_EXAMPLE}.") from error
    lists = content if isinstance(content, dict) else {}
    plain = all(isinstance(names, list) and all(isinstance(x, str) for x in names) for names in lists.values())
    if not lists or not plain:
        raise FsbenchError(f"Expected lists of class names per split in {path}.", f"Write {_JSON_EXAMPLE}.")
    return [(name, _split_named(split, str(path))) for split, names in lists.items() for name in names]


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of json; Python alone would keep the last of two entries of the same name."""
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise ValueError(f"{name!r} stands there twice.")
    return dict(pairs)


def _pairs_of_csv(path: Path) -> list[tuple[str, str]]:
    pairs = []
    for position, (line, cells) in enumerate(read_csv(path)):
        if len(cells) != 2:
            raise FsbenchError(
                f"Expected the two columns class,split, found {len(cells)} in line {line} of {path}.",
                "Write one class per line, for example `cat,base`.",
            )
        if position > 0 or cells[1].lower() not in _HEADERS:
            pairs.append((cells[0], _split_named(cells[1], f"line {line} of {path}")))
    return pairs


def _split_named(text: str, where: str) -> str:
    try:
        return canonical_split(text)
    except FsbenchError as error:
        raise FsbenchError(f"{error.message} It stands in {where}.", error.hint) from error


def _by_class(pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    split_of: dict[str, str] = {}
    for name, split in pairs:
        if split_of.setdefault(name, split) != split:
            raise FsbenchError(
                f"The class {name!r} is both {split_of[name]} and {split} in {where}.",
                "Base, val and novel classes must differ. Remove one of the two entries.",
            )
    if not split_of:
        raise FsbenchError(f"Expected classes, found none in {where}.", f"Write {_JSON_EXAMPLE}.")
    return split_of
