"""Damaged files end in success or in an error that names them: no traceback, hang, flood of memory or wrong number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.train.checkpoint import CheckpointFile, Progress
from tests.trust.corpus import KINDS
from tests.trust.fuzz import fuzz
from tests.trust.isolate import Outcome, judged, run_cases

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from tests.trust.corpus import Kind

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
SHORT, LONG = 25, 500
TRIED_IN_CHILDREN = ("s2m2_hdf5", "compressed_hdf5", "parquet_columns", "parquet_vectors")  # a process per case


def check(kind: Kind, folder: Path, cases: range, tally: Counter[str]) -> None:
    outcomes = fuzz(kind, folder, cases)
    for outcome in outcomes:
        tally[f"damaged files: {outcome.kind}"] += 1
    wrong = [outcome for outcome in outcomes if not outcome.sound]
    assert not wrong, "\n".join(f"{kind.name} {found.case}: {found.kind}: {found.told}" for found in wrong[:5])
    assert sum(outcome.kind == "refused" for outcome in outcomes) > len(cases) // 10


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_some_damaged_files(kind: Kind, tmp_path: Path, tally: Counter[str]) -> None:
    few = kind.name.endswith(TRIED_IN_CHILDREN)
    check(kind, tmp_path, range(4 if few else SHORT), tally)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_many_damaged_files(kind: Kind, tmp_path: Path, tally: Counter[str]) -> None:
    check(kind, tmp_path, range(SHORT, SHORT + LONG), tally)


def test_a_changed_bit_in_a_trained_weight_is_noticed(tmp_path: Path) -> None:
    """The rest of the file stays sound: nothing but the checksum can tell."""
    network = torch.nn.Linear(3, 2)
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    file = CheckpointFile(tmp_path / "a.training", "f" * 64)
    file.write(network, optimiser, Progress(3, 2, 1.5))
    file.restore(network, optimiser)
    whole, weight = file.path.read_bytes(), network.weight.detach().numpy().tobytes()
    assert whole.count(weight) == 1
    file.path.write_bytes(whole.replace(weight, bytes([weight[0] ^ 1]) + weight[1:]))
    with pytest.raises(FsbenchError, match="damaged"):
        file.restore(network, optimiser)


def test_the_judge_sees_what_it_must_see() -> None:
    """Otherwise the tests above would prove nothing."""
    import os
    import signal
    import time

    from tests.trust import isolate

    def raises(error: Exception) -> bool:
        raise error

    assert judged(0, lambda: True, "x").kind == "accepted"
    assert judged(0, lambda: False, "x").kind == "wrong"
    assert judged(0, lambda: raises(ValueError("x")), "x").kind == "traceback"
    assert judged(0, lambda: raises(FsbenchError("x", "do")), "x").kind == "refused"
    assert judged(0, lambda: raises(FsbenchError("x")), "x").kind == "no remedy"
    assert judged(0, lambda: raises(FsbenchError("y", "do")), "x").kind == "unnamed"

    def trouble(case: int) -> Outcome:
        if case == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if case == 2:
            isolate.MEGABYTES = 60
            kept: list[bytearray] = []
            enough = isolate.peak() + 120
            while isolate.peak() < enough and len(kept) < 40:  # the first may replace memory that the system took back
                kept.append(bytearray(os.urandom(1 << 20) * 60))
            return Outcome(case, f"accepted {len(kept)}")
        if case == 3:
            time.sleep(60)
        return Outcome(case, "accepted")

    seconds, isolate.SECONDS = isolate.SECONDS, 2.0
    try:
        kinds = [outcome.kind for outcome in run_cases(range(5), trouble)]
    finally:
        isolate.SECONDS = seconds
    assert kinds == ["accepted", "crash", "memory", "hang", "accepted"]
