"""The formats of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS = {".md": "markdown", ".markdown": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}


def format_of(asked: str | None, out: Path | None) -> str:
    """The format asked for, else that of the file's ending, else text; the two must not contradict each other."""
    from fsbench.errors import unknown_name
    from fsbench.report.render import FORMATS

    if asked is not None and asked not in FORMATS:
        raise unknown_name("format", asked, FORMATS)
    by_ending = ENDINGS.get(out.suffix.lower()) if out else None
    if asked and by_ending and asked != by_ending:
        raise typer.BadParameter(f"{asked} does not suit --out {out}, which ends as {by_ending}", param_hint="--format")
    return asked or by_ending or "rich"
