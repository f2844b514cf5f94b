"""Damage of every kind to the bytes of a file, the same for the same seed."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"99999999999999999999", b"1.5", b"null", b'"x"', b"[]", b"{}", b"true")
WORDS = (b"\x00", b"\x1b[2J", b"\xff\xfe", b"../../", b"\n", b'"', b"\\u0000", b"\\ud800", b"[" * 2000, b"," * 200)
SIZES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 50, (1 << 63) - 1, (1 << 64) - 1)


def mutate(content: bytes, rng: Random) -> bytes:
    """Damage a file in one to three ways."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(WAYS)(content, rng)
    return content


def _flip(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _head(content: bytes, rng: Random) -> bytes:
    """Headers and indices stand at the beginning, and are short beside the data."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4) if changed else 0):
        changed[rng.randrange(min(len(changed), 1024))] = rng.randrange(256)
    return bytes(changed)


def _truncate(content: bytes, rng: Random) -> bytes:
    return content[: rng.randint(0, len(content))]


def _size(content: bytes, rng: Random) -> bytes:
    """A number of a header becomes a petabyte, or nothing."""
    width, order = rng.choice("HIQ"), rng.choice("<>")
    number = struct.pack(order + width, rng.choice(SIZES) & ((1 << (8 * struct.calcsize(width))) - 1))
    place = rng.randint(0, max(0, min(len(content), rng.choice((512, len(content)))) - len(number)))
    return content[:place] + number + content[place + len(number) :]


def _repeat(content: bytes, rng: Random) -> bytes:
    start = rng.randint(0, len(content))
    stop = min(len(content), start + rng.choice((1, 8, 64, 512)))
    return content[:stop] + content[start:stop] * rng.randint(1, 3) + content[stop:]


def _drop(content: bytes, rng: Random) -> bytes:
    start = rng.randint(0, len(content))
    return content[:start] + content[start + rng.choice((1, 2, 16, 256)) :]


def _zero(content: bytes, rng: Random) -> bytes:
    start = rng.randint(0, len(content))
    stop = min(len(content), start + rng.choice((4, 64, 1024)))
    return content[:start] + bytes(stop - start) + content[stop:]


def _word(content: bytes, rng: Random) -> bytes:
    place = rng.randint(0, len(content))
    return content[:place] + rng.choice(WORDS) + content[place:]


def _number(content: bytes, rng: Random) -> bytes:
    """A number in a text becomes another thing."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:20_000]))
    if not found:
        return _flip(content, rng)
    place = rng.choice(found)
    return content[: place.start()] + rng.choice(NUMBERS) + content[place.end() :]


WAYS = (_flip, _head, _truncate, _size, _repeat, _drop, _zero, _word, _number)
