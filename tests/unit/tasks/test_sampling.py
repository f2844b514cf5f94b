import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.random import apportion, below, philox, uniform, words, words_at
from fsbench.tasks.sampling import TaskRows, feasible_queries, feasible_sizes, sample_tasks

SIZES = np.array([30, 48, 31, 60, 44, 52, 39])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])


def class_of(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(OFFSETS, rows, side="right") - 1


def counts_of(drawn: TaskRows) -> NDArray[np.int64]:
    ways = drawn.classes.shape[1]
    return (drawn.query_labels[:, :, None] == np.arange(ways)).sum(axis=1)


def rounding_of_the_repositories(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """The routine in circulation: round half to even, then repair the coordinate nearest to .5 until the sum fits."""
    values = shares * total
    while np.round(values).sum() != total:
        distance = np.abs(values - np.floor(values) - 0.5)
        distance[values == np.floor(values)] = 0.5
        k = int(np.argmin(distance))
        values[k] = np.floor(values[k]) if np.round(values).sum() > total else np.ceil(values[k])
    return np.round(values).astype(np.int64)


@given(st.integers(2, 12), st.floats(0.2, 8.0), st.integers(1, 200), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_apportionment_is_the_rounding_of_the_repositories(ways: int, alpha: float, total: int, seed: int) -> None:
    shares = np.random.default_rng(seed).dirichlet(np.full(ways, alpha), size=5)
    counts = apportion(shares, total)
    assert (counts.sum(axis=1) == total).all()
    for row, share in zip(counts, shares, strict=True):
        np.testing.assert_array_equal(row, rounding_of_the_repositories(share, total))


@pytest.mark.parametrize("alpha", [None, 2.0, 0.3])
def test_disjoint_tasks_have_the_proportions_asked_for(alpha: float | None) -> None:
    drawn = sample_tasks(TaskProtocol(ways=4, shots=3, queries=31, alpha=alpha), OFFSETS, 5, np.arange(400))
    assert drawn.support.shape == (400, 12)
    assert drawn.query.shape == (400, 31)
    counts = counts_of(drawn)
    if alpha is None:
        assert set(np.unique(counts)) == {7, 8}
    else:
        assert (counts.sum(axis=1) == 31).all()
        assert counts.max() > 14


def test_a_task_depends_on_protocol_seed_and_index_alone() -> None:
    protocol = TaskProtocol(ways=5, shots=5, queries=75)  # small classes: counts and images are redrawn often
    together = sample_tasks(protocol, OFFSETS, 1, np.arange(300))
    for part in (np.array([17]), np.arange(100, 250), np.array([299, 3, 88])):
        alone = sample_tasks(protocol, OFFSETS, 1, part)
        for name in ("classes", "support", "query", "query_labels"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(together, name)[part])
    other_seed = sample_tasks(protocol, OFFSETS, 2, np.arange(300))
    assert (other_seed.classes != together.classes).any()


def test_the_task_list_is_pinned() -> None:
    drawn = sample_tasks(TaskProtocol(), np.arange(21) * 600, 0, np.arange(200))
    here = hashlib.sha256(np.concatenate([drawn.support, drawn.query], axis=1).tobytes()).hexdigest()
    # Changing this digest changes every published task list: raise TaskProtocol.version together with it.
    assert here == "8d523e93024c6d13c1460b3d9287483908e81e7ff08b188f7ff0e39503825230"


def test_proportions_follow_the_dirichlet_law() -> None:
    """Means, largest class and empty classes as known for K = 5, α = 2, Q = 75."""
    drawn = sample_tasks(TaskProtocol(), np.arange(21) * 600, 0, np.arange(20_000))
    counts = counts_of(drawn)
    assert abs(counts.mean() - 15) < 1e-9
    assert abs(counts.max(axis=1).mean() - 28.6) < 0.2
    assert abs((counts == 0).any(axis=1).mean() - 0.007) < 0.003
    reference = np.random.default_rng(0).dirichlet([2.0] * 5, size=20_000)
    assert stats.ks_2samp(counts[:, 0] / 75, apportion(reference, 75)[:, 0] / 75).pvalue > 1e-3


def test_classes_and_images_are_drawn_uniformly() -> None:
    offsets = np.arange(7) * 9
    drawn = sample_tasks(TaskProtocol(ways=3, shots=2, queries=15, alpha=None), offsets, 0, np.arange(6000))
    for position in range(3):
        assert stats.chisquare(np.bincount(drawn.classes[:, position], minlength=6)).pvalue > 1e-4
    assert stats.chisquare(np.bincount(drawn.support.ravel(), minlength=54)).pvalue > 1e-4
    assert stats.chisquare(np.bincount(drawn.query.ravel(), minlength=54)).pvalue > 1e-4
    # Ordered pairs of distinct support images of one class: 9 · 8 equally likely ones.
    pairs = drawn.support[:, [0, 3]] % 9
    table = np.bincount(pairs[:, 0] * 9 + pairs[:, 1], minlength=81).reshape(9, 9)
    assert table.diagonal().sum() == 0
    assert stats.chisquare(table[~np.eye(9, dtype=bool)]).pvalue > 1e-4


def test_queries_are_not_grouped_by_class() -> None:
    labels = sample_tasks(TaskProtocol(), OFFSETS * 10, 0, np.arange(2000)).query_labels
    position = np.arange(75) - 37
    correlation = (labels * position).mean() / (labels.std() * position.std())
    assert abs(correlation) < 0.01


def test_released_uses_the_first_images_of_each_class_and_refuses_equality() -> None:
    drawn = sample_tasks(TaskProtocol("released", 4, 2, 40), OFFSETS, 0, np.arange(2000))
    within = drawn.query - OFFSETS[class_of(drawn.query)]
    assert within.max() == SIZES.min() - 1
    assert (drawn.support - OFFSETS[class_of(drawn.support)]).max() == SIZES.min() - 1
    assert counts_of(drawn).max() == SIZES.min() - 2 - 1
    assert counts_of(sample_tasks(TaskProtocol("disjoint", 4, 2, 40), OFFSETS, 0, np.arange(2000))).max() > 28


def test_veilleux_overlaps_and_shortens() -> None:
    drawn = sample_tasks(TaskProtocol("veilleux", 5, 5, 75, 1.0), OFFSETS, 0, np.arange(3000))
    overlap = (drawn.support[:, :, None] == drawn.query[:, None, :]).any(axis=1)
    present = drawn.query_labels >= 0
    chance = (5 / SIZES[drawn.classes]).mean()
    assert abs(overlap.sum() / present.sum() - chance) < 0.01
    short = present.sum(axis=1)
    assert short.min() < 75
    assert short.max() == 75
    assert ((drawn.query < 0) == ~present).all()
    for b in np.flatnonzero(short < 75)[:20]:
        assert (counts_of(drawn)[b] == SIZES[drawn.classes[b]]).any()
        assert len(set(drawn.query[b][present[b]])) == short[b]


KEFF = {
    "by image": TaskProtocol("keff", ways="all", shots=3, alpha=None, present=4, pooled=True),
    "balanced": TaskProtocol("keff", ways="all", shots=3, alpha=None, present=4),
    "dirichlet": TaskProtocol("keff", ways=6, shots=3, present=4),
}


@pytest.mark.parametrize("protocol", KEFF.values(), ids=KEFF)
def test_keff_has_many_classes_in_the_support_and_few_among_the_queries(protocol: TaskProtocol) -> None:
    drawn = sample_tasks(protocol, OFFSETS, 5, np.arange(600))
    ways = len(SIZES) if protocol.ways == "all" else int(protocol.ways)
    assert drawn.classes.shape == (600, ways)
    assert drawn.support.shape == (600, 3 * ways)
    counts = counts_of(drawn)
    assert (counts.sum(axis=1) == 75).all()
    held = (counts > 0).sum(axis=1)
    assert held.max() == 4
    if protocol.alpha is None:
        assert held.min() == 4
    if protocol.equal:
        assert set(np.unique(counts)) == {0, 18, 19}
    for b in range(50):
        assert len({*drawn.support[b], *drawn.query[b]}) == 3 * ways + 75
        np.testing.assert_array_equal(class_of(drawn.query[b]), drawn.classes[b][drawn.query_labels[b]])
    every_label = (counts > 0).mean(axis=0)  # no label is favoured
    assert abs(every_label - every_label.mean()).max() < 0.08
    alone = sample_tasks(protocol, OFFSETS, 5, np.array([411, 7]))
    np.testing.assert_array_equal(alone.query, drawn.query[[411, 7]])


def test_queries_by_image_are_a_draw_from_the_union_of_the_classes() -> None:
    protocol = TaskProtocol("keff-released", ways="all", alpha=None, queries=30, present=2, pooled=True)
    drawn = sample_tasks(protocol, np.array([0, 40, 200]), 0, np.arange(4000))
    large = np.where(drawn.classes[:, 0] == 1, 0, 1)
    share = np.take_along_axis(counts_of(drawn), large[:, None], axis=1)[:, 0]
    assert abs(share.mean() - 30 * 160 / 200) < 0.1
    assert abs(share.var() - stats.hypergeom(200, 160, 30).var()) < 0.3
    overlap = (drawn.support[:, :, None] == drawn.query[:, None, :]).any()
    assert overlap
    apart = TaskProtocol("keff", "all", 5, 30, None, 1, 2, True)
    together = sample_tasks(apart, np.array([0, 40, 200]), 0, np.arange(99))
    assert not (together.support[:, :, None] == together.query[:, None, :]).any()


def test_the_task_list_of_keff_is_pinned() -> None:
    digest = hashlib.sha256()
    for protocol in KEFF.values():
        drawn = sample_tasks(protocol, OFFSETS, 0, np.arange(200))
        digest.update(np.concatenate([drawn.support, drawn.query], axis=1).tobytes())
    assert replace(KEFF["by image"], ways=7).signature() == "keff:1|7w3s75q|keff:4|images"
    assert digest.hexdigest() == "4ba3a18153c50b4890b10aa4dbe643fbf3c14b7acf836aeb8c76960537ace101"


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (TaskProtocol("keff", ways="all", present=8), "must be 1 to 7, got 8"),
        (TaskProtocol("keff", "all", 1, 70, None, present=2, pooled=True), "2 smallest classes have only 59"),
        (TaskProtocol(unknown=3), "5 ways and 3 unknown classes asked for, but the split has 7 classes"),
        (TaskProtocol("all-way", "all", 30, "all", None), "31 images of every class (30 support + 1 queries)"),
        (TaskProtocol(ways=8), "8 ways asked for, but the split has 7 classes"),
        (TaskProtocol(ways=7, shots=20, alpha=None), "31 images of every class (20 support + 11 queries), but the"),
        (TaskProtocol(shots=45), "smallest class has 30"),  # three classes are too small, and five needed
        (TaskProtocol(queries=300), "300 queries asked for, but the 5 smallest classes have only 187"),
        (TaskProtocol(ways=7, queries=int(SIZES.sum()) - 7, alpha=0.1), "Hardly any class proportions fit"),
    ],
)
def test_impossible_requests_are_refused_with_the_numbers(protocol: TaskProtocol, words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        sample_tasks(protocol, OFFSETS, 0, np.arange(3))
    assert words in str(caught.value)


def test_senseless_protocols_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"ways": 1}, {"shots": -1}, {"queries": 10**20}, {"alpha": 0.0}, {"alpha": float("inf")}, {"name": "disjont"},
        {"ways": 0}, {"ways": "9-5"}, {"ways": "many"}, {"present": 6}, {"pooled": True}, {"queries": "0/class"},
        {"queries": "all"}, {"support": "equl"}, {"unknown": -1}, {"shots": 0, "support": "relaxed"},
    ]  # fmt: skip
    for fields in wrong:
        with pytest.raises(FsbenchError):
            TaskProtocol(**fields)


