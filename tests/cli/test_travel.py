"""Results that travel: records of others, `--fail-if-worse` and `fsbench verify`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fsbench.results.record import load_record, save_record
from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path

FEW = ("--tasks", "30", "--settings", "unbalanced", "--shots", "1,5", "--no-published", "--quiet")


@pytest.fixture
def solved(folder: Path) -> Path:
    """Records of Soft-KMEANS and BAVARDAGE with one and five shots."""
    assert run("compare", "--methods", "bavardage", *FEW).returncode == 0
    return folder


@pytest.mark.usefixtures("solved")
def test_records_of_others_join_the_table() -> None:
    done = run("compare", "--methods", "ncm", *FEW, "--results-dir", "mine", "--with", "results", "--json")
    assert {row["method"] for row in json.loads(done.stdout)} == {"ncm", "soft-kmeans", "bavardage"}


def test_a_changed_record_is_noticed(solved: Path) -> None:
    whole = run("verify", "results", "--sample", "all")
    assert whole.returncode == 0, whole.stderr
    assert "4 records: 4 equal." in whole.stdout
    sample = run("verify", "--sample", "10", "--seed", "3").stdout
    assert "--seed 3. It would find changes in 26 %" in sample  # 1 - 0.05 ** (1 / 10)
    (path,) = (solved / "results").glob("*bavardage-unbalanced-5shot*")
    record = load_record(path)
    predicted = record.predicted.copy()
    predicted[17, 0] = (predicted[17, 0] + 1) % record.protocol.ways
    save_record(path, record.update(replace(record.answers, predicted=predicted)))
    verdict = run("verify", "--json")
    assert verdict.returncode == 1
    (wrong,) = [row for row in json.loads(verdict.stdout)["records"] if row["state"] == "different"]
    assert wrong["different"] == [17]
    assert "task 17." in run("verify").stdout


@pytest.mark.usefixtures("solved")
def test_a_method_that_became_worse_fails_a_build() -> None:
    compare = ("compare", *FEW, "--methods", "soft-kmeans,bavardage")
    worse = run(*compare, "--baseline", "bavardage", "--fail-if-worse", "soft-kmeans")
    assert worse.returncode == 1
    assert "soft-kmeans is below bavardage: synthetic none, unbalanced α=2 1-shot: -" in worse.stderr
    assert "bavardage" in worse.stdout  # the table is shown first
    assert run(*compare, "--baseline", "bavardage", "--fail-if-worse", "soft-kmeans", "--by", "60").returncode == 0
    assert run(*compare, "--fail-if-worse", "bavardage").returncode == 0
