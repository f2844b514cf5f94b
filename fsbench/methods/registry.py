"""Methods by name.

They come from three places: the files of `fsbench/methods`, installed packages with an entry point in the group
`fsbench.methods`, and files of the user, named as `path/to/file.py:CLASS`.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

from fsbench.errors import FsbenchError, unknown_name
from fsbench.io.files import is_name
from fsbench.methods.base import Method, MethodInfo, Variants

BASELINE = "soft-kmeans"  # what others are compared to unless told otherwise
BASELINE_WITHOUT_BASE = "simpleshot:L2N"  # the same where there are no base classes
DEFAULT_WITHOUT_BASE = (BASELINE_WITHOUT_BASE, "lda:ridge", "pt-map", "bms", "tim-adm")  # what to compare there
BASELINE_WITHOUT_SHOTS = "zero-shot"  # the same where there are no labelled images
ENTRY_POINTS = "fsbench.methods"


def _discover() -> Iterator[tuple[MethodInfo, str]]:
    """The facts and `module:CLASS` of every class below this folder that has `info = MethodInfo(…)` in its body.

    The facts are read from the text, without an import of torch: their arguments are literals.
    """
    here, names = Path(__file__).parent, {"MethodInfo": MethodInfo, "Variants": Variants}
    for path in here.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "info = MethodInfo(" not in text:
            continue
        module = ".".join([__package__, *path.relative_to(here).with_suffix("").parts])
        for cls in (one for one in ast.parse(text).body if isinstance(one, ast.ClassDef)):
            for line in cls.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "info":
                    yield eval(compile(ast.Expression(line.value), path, "eval"), names), f"{module}:{cls.name}"


_DISCOVERED = sorted(_discover(), key=lambda pair: pair[0].order)
METHODS = {info.name: place for info, place in _DISCOVERED}
_FACTS = {info.name: info for info, _ in _DISCOVERED}


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name, or from `path/to/file.py:CLASS`: what there is to know hangs on it."""
    if ".py:" in name:
        return _from_file(name)
    if name.endswith(".py"):
        raise FsbenchError(f"{name} names a file, but not the class in it.", f"Write {name}:CLASS.")
    if name in METHODS:
        module, _, attribute = METHODS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    if name not in _plugins():
        raise unknown_name("method", name, method_names())
    return _load(_plugins()[name])


def installed_info(name: str) -> MethodInfo | None:
    """The facts of a method of fsbench or of an installed package, if possible without an import of torch."""
    if name in _FACTS:
        return _FACTS[name]
    return _load(_plugins()[name]).info if name in _plugins() else None


def usual_baseline(*, base: bool, shots: bool = True) -> str:
    """What others are compared to unless told otherwise, with or without base classes and labelled images."""
    return BASELINE_WITHOUT_SHOTS if not shots else BASELINE if base else BASELINE_WITHOUT_BASE


def installed_versions() -> dict[str, int]:
    """The versions of the methods of fsbench."""
    return {name: info.version for name, info in _FACTS.items()}


def method_names() -> list[str]:
    """All names: the methods of fsbench, then those of installed packages, which are not loaded."""
    return [*METHODS, *(name for name in _plugins() if name not in METHODS)]


def working_methods() -> list[str]:
    """The names of all methods that can be loaded; a warning names an installed one that cannot."""
    return [*METHODS, *(name for name, entry in _plugins().items() if name not in METHODS and _works(entry))]


@functools.cache
def _works(entry: EntryPoint) -> bool:
    try:
        return _load(entry) is not None
    except FsbenchError as error:
        warnings.warn(f"{error.message} It is left out.", stacklevel=2)
        return False


def _plugins() -> dict[str, EntryPoint]:
    from importlib import metadata  # noqa: PLC0415 - most completions of the shell do without

    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}


def _load(entry: EntryPoint) -> type[Method]:
    try:
        loaded = entry.load()
    except Exception as error:
        package = f" of the package {entry.dist.name}" if entry.dist else ""
        raise FsbenchError(
            f"The method {entry.name}{package} cannot be loaded: {type(error).__name__}: {error}.",
            "Update or uninstall the package.",
        ) from error
    return _as_method(loaded, entry.name)


def split_variant(label: str) -> tuple[str, dict[str, Any]]:
    """`bavardage:released` as a method's name and the option that the word stands for."""
    name, colon, word = label.partition(":")
    if not colon or ".py:" in label:
        return label, {}
    variants = method_class(name).info.variants
    if variants is None:
        raise FsbenchError(f"{name} has no variants, got {label!r}.", f"Use {name}.")
    if word not in variants.values:
        raise unknown_name(f"variant of {name}", word, variants.values)
    return name, {variants.parameter: word}


def plain_label(label: str) -> str:
    """A label without a variant that the method has anyway: `bavardage:article` is `bavardage`."""
    name, options = split_variant(label)
    variants = method_class(name).info.variants
    return name if variants and variants.values[0] in options.values() else label


