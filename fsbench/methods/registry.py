"""The table of methods by name, and those that come from elsewhere.

A method comes from one of three places: the table below, an installed package that has an entry point in the group
`fsbench.methods`, or a file of the user's, named as `path/to/file.py:CLASS`.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError, unknown_name
from fsbench.io.files import is_name
from fsbench.methods.base import Context
from fsbench.methods.catalog import INFOS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from fsbench.methods.base import Method, MethodInfo

METHODS = {
    "ncm": "fsbench.methods.ncm:NearestClassMean",
    "simpleshot": "fsbench.methods.simpleshot:SimpleShot",
    "baseline": "fsbench.methods.baseline:Baseline",
    "baseline++": "fsbench.methods.baseline:BaselinePlusPlus",
    "maml": "fsbench.methods.maml:Maml",
    "versa": "fsbench.methods.versa:Versa",
    "entropy-min": "fsbench.methods.entropy_min:EntropyMin",
    "laplacianshot": "fsbench.methods.laplacianshot:LaplacianShot",
    "bd-cspn": "fsbench.methods.bd_cspn:BdCspn",
    "pt-map": "fsbench.methods.pt_map:PtMap",
    "bms": "fsbench.methods.bms:Bms",
    "protolp": "fsbench.methods.proto_lp:ProtoLp",
    "ilpc": "fsbench.methods.ilpc:Ilpc",
    "tim-gd": "fsbench.methods.tim:TimGradient",
    "tim-adm": "fsbench.methods.tim:TimAlternating",
    "alpha-tim": "fsbench.methods.alpha_tim:AlphaTim",
    "paddle": "fsbench.methods.paddle:Paddle",
    "unem-gaussian": "fsbench.methods.unem:UnemGaussian",
    "am": "fsbench.methods.alpha_am:Am",
    "alpha-am": "fsbench.methods.alpha_am:AlphaAm",
    "soft-kmeans": "fsbench.methods.soft_kmeans:SoftKMeans",
    "bavardage": "fsbench.methods.bavardage:Bavardage",
}
BASELINE = "soft-kmeans"  # what others are compared to unless told otherwise
BASELINE_WITHOUT_BASE = "simpleshot:L2N"  # the same where there are no base classes
ENTRY_POINTS = "fsbench.methods"


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name, or from `path/to/file.py:CLASS`."""
    if ".py:" in name:
        return _from_file(name)
    if name.endswith(".py"):
        raise FsbenchError(f"{name} names a file, but not the class in it.", f"Write {name}:CLASS.")
    found = installed_class(name)
    if found is None:
        raise unknown_name("method", name, method_names())
    return found


def installed_class(name: str) -> type[Method] | None:
    """The class of a method of fsbench or of an installed package; None for any other name. No file is executed."""
    if name in METHODS:
        module, _, attribute = METHODS[name].partition(":")
        return _checked(getattr(importlib.import_module(module), attribute), name)
    entry = _plugins().get(name)
    return _checked(entry.load(), name) if entry else None


def method_info(name: str) -> MethodInfo:
    """What is known of a method, by its name, or from `path/to/file.py:CLASS`."""
    return installed_info(name) or method_class(name).info


def installed_info(name: str) -> MethodInfo | None:
    """What is known of a method of fsbench or of an installed package; None for any other name."""
    if name in INFOS:
        return INFOS[name]
    found = installed_class(name)
    return found.info if found else None


def method_names() -> list[str]:
    """All names: the table's, then those of installed packages."""
    return [*METHODS, *(name for name in _plugins() if name not in METHODS)]


def _plugins() -> dict[str, EntryPoint]:
    from importlib import metadata  # noqa: PLC0415 - most completions of the shell do without

    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}


def split_variant(label: str) -> tuple[str, dict[str, Any]]:
    """`bavardage:released` as a method's name and the option that the word stands for."""
    name, colon, word = label.partition(":")
    if not colon or ".py:" in label:
        return label, {}
    variants = method_info(name).variants
    if variants is None:
        raise FsbenchError(f"{name} has no variants, got {label!r}.", f"Use {name}.")
    if word not in variants.values:
        raise unknown_name(f"variant of {name}", word, variants.values)
    return name, {variants.parameter: word}


def plain_label(label: str) -> str:
    """A label without a variant that the method has anyway: `bavardage:article` is `bavardage`."""
    name, options = split_variant(label)
    variants = method_info(name).variants
    return name if variants and variants.default in options.values() else label


def needs_base(label: str) -> bool:
    """Whether a method, or a variant of it, needs statistics of base classes."""
    name, options = split_variant(label)
    info = method_info(name)
    spared = info.variants.without_base if info.variants else ()
    return info.needs_base and not any(word in spared for word in options.values())


def learns(name: str) -> bool:
    """Whether tuning learns the parameters of a method by gradient, in place of searching a grid."""
    return INFOS[name].learned if name in INFOS else hasattr(method_class(name), "learn")


def can_tune(name: str) -> bool:
    """Whether a method has a grid to search, or learns its parameters."""
    return bool(method_info(name).grid) or learns(name)


