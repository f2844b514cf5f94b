"""Methods: one file each, and the table of their names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fsbench.errors import unknown_name

if TYPE_CHECKING:
    from fsbench.methods.base import Method

METHODS = {
    "ncm": "fsbench.methods.ncm:NearestClassMean",
    "simpleshot": "fsbench.methods.simpleshot:SimpleShot",
    "bd-cspn": "fsbench.methods.bd_cspn:BdCspn",
    "laplacianshot": "fsbench.methods.laplacianshot:LaplacianShot",
    "pt-map": "fsbench.methods.pt_map:PtMap",
    "bms": "fsbench.methods.bms:Bms",
    "paddle": "fsbench.methods.paddle:Paddle",
    "soft-kmeans": "fsbench.methods.soft_kmeans:SoftKMeans",
    "bavardage": "fsbench.methods.bavardage:Bavardage",
}


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(importlib.import_module(module), attribute)
    return found
