"""Methods: one file each, and the table of their names.

A method comes from one of three places: the table below, an installed package that has an entry point in the group
`fsbench.methods`, or a file of the user's, named as `path/to/file.py:CLASS`.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
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
    from fsbench.features.provenance import is_name

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
    from fsbench.methods._own import content_digest

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