def method_key(name: str, cls: type[Method] | None = None) -> str:
    """The name under which results are recorded.

    For a file of the user it changes with the content of the file and of those that the class `depends_on`, as they
    were when the class was loaded: `cls`, if the file may have changed since. For a method of an installed package it
    changes with the version of the package. For both it changes with the versions of what they extend.
    """
    if name in METHODS:
        return name
    if ".py:" in name:
        path, _, attribute = name.rpartition(":")
        key = f"{Path(path).name}:{attribute}@{_LOADED[cls or _from_file(name)][:8]}"
    else:
        entry = _plugins().get(name)
        key = f"{name}@{entry.dist.version}{_extended(cls or _load(entry))}" if entry and entry.dist else name
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
    loaded: Any = getattr(module, attribute, None)
    if loaded in _LOADED and _LOADED[loaded] != _digest_of(loaded):  # what it depends on has changed since
        _execute.cache_clear()
        module = _execute(Path(path).resolve(), Path(path).read_bytes())
    if not hasattr(module, attribute):
        methods = [key for key, value in vars(module).items() if hasattr(value, "classify")]
        raise unknown_name(f"class of {path}", attribute, methods)
    cls = _as_method(getattr(module, attribute), name)
    if cls not in _LOADED:
        _LOADED[cls] = _digest_of(cls)
    return cls


_LOADED: dict[Any, str] = {}  # classes of files, and digests of what they depended on when they were loaded


def _digest_of(cls: type[Method]) -> str:
    """The SHA-256 of the file of a class and of those that it imports or depends on."""
    digest = hashlib.sha256(sys.modules[cls.__module__].__dict__["__text__"] + _extended(cls).encode())
    for name, file in _files_of(cls).items():
        try:
            digest.update(f"\0{name}\0".encode() + file.read_bytes())
        except OSError as error:
            raise FsbenchError(f"{cls.__name__} depends on {name}, which cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def _files_of(cls: type[Method]) -> dict[str, Path]:
    """The files beside its own that the results of a class of the user depend on, by names relative to its folder."""
    path = Path(str(sys.modules[cls.__module__].__file__))
    files = [*_imported(path), *(os.path.realpath(path.parent / other) for other in cls.depends_on)]
    return {os.path.relpath(file, path.parent): Path(file) for file in sorted(files)}


def _extended(cls: type[Method]) -> str:
    """The methods of fsbench that a class of somebody else extends, with their versions; empty if there are none."""
    ours = [one for one in cls.__mro__ if one.__module__.startswith("fsbench.") and "info" in vars(one)]
    return "".join(f"+{one.info.name}{one.info.version}" for one in ours)  # type: ignore[attr-defined]


def _imported(path: Path) -> set[str]:
    """Files of the user that a file imports, also within functions, and those that these import: found by reading."""
    others = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), f"{Path(__file__).parents[1]}{os.sep}")
    found, waiting = set[str](), [path]
    while waiting:
        file = waiting.pop()
        for name, level in _import_statements(file):
            places = [str(one) for one in file.parents[level - 1 : level]] if level else None
            for part in name.split("."):
                finders = sys.meta_path if places is None else [PathFinder]
                spec = next(filter(None, (finder.find_spec(part, places) for finder in finders)), None)
                origin = os.path.realpath(spec.origin) if spec and spec.has_location and spec.origin else ""
                if origin and origin not in found and not any(other in origin for other in others):
                    found.add(origin)
                    waiting += [Path(origin)] * origin.endswith(".py")
                places = [*(spec.submodule_search_locations or ())] if spec else []
    return found


def _import_statements(file: Path) -> Iterator[tuple[str, int]]:
    """What a file imports, as `package.module.name`, and how many packages above it that is."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # whoever executes it says why
        for node in ast.walk(ast.parse(file.read_bytes())):
            start, level = getattr(node, "module", None), getattr(node, "level", 0)
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from ((".".join(filter(None, (start, one.name))), level) for one in node.names)


@functools.cache
def _execute(path: Path, text: bytes) -> ModuleType:
    """A file of the user as a module. The same content is executed once per process, for all its classes.

    What it imports of the user is imported again: these files may have changed since.
    """
    name = f"{path.stem}@{hashlib.sha256(text).hexdigest()[:8]}"  # no module that can be imported has such a name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    loaded = [cls for cls in _LOADED if cls.__module__ in sys.modules]
    files = {*_imported(path), *(str(file) for cls in loaded for file in _files_of(cls).values())}
    for one, other in [*sys.modules.items()]:
        known = os.path.realpath(getattr(other, "__file__", None) or os.sep)
        if "@" not in one and not one.startswith("__") and known in files:
            del sys.modules[one]
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module there
    module.__dict__["__text__"] = text
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a copy of this second would pass for up to date
    try:
        exec(compile(text, path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise FsbenchError(f"{path} cannot be imported: {type(error).__name__}: {error}.") from error
    finally:
        sys.dont_write_bytecode = writes
    return module


def _as_method(cls: Any, name: str) -> type[Method]:
    """A class, if it is that of a method."""
    if isinstance(cls, type) and issubclass(cls, Method) and hasattr(cls, "info"):
        return cls
    raise FsbenchError(
        f"{name} is not a method.", "Subclass fsbench.methods.base.Method, and give it info and classify."
    )
