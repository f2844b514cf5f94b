"""The weights file that a training ends with: where it goes, and what is there already."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.weights import SUFFIXES
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".safetensors"


def default_output(root: Path, dataset: str, backbone: str) -> Path:
    """Where `fsbench extract` looks for the weights of a backbone on a data set."""
    return root / dataset / f"{backbone}{SUFFIX}"


def is_finished(out: Path, fingerprint: str) -> bool:
    """Whether the file holds the weights of this very training."""
    if not out.is_file():
        return False
    try:
        facts = json.loads(read_checkpoint(out).metadata.get("fsbench", "{}"))
    except (FsbenchError, ValueError):
        return False
    return isinstance(facts, dict) and facts.get("fingerprint") == fingerprint


def check_output(out: Path, backbone: str, *, force: bool) -> None:
    """Refuse, before hours are spent, to write what could not be written or found again.

    Args:
        out: The file to write.
        backbone: Name on the command line.
        force: Whether a file that is there may be replaced.
    """
    if out.suffix != SUFFIX or out.is_dir():
        raise FsbenchError(f"Weights are written to a file that ends in {SUFFIX}, got {out}.", "Change --out.")
    if out.exists() and not force:
        raise FsbenchError(
            f"{out} is there already and was made in another way.",
            "Write elsewhere with --out FILE, or replace it with --force.",
        )
    if out.stem == backbone and out.parent.is_dir():
        for other in sorted(out.parent.glob(f"{backbone}.*")):
            if other != out and SUFFIXES.fullmatch(other.name.removeprefix(backbone)):
                raise FsbenchError(
                    f"{other} is there already: `fsbench extract` would not know which of the two to take.",
                    "Write elsewhere with --out FILE, or move that file away.",
                )
