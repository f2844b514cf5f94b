"""Methods: one file each, and the table of their names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fsbench.errors import unknown_name

if TYPE_CHECKING:
    from fsbench.methods.base import Method

METHODS = {
    "ncm": "fsbench.methods.ncm:NearestClassMean",
    "soft-kmeans": "fsbench.methods.soft_kmeans:SoftKMeans",
    "bavardage": "fsbench.methods.bavardage:Bavardage",
    "baseline": "fsbench.methods.baseline:Baseline",
    "baseline++": "fsbench.methods.baseline:BaselinePlusPlus",
    "entropy-min": "fsbench.methods.entropy_min:EntropyMin",
    "tim-gd": "fsbench.methods.tim:TimGradient",
    "tim-adm": "fsbench.methods.tim:TimAlternating",
    "alpha-tim": "fsbench.methods.alpha_tim:AlphaTim",
    "alpha-am": "fsbench.methods.alpha_am:AlphaAm",
}


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(importlib.import_module(module), attribute)
    return found