def told(label: str) -> dict[str, str]:
    """What a method, or a variant of it, is told beside the task, and what it makes of it; and the same when blind."""
    name, options = split_variant(label)
    method: Any = method_class(name)
    found = {"base classes": "statistics of their features"} if needs_base(label) else {}
    if not hasattr(method, "defaults"):  # a method that resolves its parameters in its own way
        return found
    params = {
        (balanced, shots): method(**{**method.defaults(Context(balanced, shots)), **options}).params()
        for balanced in (False, True)
        for shots in (1, 5)
    }
    usual, many, even = params[False, 1], params[False, 5], params[True, 1]
    by_setting = [key for key in usual if any(params[True, n][key] != params[False, n][key] for n in (1, 5))]
    if by_setting:
        found["balanced or not"] = "; ".join(
            f"{key} = {_by_shots(even[key], params[True, 5][key])} on balanced tasks, "
            f"else {_by_shots(usual[key], many[key])}"
            for key in by_setting
        )
    if by_shots := [key for key in usual if usual[key] != many[key] and key not in by_setting]:
        found["shots"] = ", ".join(f"{key} = {_by_shots(usual[key], many[key])}" for key in by_shots)
    uniform = [setting == "uniform prior" for setting in map(method.info.assumes, (usual, even))]
    if any(uniform):
        found["class proportions"] = (
            f"assumed to be equal {'in every setting' if all(uniform) else 'on balanced tasks'}"
        )
    if "prior_alpha" in usual and not all(uniform):
        found["sampler's α"] = f"only with --prior-alpha sampler, else prior_alpha = {usual['prior_alpha']:g}"
    blind = ", ".join(f"{key} = {_by_shots(usual[key], many[key])}" for key in by_setting)
    still = "; equal class proportions are still assumed" if all(uniform) else ""
    found["with --blind"] = (f"{blind} in every setting" if blind else "the same") + still
    return found


def _by_shots(one: Any, five: Any) -> str:
    """The value of a parameter, for 1 and for 5 shots where it differs."""
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in (one, five)]
    return shown[0] if one == five else f"{shown[0]} (1-shot) or {shown[1]} (5-shot)"


def method_key(name: str) -> str:
    """The name under which results are recorded.

    For a file of the user's it changes with the content of the file and of what it imports, for a method of an
    installed package with the version of the package.
    """
    if name in METHODS:
        return name
    if ".py:" in name:
        _from_file(name)  # which may extend the places that modules are imported from
        path, _, attribute = name.rpartition(":")
        key = f"{Path(path).name}:{attribute}@{content_digest(Path(path))}"
    else:
        entry = _plugins().get(name)
        key = f"{name}@{entry.dist.version}" if entry and entry.dist else name
    if not is_name(key):
        raise FsbenchError(
            f"The method {key!r} cannot be recorded: its name is too long, or has characters that cannot be printed.",
            "Give the file or the class another name.",
        )
    return key


def _from_file(name: str) -> type[Method]:
    path, _, attribute = name.rpartition(":")
    if not Path(path).is_file():
        raise FsbenchError(f"No such file: {path}.", "A method of your own is named as path/to/file.py:CLASS.")
    module = _execute(Path(path).resolve(), Path(path).read_bytes())
    if not hasattr(module, attribute):
        methods = [key for key, value in vars(module).items() if hasattr(value, "classify")]
        raise unknown_name(f"class of {path}", attribute, methods)
    return _checked(getattr(module, attribute), name)


@functools.cache
def _execute(path: Path, text: bytes) -> ModuleType:
    """A file of the user's as a module. The same content is executed once per process, for all its classes."""
    name = f"{path.stem}@{hashlib.sha256(text).hexdigest()[:8]}"  # no module that can be imported has such a name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module there
    try:
        exec(compile(text, path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise FsbenchError(f"{path} cannot be imported: {type(error).__name__}: {error}.") from error
    return module


def _checked(found: type[Method], name: str) -> type[Method]:
    """A class that has what a method needs, or an error that says what is missing."""
    missing = [part for part in ("info", "configure", "embed", "classify", "params") if not hasattr(found, part)]
    if missing:
        raise FsbenchError(
            f"{name} is not a method: it lacks {', '.join(missing)}.",
            "Subclass fsbench.methods.base.Parameters, and give it info, embed and classify.",
        )
    return found


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
            if spec.submodule_search_locations is None:  # what follows is not a module
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
    installed = not _INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _not_users())
    return spec.has_location and path.is_file() and not installed


@functools.cache
def _not_users() -> list[Path]:
    """The folders of fsbench and of the standard library."""
    library = (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
    return [Path(__file__).resolve().parent.parent, *library]


def _content(spec: ModuleSpec, origin: str) -> bytes:
    """A module's file; once imported, as it was when first seen, since a process keeps what it imported."""
    before = _seen.get(spec.name)
    if before and before[0] is spec:
        return before[1]
    content = Path(origin).read_bytes()
    if spec.name in sys.modules:
        _seen[spec.name] = spec, content
    return content
