"""Tasks of unequal size: every preset against its definition."""

import hashlib
import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.evaluation.options import Comparing
from fsbench.evaluation.spec import protocols_of
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import TaskRows, largest, sample_tasks
from fsbench.tasks.varied import UNKNOWN

SIZES = np.array([30, 48, 31, 60, 44, 52, 39, 160])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])


def preset(name: str, **words: Any) -> TaskProtocol:
    shots = {} if name == "meta" else {"shots": 3}
    return protocols_of(Comparing(protocol=name, **{**shots, **words}))[0]


def draw(protocol: TaskProtocol, tasks: int = 200, offsets: NDArray[np.int64] = OFFSETS) -> TaskRows:
    """Tasks, after a check of what all protocols have in common."""
    drawn = sample_tasks(protocol, offsets, 3, np.arange(tasks))
    for b in range(min(tasks, 60)):
        support, query = (rows[b][rows[b] >= 0] for rows in (drawn.support, drawn.query))
        assert len({*support, *query}) == len(support) + len(query)
        labels = drawn.support_labels[b][drawn.support[b] >= 0]
        assert set(labels) == set(range(drawn.ways[b]))
        np.testing.assert_array_equal(np.searchsorted(offsets, support, "right") - 1, drawn.classes[b][labels])
        known = drawn.query_labels[b] >= 0
        classes = np.searchsorted(offsets, drawn.query[b], "right") - 1
        np.testing.assert_array_equal(classes[known], drawn.classes[b][drawn.query_labels[b][known]])
        assert not {*classes[drawn.query_labels[b] == UNKNOWN]} & {*drawn.classes[b]}
        assert ((drawn.query_labels[b] == -1) == (drawn.query[b] < 0)).all()
    alone = sample_tasks(protocol, offsets, 3, np.array([tasks - 1, 1]))
    np.testing.assert_array_equal(alone.query, drawn.query[[tasks - 1, 1]])
    np.testing.assert_array_equal(alone.support, drawn.support[[tasks - 1, 1]])
    return drawn


