"""fsbench under torchrun, with small shards, and with trouble in process 1 where a test asks for it.

Run as a module by every process: `TROUBLE=killed torchrun … -m tests.cli.torchrun extract …`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fsbench.cli.app import main
from fsbench.evaluation import blocks, engine
from fsbench.features import shards
from fsbench.features.shards import Shards

ROOT = Path(__file__).parents[2]
IMAGES_PER_SHARD = 16


def torchrun(processes: int, *arguments: str, trouble: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in several processes, in the current folder."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [sys.executable, *words, "-m", "tests.cli.torchrun", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "100", "TROUBLE": trouble},
        capture_output=True,
        text=True,
        timeout=300,
    )


def write_unless_killed(self: Shards, part: range, *rest: Any) -> None:
    """Die without a word, once another process has finished something."""
    while not list(self.folder.glob("*.npy")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def write_slowly(self: Shards, part: range, *rest: Any) -> None:
    """Leave time for the other processes."""
    time.sleep(1.0)
    _write(self, part, *rest)


def make_unequal(number: int) -> None:
    """Give this process memory, threads and a speed of its own."""
    solve = blocks.solve_rows

    def solve_slowly(*arguments: Any) -> Any:
        time.sleep(0.05 * number)
        return solve(*arguments)

    torch.set_num_threads(1 + number)
    engine._free_memory = lambda device: 8 << 20 >> 4 * number
    engine.solve_rows = solve_slowly  # type: ignore[assignment,attr-defined]


_write = Shards.write
_TROUBLE = {("killed", "0"): write_slowly, ("killed", "1"): write_unless_killed, ("slow", "1"): write_slowly}

if __name__ == "__main__":
    shards.IMAGES_PER_SHARD = IMAGES_PER_SHARD
    Shards.write = _TROUBLE.get((os.environ["TROUBLE"], os.environ["RANK"]), _write)  # type: ignore[method-assign,assignment]
    if os.environ["TROUBLE"] == "unequal":
        make_unequal(int(os.environ["RANK"]))
    main()
