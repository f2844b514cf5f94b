import numpy as np
import pytest

from fsbench.tasks.random import below, philox, uniform, words, words_at

# Known answers of Philox-4x32-10, as distributed with the Random123 library.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    c0, c1, c2, c3 = (np.array([word], dtype=np.uint64) for word in counter)
    drawn = philox((c0, c1, c2, c3), key[0] | key[1] << 32)
    assert tuple(int(word[0]) for word in drawn) == expected


def test_single_words_equal_those_drawn_together() -> None:
    tasks = np.array([0, 7, 2**40])
    together = words(2**63 + 5, tasks, stream=9, count=11)
    slots = np.array([10, 0, 6])
    np.testing.assert_array_equal(words_at(2**63 + 5, tasks, 9, slots), together[np.arange(3), slots])


def test_ranges() -> None:
    drawn = words(0, np.arange(2000), 0, 10)
    numbers = below(drawn, np.full(drawn.shape, 7))
    assert set(np.unique(numbers)) == set(range(7))
    values = uniform(np.array([0, 2**32 - 1], dtype=np.uint64))
    assert 0 < values[0] < values[1] < 1
