"""Methods: one file each, and the table of their names.

A method comes from one of three places: the table below, an installed package that has an entry point in the group
`fsbench.methods`, or a file of the user's, named as `path/to/file.py:CLASS`.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec

    from fsbench.methods.base import Method


METHODS = {
    "ncm": "fsbench.methods.ncm:NearestClassMean",
    "simpleshot": "fsbench.methods.simpleshot:SimpleShot",
    "baseline": "fsbench.methods.baseline:Baseline",
    "baseline++": "fsbench.methods.baseline:BaselinePlusPlus",
    "entropy-min": "fsbench.methods.entropy_min:EntropyMin",
    "laplacianshot": "fsbench.methods.laplacianshot:LaplacianShot",
    "bd-cspn": "fsbench.methods.bd_cspn:BdCspn",
    "pt-map": "fsbench.methods.pt_map:PtMap",
    "bms": "fsbench.methods.bms:Bms",
    "tim-gd": "fsbench.methods.tim:TimGradient",
    "tim-adm": "fsbench.methods.tim:TimAlternating",
    "alpha-tim": "fsbench.methods.alpha_tim:AlphaTim",
    "paddle": "fsbench.methods.paddle:Paddle",
    "alpha-am": "fsbench.methods.alpha_am:AlphaAm",
    "soft-kmeans": "fsbench.methods.soft_kmeans:SoftKMeans",
    "bavardage": "fsbench.methods.bavardage:Bavardage",
}
# The word after the colon in `bavardage:released` is a value of this parameter.
VARIANT_PARAMETER = {"bavardage": "variant", "simpleshot": "norm"}
# Variants that need no base classes, although their method does.
WITHOUT_BASE = ("simpleshot:UN", "simpleshot:L2N")
BASELINE = "soft-kmeans"  # what others are compared to unless told otherwise
ENTRY_POINTS = "fsbench.methods"


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name, or from `path/to/file.py:CLASS`."""
    if ".py:" in name:
        return _from_file(name)
    if name in METHODS:
        module, _, attribute = METHODS[name].partition(":")
        found: type[Method] = getattr(importlib.import_module(module), attribute)
        return found
    plugins = {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}
    if name not in plugins:
        raise unknown_name("method", name, [*METHODS, *plugins])
    return _checked(plugins[name].load(), name)


def split_variant(label: str) -> tuple[str, dict[str, Any]]:
    """`bavardage:released` as a method's name and the option that the word stands for."""
    name, colon, word = label.partition(":")
    if not colon or ".py:" in label:
        return label, {}
    if name not in VARIANT_PARAMETER:
        raise FsbenchError(f"{name} has no variants, got {label!r}.", f"Variants: {', '.join(VARIANT_PARAMETER)}.")
    return name, {VARIANT_PARAMETER[name]: word}


def plain_label(label: str) -> str:
    """A label without a variant that the method has anyway: `bavardage:article` is `bavardage`."""
    name, options = split_variant(label)
    return name if all(getattr(method_class(name), key, None) == word for key, word in options.items()) else label


def needs_base(label: str) -> bool:
    """Whether a method, or a variant of it, needs statistics of base classes."""
    return label not in WITHOUT_BASE and method_class(split_variant(label)[0]).info.needs_base


def method_names() -> list[str]:
    """All names: the table's, then those of installed packages."""
    return [*METHODS, *(entry.name for entry in metadata.entry_points(group=ENTRY_POINTS) if entry.name not in METHODS)]


def method_key(name: str) -> str:
    """The name under which results are recorded.

    For a file of the user's it changes with the content of the file and of what it imports, for a method of an
    installed package with the version of the package.
    """
    from fsbench.features.store import is_name

    if name in METHODS:
        return name
    key = _file_key(name) if ".py:" in name else _plugin_key(name)
    if not is_name(key):
        raise FsbenchError(
            f"The method {key!r} cannot be recorded: its name is too long, or has characters that cannot be printed.",
            "Give the file or the class another name.",
        )
    return key


def _file_key(name: str) -> str:

    _from_file(name)  # which may extend the places that modules are imported from
    path, _, attribute = name.rpartition(":")
    return f"{Path(path).name}:{attribute}@{content_digest(Path(path))}"


def _plugin_key(name: str) -> str:
    dists = [entry.dist for entry in metadata.entry_points(group=ENTRY_POINTS) if entry.name == name]
    return f"{name}@{dists[-1].version}" if dists and dists[-1] else name


def _from_file(name: str) -> type[Method]:
    path, _, attribute = name.rpartition(":")
    if not Path(path).is_file():
        raise FsbenchError(f"No such file: {path}.", "A method of your own is named as path/to/file.py:CLASS.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise FsbenchError(f"{path} cannot be imported: {type(error).__name__}: {error}.") from error
    if not hasattr(module, attribute):
        raise unknown_name(
            f"class of {path}", attribute, [key for key, value in vars(module).items() if hasattr(value, "classify")]
        )
    return _checked(getattr(module, attribute), name)


def _checked(found: Any, name: str) -> type[Method]:
    """A class that has what a method needs, or an error that says what is missing."""
    missing = [part for part in ("info", "configure", "embed", "classify", "params") if not hasattr(found, part)]
    if missing:
        raise FsbenchError(
            f"{name} is not a method: it lacks {', '.join(missing)}.",
            "Subclass fsbench.methods.base.Parameters, and give it info, embed and classify.",
        )
    checked: type[Method] = found
    return checked


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
