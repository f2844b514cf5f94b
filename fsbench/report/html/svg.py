"""Matplotlib figures, prepared for a page with several of them."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from fsbench.report.plots.style import INK

if TYPE_CHECKING:
    from collections.abc import Mapping

_DROPPED = ("metadata", "style")  # a style element inside a figure would hold for the whole page


def inline_svg(text: str, prefix: str, label: str) -> str:
    """An SVG written by matplotlib, prepared for a page with several of them.

    Its identifiers become the prefix and a number, so that no two figures share one. The label says what the figure
    shows, for screen readers.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(str(child.tag)) in _DROPPED]:
            parent.remove(child)
    found = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    names = {name: f"{prefix}-{number}" for number, name in enumerate(found, start=1)}
    for element in root.iter():
        element.tag = _local(str(element.tag))
        element.attrib = {_local(name): _changed(_local(name), value, names) for name, value in element.attrib.items()}
    width = root.attrib.pop("width", "").removesuffix("pt") or 600
    root.attrib.pop("height", None)
    root.attrib |= {"role": "img", "aria-label": label, "stroke-linejoin": "round", "style": f"--width: {width}pt"}
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


def figure(svg: str, label: str, prefix: str, caption: str = "") -> str:
    """A figure in a box that scrolls where the page is narrow."""
    box = f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(label)}'>"
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{box}{inline_svg(svg, prefix, label)}</div>{below}</figure>"
