"""The `output.plk` of SimpleShot and LaplacianShot: base means first, then vectors by class."""

from __future__ import annotations

from fsbench.exchange.found import Found, Opened
from fsbench.exchange.layouts import by_class

LAYOUT = "base mean and vectors by class (SimpleShot, LaplacianShot)"
REMARKS = (
    "the file holds the mean of the base features but not the features themselves; methods that need base classes need "
    "a file of them too",
    "classes are numbered in the order of their names as text ('103' before '11')",
)


def recognise(content: object) -> bool:
    """Whether it is a list of four with the classes in third place, or of two with the classes in second."""
    return isinstance(content, list) and len(content) in {2, 4} and by_class.recognise(content[len(content) // 2])


def read(opened: Opened, dataset: str, split: str) -> Found:
    """The vectors by class; means and logits are left out."""
    assert isinstance(opened.content, list)
    found = by_class.read_classes(opened, opened.content[len(opened.content) // 2], LAYOUT)
    return Found(LAYOUT, found.parts, (*found.remarks, *REMARKS))
