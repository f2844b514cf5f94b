"""fsbench under torchrun, with small blocks, and with trouble in process 1 where a test asks for it.

Run as a module by every process: `TROUBLE=killed torchrun … -m tests.cli.torchrun extract …`.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fsbench.cli.app import main
from fsbench.evaluation import engine
from fsbench.features import extract
from fsbench.features.extract import RowStore

ROOT = Path(__file__).parents[2]
IMAGES_PER_BLOCK = 16


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


def write_unless_killed(self: RowStore, *block: Any) -> None:
    """Die without a word, once another process has finished something."""
    while not list(self.folder.glob("*.npz")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def write_slowly(self: RowStore, *block: Any) -> None:
    """Leave time for the other processes."""
    time.sleep(1.0)
    _write(self, *block)


def make_unequal(number: int) -> None:
    """Give this process blocks, threads and a speed of its own."""
    solve = engine._solve_chunk

    def solve_slowly(*arguments: Any) -> Any:
        time.sleep(0.05 * number)
        return solve(*arguments)

    torch.set_num_threads(1 + number)
    engine._MOST_PER_BLOCK_CPU >>= 5 * number
    engine._solve_chunk = solve_slowly  # type: ignore[assignment]


_write = RowStore.write
_TROUBLE = {("killed", "0"): write_slowly, ("killed", "1"): write_unless_killed}

if __name__ == "__main__":
    extract.IMAGES_PER_BLOCK = IMAGES_PER_BLOCK
    RowStore.write = _TROUBLE.get((os.environ["TROUBLE"], os.environ["RANK"]), _write)  # type: ignore[method-assign,assignment]
    if os.environ["TROUBLE"] == "unequal":
        make_unequal(int(os.environ["RANK"]))
    main()
