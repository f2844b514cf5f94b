"""Base statistics from the images of a task itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fsbench
from fsbench.features.store import Provenance, write_features
from fsbench.methods.pool import pool_statistics
from fsbench.results.record import load_record
from tests.cli import run, succeed
from tests.oracle import algorithms, reference
from tests.synthetic import Features


@pytest.fixture
def task(features: Features) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six classes of about 50 images, two of each labelled; the true labels too."""
    classes = [np.arange(*features.novel.offsets[c : c + 2]) for c in range(6)]
    support, query = np.concatenate([c[:2] for c in classes]), np.concatenate([c[2:] for c in classes])
    rows = features.novel.features[np.concatenate([support, query])].astype(np.float64)
    return rows, np.repeat(np.arange(6), 2), np.repeat(np.arange(6), [len(c) - 2 for c in classes])


def test_statistics_of_a_pool_are_those_of_the_two_rounds(task: Any) -> None:
    """Soft-KMEANS, the scatter of its assignments by loops, the weighted variant, and the scatter again."""
    rows, labels, _ = task
    known, mean = np.eye(6)[labels], rows.mean(axis=0)
    x = reference.cl2n(rows, mean)

    def scatter(o: np.ndarray) -> np.ndarray:
        total = np.zeros((48, 48))
        for k in range(6):
            centre = o[:, k] @ x / o[:, k].sum()
            for share, row in zip(o[:, k], x, strict=True):
                total += share * np.outer(row - centre, row - centre)
        return total / len(x)

    weighted = reference.configured(None, variant="weighted", sizes="free")
    first = scatter(algorithms.soft_kmeans(x, known, 50.0, 5))
    second = scatter(algorithms.bavardage(x, algorithms.sphere(x, first, weighted.sigma), labels, weighted))
    found = pool_statistics(torch.from_numpy(rows), torch.from_numpy(labels), 6)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.scatter, second, atol=1e-9)
    rebuilt = found.eigenvectors * found.eigenvalues @ found.eigenvectors.mT
    np.testing.assert_allclose(rebuilt, second, atol=1e-9)
    assert sum(found.class_counts) == len(rows)


def test_predict_with_the_pool(task: Any) -> None:
    """A task for itself: a second one in the batch changes nothing."""
    rows, labels, truth = task
    tasks = np.stack([rows, rows[:, ::-1]])
    both = fsbench.predict("bavardage:weighted", tasks[:, :12], np.stack([labels] * 2), tasks[:, 12:], base="pool")
    alone = fsbench.predict("bavardage:weighted", tasks[:1, :12], labels[None], tasks[:1, 12:], base="pool")
    np.testing.assert_allclose(both[:1], alone, atol=1e-9)
    assert (both[0].argmax(axis=1) == truth).mean() > 0.8
    evaluated = fsbench.evaluate("bavardage:weighted", (rows[12:], truth), base="pool", queries=190, tasks=2)
    assert (evaluated.run.base, evaluated.accuracy > 60) == ("pool", True)
    statistics = pool_statistics(torch.from_numpy(rows), torch.from_numpy(labels), 6)
    given = fsbench.predict("bavardage:weighted", tasks[:1, :12], labels[None], tasks[:1, 12:], base=statistics)
    np.testing.assert_allclose(alone, given, atol=1e-12)


def test_solve_and_verify_with_the_pool(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without base classes; methods that need none are solved as ever."""
    monkeypatch.chdir(tmp_path)
    write_features(tmp_path / "features" / "own-none.h5", Provenance("own", "none"), {"novel": features.novel})
    ask = ("compare", "--settings", "unbalanced", "--shots", "2", "--ways", "6", "--tasks", "3", "--quiet")
    message = run(*ask, "--methods", "ncm").stderr
    assert "ncm cannot run here. " in message
    assert "--base pool" in message
    message = run(*ask, "--methods", "ncm", "--base", "pool", "--queries", "40").stderr
    assert "A pool of 52 images is too small to replace base classes" in message
    shown = succeed(*ask, "--methods", "ncm,pt-map,bavardage:weighted", "--base", "pool", "--queries", "190")
    assert "base:pool" in shown.stdout
    commands = [load_record(path).command for path in Path("results").glob("*.h5")]
    assert len(commands) == 4
    assert all("--base pool" in command for command in commands)
    assert "4 equal" in " ".join(succeed("verify", "--sample", "all").stdout.split())
    assert "choose one" in run(*ask, "--base", "pool", "--tune").stderr
