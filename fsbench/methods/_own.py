"""What a method in a file of the user's consists of: that file, and the user's modules that it imports."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec

_PACKAGE = Path(__file__).resolve().parent.parent
_STANDARD = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
_INSTALLED = {"site-packages", "dist-packages"}
_seen: dict[str, tuple[ModuleSpec, bytes]] = {}


def content_digest(path: Path) -> str:
    """Eight digits of the SHA-256 of a file and of all modules of the user's that it imports, directly or not.

    Imports are read from the text, so the digest does not depend on what else a process has imported. Installed
    packages, the standard library and fsbench do not count.
    """
    text = path.read_bytes()
    found: dict[str, bytes] = {}
    _follow(text, "", found)
    digest = hashlib.sha256(text)
    for name in sorted(found):
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(found[name]).digest())
    return digest.hexdigest()[:8]


def _follow(text: bytes, package: str, found: dict[str, bytes]) -> None:
    """Add the modules that a text imports, and those that they import."""
    for name in _imports(text, package):
        parts = name.split(".")
        for length in range(1, len(parts) + 1):  # importing a module imports the packages it lies in
            prefix = ".".join(parts[:length])
            spec = _spec(prefix)
            if spec is None or not _users(spec):
                break
            if spec.origin is not None and prefix not in found:
                found[prefix] = _content(spec, spec.origin)
                _follow(found[prefix], spec.parent or "", found)
            if spec.submodule_search_locations is None:  # what follows is no module
                break


def _imports(text: bytes, package: str) -> Iterator[str]:
    """Full names of what may be modules, wherever in the text they are imported."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a compiled module
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            within = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*within, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is, if there is one of that name; packages it lies in are imported."""
    with contextlib.suppress(Exception):  # whatever a package raises that is imported only when needed
        return importlib.util.find_spec(name)
    return None


def _users(spec: ModuleSpec) -> bool:
    """Whether a module is the user's own; a folder without `__init__.py` is, whatever lies in it."""
    if spec.origin is None:
        return spec.submodule_search_locations is not None
    path = Path(spec.origin).resolve()
    installed = not _INSTALLED.isdisjoint(path.parts) or any(
        path.is_relative_to(folder) for folder in (*_STANDARD, _PACKAGE)
    )
    return spec.has_location and path.is_file() and not installed


def _content(spec: ModuleSpec, origin: str) -> bytes:
    """A module's file; once imported, as it was when first seen, since a process keeps what it imported."""
    before = _seen.get(spec.name)
    if before and before[0] is spec:
        return before[1]
    content = Path(origin).read_bytes()
    if spec.name in sys.modules:
        _seen[spec.name] = spec, content
    return content
