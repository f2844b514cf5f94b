"""The size of the package: files that a reader can read in one sitting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.cli.solve import solve

if TYPE_CHECKING:
    from types import FrameType

    import pytest

    from tests.synthetic import Features

PACKAGE = Path(__file__).parents[2] / "fsbench"
MOST_FUNCTIONS = 132


def test_no_file_is_longer_than_400_lines() -> None:
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > 400} == {}


def test_few_functions_lie_between_the_command_and_the_number(
    features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a reader walks through from `solve` until the first record is saved; the threads that solve apart."""
    monkeypatch.chdir(tmp_path)
    features.write(tmp_path / "features.h5")
    ask: dict[str, Any] = {"features": [Path("features.h5")], "shots": "1", "device": "cpu", "quiet": True}
    solve(**ask, tasks=2)  # which stores the scatter
    called: dict[tuple[str, str], None] = {}
    saved = ("results/record.py", "save_record")

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        named = event == "call" and code.co_flags & 2 and not code.co_name.startswith("<")
        if named and code.co_filename.startswith(str(PACKAGE)) and saved not in called:
            called[Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        solve(**ask, tasks=16, seed=1)
    finally:
        sys.setprofile(before)
    assert saved in called
    assert len(called) <= MOST_FUNCTIONS, "\n".join([f"{len(called)} functions:", *map(" ".join, called)])