def test_classes_that_are_too_small_are_left_out_of_settings_that_cannot_use_them() -> None:
    """The others are drawn as if these did not exist; with all classes large enough, nothing changes."""
    sizes = np.array([40, 3, 30, 40, 12, 50, 40, 60])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    protocol = TaskProtocol(shots=5, alpha=None)
    assert (feasible_sizes(protocol, offsets) > 0).tolist() == [True, False, True, True, False, True, True, True]
    drawn = sample_tasks(protocol, offsets, 0, np.arange(300))
    assert {*np.unique(drawn.classes)} == {0, 2, 3, 5, 6, 7}
    assert all(((drawn.query >= offsets[one + 1]) | (drawn.query < offsets[one])).all() for one in (1, 4))
    assert (feasible_sizes(TaskProtocol(alpha=None, queries=10), offsets) > 0).all()
    assert feasible_sizes(TaskProtocol(shots=5), offsets).tolist()[1] == 0  # where no drawn proportions would fit
    assert feasible_sizes(TaskProtocol(shots=3), offsets).tolist()[1] == 0  # or hardly any, as none is left as a query


FOLDERS = ((20, 20, 20, 20, 20), (6, 9, 30, 40, 50, 60), (3, 5, 5, 5, 5), (16, 80, 80, 80, 80))


