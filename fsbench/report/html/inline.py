"""SVG inside a page: identifiers of its own, letters and lines in the page's colour."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from fsbench.report.plots.style import INK

if TYPE_CHECKING:
    from collections.abc import Mapping

_DROPPED = ("metadata", "style")  # a style element inside a picture would hold for the whole page


def inline_svg(text: str, prefix: str, label: str) -> str:
    """An SVG's text, made fit to stand in a page beside others.

    Args:
        text: Of an SVG file, as matplotlib writes it.
        prefix: Its identifiers are this and a number, so that those of two pictures never meet.
        label: What the picture shows, for those who do not see it.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(str(child.tag)) in _DROPPED]:
            parent.remove(child)
    found = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    names = {name: f"{prefix}-{number}" for number, name in enumerate(found, start=1)}
    for element in root.iter():
        element.tag = _local(str(element.tag))
        changed = {_local(name): _changed(_local(name), value, names) for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(changed)
    width = root.attrib.pop("width", "").removesuffix("pt")
    root.attrib.pop("height", None)
    root.attrib.update(
        {"role": "img", "aria-label": label, "stroke-linejoin": "round", "style": f"--width: {width or 600}pt"}
    )
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """The name without its namespace: HTML knows by itself what belongs to SVG."""
    return name.rpartition("}")[2]


def _changed(name: str, value: str, names: Mapping[str, str]) -> str:
    if name == "id":
        return names[value]
    if name == "href":
        return "#" + names[value.removeprefix("#")]
    return re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{names[match[1]]})", value).replace(INK, "currentColor")
