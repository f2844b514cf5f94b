"""Results that travel: records of others, `--fail-if-worse` and `fsbench verify`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsbench.results.record import load_record, save_record
from tests.cli import run, succeed

FEW = ("--tasks", "30", "--settings", "unbalanced", "--shots", "1,5", "--no-published", "--quiet")


@pytest.fixture
def solved(folder: Path) -> Path:
    """Records of Soft-KMEANS and BAVARDAGE with one and five shots."""
    succeed("compare", "--methods", "bavardage", *FEW)
    return folder


def test_a_changed_record_is_noticed(solved: Path) -> None:
    whole = succeed("verify", "results", "--sample", "all")
    assert "4 records: 4 equal." in whole.stdout
    sample = run("verify", "--sample", "10", "--seed", "3").stdout
    assert "Sample drawn with --seed 3;" in sample
    (path,) = (solved / "results").glob("*bavardage-unbalanced-5shot*")
    record = load_record(path)
    predicted = record.answers.predicted.copy()
    predicted[17, 0] = (predicted[17, 0] + 1) % record.run.protocol.ways
    save_record(path, record.model_copy(update={"answers": replace(record.answers, predicted=predicted)}))
    verdict = run("verify", "--json")
    assert verdict.returncode == 1
    (wrong,) = [row for row in json.loads(verdict.stdout)["records"] if row["state"] == "different"]
    assert wrong["different"] == [17]
    assert "other answers in 1 of 30 tasks; the first is task 17." in " ".join(run("verify").stdout.split())


@pytest.mark.usefixtures("solved")
def test_a_method_that_became_worse_fails_a_build() -> None:
    compare = ("compare", *FEW, "--methods", "soft-kmeans,bavardage")
    worse = run(*compare, "--baseline", "bavardage", "--fail-if-worse", "soft-kmeans")
    assert worse.returncode == 1
    assert "soft-kmeans is below bavardage: synthetic none, unbalanced α=2 1-shot: -" in worse.stderr
    assert "bavardage" in worse.stdout  # the table is shown first
    succeed(*compare, "--baseline", "bavardage", "--fail-if-worse", "soft-kmeans", "--by", "60")
    succeed(*compare, "--fail-if-worse", "bavardage")