def counted(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return (rows >= 0).sum(axis=1)


def present_classes(drawn: TaskRows) -> NDArray[np.int64]:
    return np.array([len({*labels} - {-1, UNKNOWN}) for labels in drawn.query_labels])


def test_all_way_asks_for_every_other_image() -> None:
    drawn = draw(preset("all-way"), 40)
    for b in range(40):
        assert sorted([*drawn.support[b], *drawn.query[b]]) == list(range(SIZES.sum()))
    assert (np.diff(drawn.query_labels) != 0).mean() > 0.5  # in random order
    drawn = draw(preset("all-way", ways=3))  # other numbers of queries from task to task
    np.testing.assert_array_equal(counted(drawn.query), SIZES[drawn.classes].sum(axis=1) - 9)
    assert drawn.query.shape[1] == largest(preset("all-way", ways=3), SIZES)[2] == 60 + 52 + 160 - 9


def test_batches_are_a_draw_from_the_images_of_a_varying_number_of_classes() -> None:
    drawn = draw(preset("batches", present="2-4", queries=20), 3000)
    assert (drawn.ways == 8).all()
    assert (counted(drawn.query) == 20).all()
    assert stats.chisquare(np.bincount(present_classes(drawn), minlength=5)[2:]).pvalue > 1e-4
    classes = np.take_along_axis(drawn.classes, drawn.query_labels, axis=1)
    others = np.delete(SIZES, 7).mean() - 3
    expected = np.mean([k / 8 * 157 / (157 + (k - 1) * others) for k in (2, 3, 4)])
    assert abs((classes == 7).mean() - expected) < 0.02
    short = counted(draw(preset("batches", present=2, queries=100)).query)
    assert short.min() < 100 == short.max()


def test_meta_dataset_has_unequal_shots() -> None:
    drawn = draw(preset("meta"), 2000, np.arange(21) * 80)
    support = counted(drawn.support)
    assert stats.chisquare(np.bincount(drawn.ways, minlength=21)[5:]).pvalue > 1e-4
    np.testing.assert_array_equal(counted(drawn.query), 10 * drawn.ways)
    assert support.max() <= 500
    for b in range(50):
        counts = np.bincount(drawn.support_labels[b][drawn.support[b] >= 0])
        assert 1 <= counts.min() < counts.max() <= 70 or support[b] < 20
        assert counts.max() - 1 < 4 * counts.min()  # weights differ by a factor of 4 at most
        assert {*np.bincount(drawn.query_labels[b][drawn.query[b] >= 0])} == {10}
    # The size of a support is that of ⌊70 β⌋ + 1 images of every class, before shares are rounded down and cut.
    assert stats.kstest(support[drawn.ways == 5] / (5 * 66), "uniform").statistic < 0.15
    small = draw(preset("meta"), 20, np.arange(7) * 12)  # half of a class is asked for where classes are small
    np.testing.assert_array_equal(counted(small.query), 6 * small.ways)


@pytest.mark.parametrize(
    ("name", "shots"),
    [("imbalanced-support", {0: 6, 1: 3, 2: 1}), ("imbalanced-support-relaxed", {0: 4, 1: 3, 2: 1, 3: 1, 4: 1})],
)
def test_support_in_proportion_to_class_sizes(name: str, shots: dict[int, int]) -> None:
    """10 · 200 / 357 = 5.6, 2.8, 1.1, 0.3, 0.1; with at least one of each, the largest gives up two."""
    sizes = np.array([200, 100, 40, 12, 5])
    drawn = draw(preset(name, shots=2), 40, np.concatenate([[0], np.cumsum(sizes)]))
    for b in range(40):
        classes = drawn.classes[b][drawn.support_labels[b][drawn.support[b] >= 0]]
        assert dict(zip(*np.unique(classes, return_counts=True), strict=True)) == shots
    assert (counted(drawn.query) == sizes.sum() - 10).all()
    assert present_classes(drawn).min() == 5  # also those that no method can name


@pytest.mark.parametrize("setting", ["balanced", "unbalanced"])
def test_open_set_asks_for_unknown_classes_too(setting: str) -> None:
    drawn = draw(preset("open-set", ways=4, unknown=3, queries=70, settings=setting), 400)
    unknown = (drawn.query_labels == UNKNOWN).sum(axis=1)
    assert (drawn.ways == 4).all()
    assert (counted(drawn.query) == 70).all()
    assert {*unknown} == {30} if setting == "balanced" else abs(unknown.mean() - 30) < 1.5 and unknown.std() > 5


@pytest.mark.parametrize("name", ["all-way", "batches", "meta", "imbalanced-support", "open-set"])
def test_images_of_a_class_are_equally_likely_in_support_and_queries_and_so_are_classes(name: str) -> None:
    words: dict[str, dict[str, Any]] = {"meta": {"ways": "3-5"}, "open-set": {"ways": 3, "unknown": 3, "queries": 40}}
    drawn = sample_tasks(preset(name, **words.get(name, {})), OFFSETS, 5, np.arange(1500))
    for rows in (drawn.support, drawn.query):
        counts = np.bincount(rows[rows >= 0], minlength=SIZES.sum())
        for first, last in itertools.pairwise(OFFSETS):  # images of one class are drawn without replacement
            assert stats.chisquare(counts[first:last]).pvalue > 1e-4
    if words:
        chosen = drawn.classes[drawn.classes >= 0]
        assert stats.chisquare(np.bincount(chosen, minlength=8)).pvalue > 1e-4
    if name == "open-set":
        unknown = np.searchsorted(OFFSETS, drawn.query[drawn.query_labels == UNKNOWN], "right") - 1
        assert (np.abs(np.bincount(unknown, minlength=8) / len(unknown) - 1 / 8) < 0.02).all()


def test_ranges_apply_to_every_protocol() -> None:
    drawn = draw(preset("disjoint", ways="3-6", present="2-10", queries="4/class", settings="balanced"), 400)
    assert {*drawn.ways} == {3, 4, 5, 6}
    held = present_classes(drawn)
    assert {*held} == {2, 3, 4, 5, 6}
    assert (held <= drawn.ways).all()
    np.testing.assert_array_equal(counted(drawn.query), 4 * held)


def test_tasks_of_unequal_size_are_pinned() -> None:
    digests = {}
    for name in ("all-way", "batches", "meta", "imbalanced-support", "imbalanced-support-relaxed", "open-set"):
        drawn = sample_tasks(preset(name, **({"ways": 3} if name == "open-set" else {})), OFFSETS, 0, np.arange(20))
        digests[name] = hashlib.sha256(np.concatenate([drawn.support, drawn.query], axis=1).tobytes()).hexdigest()[:8]
    # Changing one of these changes published task lists: raise TaskProtocol.version together with it.
    expected = {"all-way": "f08464e9", "batches": "914f585f", "meta": "1fed8a0f", "imbalanced-support": "b53e6ef3"}
    relaxed = expected["imbalanced-support"]  # every class is large enough to have a shot
    assert digests == expected | {"open-set": "0dca7e2a", "imbalanced-support-relaxed": relaxed}


def test_meta_dataset_asks_as_often_for_unknown_classes() -> None:
    drawn = draw(preset("meta", ways="3-5", queries="6/class", unknown=2), 30)
    for b in range(30):
        classes = np.searchsorted(OFFSETS, drawn.query[b][drawn.query[b] >= 0], "right") - 1
        assert {*np.bincount(classes)} <= {0, 6}


def test_a_task_has_known_and_unknown_queries() -> None:
    drawn = draw(preset("open-set", ways=2, unknown=2, queries=6, alpha=0.1), 300)
    assert (drawn.query_labels >= 0).any(axis=1).all()
    assert (drawn.query_labels == UNKNOWN).any(axis=1).all()


@pytest.mark.parametrize(
    ("name", "words", "complaint"),
    [
        ("meta", {"queries": 50}, "queries per class, such as 10/class"),
        ("meta", {"alpha": 1.0}, "α has no meaning for meta"),
        ("meta", {"shots": (5,)}, "draws the shots of every class itself"),
        ("all-way", {"settings": ("balanced",)}, "no balanced tasks"),
    ],
)
def test_what_a_protocol_cannot_have_is_refused(name: str, words: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FsbenchError, match=complaint):
        preset(name, **words)
