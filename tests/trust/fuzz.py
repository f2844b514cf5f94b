"""Damaged files of every kind, told apart by kind and number: the same number is the same damage."""

from __future__ import annotations

import warnings
from random import Random
from typing import TYPE_CHECKING

from fsbench.io import trial
from tests.trust.isolate import Outcome, judged, run_cases
from tests.trust.mutate import mutate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.trust.corpus import Kind


def fuzz(kind: Kind, folder: Path, cases: Sequence[int]) -> list[Outcome]:
    """Damage a sound file once per case, and read it."""
    path = folder / kind.file
    kind.write(path)
    whole, expected = path.read_bytes(), kind.read(path)

    def run(case: int) -> Outcome:
        warnings.simplefilter("error")
        trial.SECONDS = 8.0
        damaged = mutate(whole, Random(f"{kind.name} {case}"))
        path.write_bytes(damaged)
        return judged(case, lambda: kind.read(path) == expected or not kind.sealed, path.name)

    return run_cases(cases, run)