@pytest.mark.parametrize("sizes", FOLDERS)
@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize("name", ["disjoint", "released", "veilleux"])
def test_balanced_feasible_queries_are_the_most_allowed(sizes: tuple[int, ...], shots: int, name: str) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)])

    def refused(queries: int) -> bool:
        protocol = TaskProtocol(name, shots=shots, queries=queries, alpha=None)
        try:
            return 0 in feasible_sizes(protocol, offsets)
        except FsbenchError:
            return True

    expected = max((queries for queries in range(1, 76) if not refused(queries)), default=0)
    protocol = TaskProtocol(name, shots=shots, alpha=None)
    used = np.full(len(sizes), min(sizes)) if name == "released" else np.array(sizes)
    assert feasible_queries(protocol, used) == expected


@pytest.mark.parametrize("sizes", FOLDERS)
@pytest.mark.parametrize("shots", [1, 5])
def test_unbalanced_feasible_queries_can_be_drawn(sizes: tuple[int, ...], shots: int) -> None:
    most = feasible_queries(TaskProtocol(shots=shots), np.array(sizes))
    if most:
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = sample_tasks(TaskProtocol(shots=shots, queries=most), offsets, 0, np.arange(300))
        assert rows.query.shape == (300, most)
    else:
        assert min(sizes) <= shots
    assert feasible_queries(TaskProtocol(shots=shots), np.full(5, 1000)) == 75


def test_what_is_not_feasible_says_what_is() -> None:
    with pytest.raises(FsbenchError, match="smallest class has 16") as caught:
        feasible_sizes(TaskProtocol(shots=5, alpha=None), np.arange(0, 96, 16))
    assert caught.value.hint == "Use --queries 55 or fewer, or --shots 1."
    with pytest.raises(FsbenchError) as caught:
        feasible_sizes(TaskProtocol(shots=5), np.arange(0, 12, 2))
    assert "--min-images" in caught.value.hint


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
