"""Names under which results of methods are recorded."""

from __future__ import annotations

import hashlib
import importlib
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from fsbench.errors import FsbenchError
from fsbench.methods.registry import METHODS, method_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINE = """
import torch
from fsbench.methods.ncm import NearestClassMean
{}
class Mine(NearestClassMean):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from; afterwards they are forgotten."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget(before)


def forget(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]
    importlib.invalidate_caches()


def key(folder: Path, imports: str = "") -> str:
    """The key, as a new process would make it."""
    (folder / "mine.py").write_text(MINE.format(imports))
    forget(set())
    return method_key(f"{folder}/mine.py:Mine")


def test_a_file_alone_goes_by_its_content(folder: Path) -> None:
    found = key(folder)
    assert found == f"mine.py:Mine@{hashlib.sha256((folder / 'mine.py').read_bytes()).hexdigest()[:8]}"
    assert key(folder, "import json, os.path, numpy.linalg") != found


@pytest.mark.parametrize(
    ("imports", "changed"),
    [
        ("import own_helper", "own_helper.py"),
        ("from own_helper import SCALE", "own_helper.py"),
        ("from own_helper import SCALE", "own_deeper.py"),
        ("def later():\n    import own_helper", "own_helper.py"),
        ("import own_pack.sub", "own_pack/__init__.py"),
        ("import own_pack.sub", "own_pack/sub.py"),
        ("from own_pack import sub", "own_pack/beside.py"),
        ("from own_pack import sub", "own_pack/sub.py"),
        ("import own_space.inner", "own_space/inner.py"),
    ],
)
def test_a_changed_module_that_it_imports_makes_another_key(folder: Path, imports: str, changed: str) -> None:
    texts = {
        "own_helper.py": "import own_deeper\nSCALE = 1\n",
        "own_deeper.py": "",
        "own_pack/__init__.py": "",
        "own_pack/sub.py": "from . import beside\nfrom .beside import X",
        "own_pack/beside.py": "X = 1",
        "own_space/inner.py": "",
        "own_stranger.py": "",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    first = key(folder, imports)
    (folder / "own_stranger.py").write_text("changed = True")
    assert key(folder, f"{imports}") == first
    (folder / changed).write_text(f"{texts[changed]}\nchanged = True\n")
    assert key(folder, imports) != first


def test_modules_of_other_methods_do_not_matter(folder: Path) -> None:
    (folder / "own_other.py").write_text("")
    first = key(folder)
    importlib.import_module("own_other")
    assert method_key(f"{folder}/mine.py:Mine") == first


def test_a_module_counts_as_it_was_imported_until_it_is_imported_again(folder: Path) -> None:
    helper = folder / "own_helper.py"
    helper.write_text("SCALE = 1")
    first = key(folder, "import own_helper")
    helper.write_text("SCALE = 20")
    assert method_key(f"{folder}/mine.py:Mine") == first
    importlib.reload(sys.modules["own_helper"])
    assert method_key(f"{folder}/mine.py:Mine") != first


def test_imports_that_fail_only_when_needed_do_no_harm(folder: Path) -> None:
    (folder / "own_broken").mkdir()
    (folder / "own_broken" / "__init__.py").write_text("raise RuntimeError('no licence')")
    (folder / "own_broken" / "part.py").write_text("")
    assert key(
        folder, "def later():\n    import own_broken.part\n    import own_missing\n    from own_missing import x"
    )


@pytest.mark.parametrize("name", ["m" * 252 + ".py", "a\nb.py"])
def test_a_name_that_no_record_may_have_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(MINE.format(""))
    with pytest.raises(FsbenchError, match="cannot be recorded"):
        method_key(f"{tmp_path / name}:Mine")


def test_installed_methods_go_by_the_version_of_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("theirs", "fsbench.methods.ncm:NearestClassMean", "fsbench.methods")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    assert method_key("theirs") == "theirs"
    vars(entry)["dist"] = SimpleNamespace(version="1.2")
    assert method_key("theirs") == "theirs@1.2"
    assert all(method_key(name) == name for name in METHODS)
