from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fsbench.evaluation.spec import parse_protocols
from fsbench.results.collect import collect, read_records
from fsbench.results.command import command_of
from fsbench.results.leaderboard import leaderboard, mean_ranks, tie_letters
from fsbench.tasks.protocol import TaskProtocol
from tests.cli import run
from tests.comparing import QUIET
from tests.records import four_settings, make_record

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.synthetic import Features


@given(st.integers(2, 7), st.randoms())
@settings(max_examples=80, deadline=None)
def test_two_methods_share_a_letter_if_and_only_if_they_do_not_differ(count: int, chance: random.Random) -> None:
    labels = [f"m{number}" for number in range(count)]
    pairs = [frozenset(pair) for pair in itertools.combinations(labels, 2)]
    differ = [pair for pair in pairs if chance.random() < 0.5]
    letters = tie_letters(labels, differ)
    for pair in pairs:
        one, other = pair
        assert bool({*letters[one]} & {*letters[other]}) == (pair not in differ)
    assert "a" in letters["m0"]


def test_ranks_are_those_of_scipy_with_equals_sharing_theirs() -> None:
    values = np.random.default_rng(0).integers(0, 4, size=(6, 5)).astype(float)
    np.testing.assert_array_equal(mean_ranks(values), stats.rankdata(-values, axis=0))


def test_averages_and_ranks_are_of_methods_that_ran_everywhere() -> None:
    records = [record for name, right in (("ncm", 0.5), ("pt-map", 0.8), ("soft-kmeans", 0.65))
               for record in four_settings(name, right)]  # fmt: skip
    records.append(make_record("tim-gd", 0.99))
    (table,) = collect(records)
    board = leaderboard(table)
    assert [row.entry.label for row in board.rows] == ["pt-map", "soft-kmeans", "ncm", "tim-gd"]
    assert [row.mean_rank for row in board.rows] == [1.0, 2.0, 3.0, None]
    own = [record.accuracy for record in records if record.key.method == "ncm"]
    assert board.rows[2].average == pytest.approx(np.mean(own))
    first = board.places[0]
    assert first.column.title == "unbalanced α=2 1-shot"
    best = next(record for record in records if record.key.method == "tim-gd")
    beside = board.rows[0].standings[0]
    assert beside is not None
    assert beside.to_best is not None
    mine = next(record for record in records if record.key.method == "pt-map")
    assert beside.to_best.mean == pytest.approx(mine.accuracy - best.accuracy)
    last = board.rows[3].standings
    assert last[0] is not None
    assert (last[0].to_best, last[0].ties, last[1:]) == (None, "a", (None, None, None))


@pytest.mark.parametrize(
    "words",
    [
        ("--methods", "ncm,bavardage:released", "--settings", "balanced", "--shots", "2", "--seed", "3"),
        ("--methods", "soft-kmeans,pt-map", "--alpha", "4", "--ways", "3", "--queries", "31", "--split", "val"),
        ("--methods", "bavardage", "--protocol", "veilleux", "--prior-alpha", "sampler", "--alpha", "5"),
    ],
)
def test_the_command_of_a_run_finds_its_record(
    features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    features.write(tmp_path / "features" / "synthetic-none.h5", "synthetic", "none")
    options = ("--shots", "1") if "--shots" not in words else ()
    assert run("compare", "--tasks", "4", "--baseline", "soft-kmeans", "--quiet", *options, *words).returncode == 0
    stored = sorted((tmp_path / "results").glob("*.json"))
    for record in read_records(None, tmp_path / "results", QUIET):
        assert run(*shlex.split(command_of(record))[1:], "--quiet").returncode == 0
        assert sorted((tmp_path / "results").glob("*.json")) == stored


@pytest.mark.parametrize(
    "protocol",
    [
        TaskProtocol(),
        TaskProtocol(shots=5, alpha=None, ways=4),
        TaskProtocol(name="released", alpha=2.1234567, queries=31),
        TaskProtocol(name="keff", ways=5, pooled=True, alpha=None),
        TaskProtocol(name="keff", ways=20, present=3, pooled=True, alpha=None),
        TaskProtocol(name="keff", ways=20, alpha=2.0),
        TaskProtocol(name="keff-released", ways=20, alpha=None),
    ],
)
def test_a_command_draws_the_tasks_of_the_run(protocol: TaskProtocol) -> None:
    rules = {name: value for name, value in protocol.as_dict().items() if name != "version"}
    words = shlex.split(command_of(make_record("pt-map", **rules)))
    told = {name: words[words.index(f"--{name}") + 1] for name in rules if f"--{name}" in words}
    numbers: dict[str, Any] = {name: int(told[name]) for name in ("ways", "present", "queries") if name in told}
    found = parse_protocols(
        settings="balanced" if "--balanced" in words else "unbalanced",
        alpha=float(told["alpha"]) if "alpha" in told else None,
        shots=told["shots"],
        protocol=words[words.index("--protocol") + 1] if "--protocol" in words else "disjoint",
        **numbers,
    )
    assert found == (protocol,)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"params": {"tau": 0.25}, "params_from": "blind"}, "--tasks 40 --blind"),
        ({"backbone": "timm/vit"}, "--tasks 40"),
        ({}, "--shots 1 --tasks 40"),
        ({"params": {"tau": 0.25, "rotate": True}, "params_from": "tuned:val"}, "--set tau=0.25 --set rotate=true"),
        ({"params": {"tau": 0.25, "sigma": 3.0}, "params_from": "default + given:t_vb"}, "--tasks 40 --set tau=0.25"),
        ({"params": {"tau": 0.25}, "params_from": "preset:mini"}, "--preset article"),
        ({"base_dataset": "mini", "other_base": True}, "--base features/mini-rn12.h5"),
        ({"dataset": "a b"}, "--tasks 40"),
    ],
)  # fmt: skip
def test_a_command_says_what_is_not_the_default(changes: dict[str, Any], end: str) -> None:
    record = make_record("bavardage", **changes)
    command = command_of(record)
    assert command.endswith(end)
    assert shlex.split(command)[:5] == [
        "fsbench",
        "solve",
        f"features/{record.dataset}-{record.backbone.replace('/', '_')}.h5",
        "--method",
        "bavardage",
    ]
