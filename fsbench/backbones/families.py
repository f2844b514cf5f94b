"""The registry of backbone families: key names, network, transform and published name of each.

This module imports neither torch nor timm: the command line asks it for names alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Widths and depth of a backbone."""

    parts: tuple[str, ...]  # what the names in each part of the network start with; every part has a width
    widths_of: Callable[[float], tuple[int, ...]]  # channels for a base width, or for a widening factor (wrn)
    usual_width: int  # that of the published networks
    blocks: int | None = None  # residual blocks per stage, where the depth varies

    @property
    def standard(self) -> dict[str, Any]:
        """Widths and depth of the published networks."""
        depth = {} if self.blocks is None else {"blocks": self.blocks}
        return {"widths": self.widths_of(self.usual_width), **depth}


SHAPES = {
    "rn12": Shape(
        parts=("layers.0.", "layers.1.", "layers.2.", "layers.3."),
        widths_of=lambda width: (int(width), int(2.5 * width), int(5 * width), int(10 * width)),
        usual_width=64,
    ),
    "rn18": Shape(
        parts=("layer1.0.", "layer2.0.", "layer3.0.", "layer4.0."),
        widths_of=lambda width: (int(width), int(2 * width), int(4 * width), int(8 * width)),
        usual_width=64,
    ),
    "wrn": Shape(  # the stem keeps its 16 channels; depth 28 = 6 · 4 + 4
        parts=("", "layer1.0.", "layer2.0.", "layer3.0."),
        widths_of=lambda factor: (16, round(16 * factor), round(32 * factor), round(64 * factor)),
        usual_width=10,
        blocks=4,
    ),
    "conv4": Shape(
        parts=("blocks.0.", "blocks.1.", "blocks.2.", "blocks.3."),
        widths_of=lambda width: (int(width),) * 4,
        usual_width=64,
    ),
}

Rename = tuple[str, str | Callable[[re.Match[str]], str]]


@dataclass(frozen=True)
class KeyNames:
    """One way to name the tensors of a network.

    A checkpoint is described by one line per tensor, `layer1.0.conv1.weight 64×3×3×3`, with `head` in front of those
    of a classifier, and one line `wrapper emb_func.` if a method wraps the backbone.
    """

    present: tuple[str, ...]  # patterns, see `has_line`; each must match
    absent: tuple[str, ...] = ()  # patterns; none may match
    renames: tuple[Rename, ...] = ()  # substitutions, in order, that lead to the names of this package

    def matches(self, lines: str) -> bool:
        """Whether a checkpoint, described line by line, has such names."""
        found = all(has_line(lines, pattern) for pattern in self.present)
        return found and not any(has_line(lines, pattern) for pattern in self.absent)

    def rename(self, name: str) -> str:
        """The name that this package gives to a tensor."""
        for pattern, replacement in self.renames:
            name = re.sub(pattern, replacement, name)
        return name


def has_line(lines: str, pattern: str) -> bool:
    """Whether a pattern matches one of the lines, up to a space or the end."""
    return re.search(f"^{pattern}( .*)?$", lines, re.MULTILINE) is not None


@dataclass(frozen=True)
class Family:
    """One kind of checkpoint: a network, the key names of its files, and how it was trained and published.

    Public checkpoints of the family are the entries of `weights/manifest.toml` with its name as `variant`.
    """

    name: str  # backbone and origin, e.g. "wrn-s2m2"
    title: str  # the same for readers
    model: str  # name in `fsbench.backbones.networks`; families with the same model have the same tensors
    transform: str  # name of its transforms in `fsbench.data.transforms`
    keys: tuple[KeyNames, ...]  # by which its files are recognised
    options: Mapping[str, Any] = field(default_factory=dict)  # of the network, beside widths and depth
    image_size: int | None = None  # side in pixels that the network needs, if it needs one
    published: str = ""  # backbone column of the published numbers computed with this network, if there are any

    @property
    def backbone(self) -> str:
        """The name on the command line: rn12, rn18, wrn or conv4."""
        return self.name.partition("-")[0]

    @property
    def shape(self) -> Shape:
        """Widths and depth of its backbone."""
        return SHAPES[self.backbone]


def _stage_from_one(match: re.Match[str]) -> str:
    return f"layers.{int(match[1]) - 1}."


_RN18_NAMES = (r"conv1\.weight", r"layer4\.\d\.conv2\.weight")
_RN18_OTHERS = (r"layer\d\.\d+\.conv3\.weight", r"conv1\.bias")
_DOWNSAMPLE: Rename = (r"\.downsample\.", ".shortcut.")
_STEM_7X7 = r"conv1\.weight .*×7×7"
S2M2_NAMES = r"block\d\.layer\.\d+\.conv1\.weight"
_S2M2_RENAMES: tuple[Rename, ...] = ((r"^block(\d)\.layer\.", r"layer\1."), (r"\.convShortcut\.", ".shortcut.0."))

# The first family of a backbone is that of random weights, and of features whose family is not known.
# fmt: off
_ROWS = (
    Family(
        "rn12-easy", "EASY's ResNet-12", model="rn12", transform="easy",
        keys=(KeyNames(present=(r"layers\.\d\.conv3\.weight",)),),
        published="RN12",
    ),
    Family(
        "rn12-metaoptnet", "a ResNet-12 named as in MetaOptNet, RFS, FEAT and LibFewShot",
        model="rn12", transform="metaoptnet",
        keys=(KeyNames(
            present=(r"layer\d\.0\.conv3\.weight",), absent=(r"conv1\.weight",),
            renames=((r"^layer(\d)\.0\.", _stage_from_one), _DOWNSAMPLE),
        ),),
    ),
    Family(
        "rn12-metabaseline", "Meta-Baseline's ResNet-12", model="rn12", transform="metabaseline",
        keys=(KeyNames((r"layer\d\.conv3\.weight",), renames=((r"^layer(\d)\.", _stage_from_one), _DOWNSAMPLE)),),
    ),
    Family(
        "rn18-simpleshot", "a ResNet-18 as in SimpleShot, TIM and PT-MAP", model="rn18", transform="simpleshot",
        keys=(KeyNames(present=_RN18_NAMES, absent=(*_RN18_OTHERS, _STEM_7X7)),),
        published="RN18",
    ),
    Family(
        "rn18-easy", "EASY's ResNet-18", model="rn18", transform="easy",
        keys=(KeyNames(
            present=(r"layers\.\d\.[02]\.conv1\.weight",),
            renames=(  # a ReLU sits between two blocks
                (r"^layers\.(\d)\.(\d)\.", lambda match: f"layer{int(match[1]) + 1}.{int(match[2]) // 2}."),
                (r"\.shortcut\.", ".downsample."),
            ),
        ),),
    ),
    Family(
        "rn18-closerlook", "CloserLook's ResNet-18", model="rn18-7x7", transform="closerlook",
        keys=(KeyNames(
            present=(r"trunk\.\d+\.C1\.weight",),
            renames=(  # the stem is trunk.0 to trunk.3; then every stage has two blocks
                (r"^trunk\.0\.", "conv1."), (r"^trunk\.1\.", "bn1."),
                (r"^trunk\.(\d+)\.(?=\w+\.)", lambda match: f"layer{int(match[1]) // 2 - 1}.{int(match[1]) % 2}."),
                (r"\.C(\d)\.", r".conv\1."), (r"\.BN(\d)\.", r".bn\1."),
                (r"\.shortcut\.", ".downsample.0."), (r"\.BNshortcut\.", ".downsample.1."),
            ),
        ),),
        image_size=224,
    ),
    Family(
        "rn18-torchvision", "torchvision's ResNet-18", model="rn18-7x7", transform="torchvision",
        keys=(KeyNames(present=(*_RN18_NAMES, _STEM_7X7), absent=_RN18_OTHERS),),
        image_size=224,
    ),
    Family(
        "wrn-simpleshot", "a wide ResNet as in SimpleShot and TIM", model="wrn", transform="simpleshot",
        keys=(KeyNames(present=(r"(layer1\.0\.)?conv1\.bias", r"layer3\.\d+\.bn1\.weight"), absent=(r"layer4\..*",)),),
        published="WRN",
    ),
    Family(
        "wrn-libfewshot", "LibFewShot's wide ResNet", model="wrn-s2m2", transform="libfewshot",
        keys=(KeyNames(present=(S2M2_NAMES, r"wrapper emb_func\."), renames=_S2M2_RENAMES),),
        options={"max_pool": True},
    ),
    Family(
        "wrn-s2m2", "a wide ResNet as in S2M2 and PT-MAP", model="wrn-s2m2",
        transform="s2m2",  # PT-MAP crops the same network in its own way: --transform ptmap
        keys=(
            # Unlike LibFewShot's, its files have a head or stand in another wrapper.
            KeyNames(present=(S2M2_NAMES, r"(head|wrapper)"), renames=_S2M2_RENAMES),
            KeyNames(  # what this package writes
                present=(r"conv1\.weight", r"layer3\.\d+\.bn1\.weight"),
                absent=(r".*conv1\.bias", r"layer4\..*", r"layer\d\.\d+\.conv3\.weight"),
            ),
        ),
        published="WRN-S2M2",
    ),
    Family(
        "wrn-easy", "EASY's wide ResNet", model="wrn-s2m2", transform="easy",
        keys=(KeyNames(
            present=(r"blocks\.\d\.layer\.\d+\.conv1\.weight",),
            renames=(
                (r"^blocks\.(\d)\.layer\.", lambda match: f"layer{int(match[1]) + 1}."),
                (r"\.convShortcut\.", ".shortcut.0."), (r"^bn\.", "bn1."),
            ),
        ),),
    ),
    Family(
        "conv4-fsbench", "fsbench's Conv-4", model="conv4", transform="easy",
        keys=(KeyNames(present=(r"blocks\.[0-3]\.conv\.weight",)),),
    ),
)
# fmt: on
FAMILIES: Mapping[str, Family] = {row.name: row for row in _ROWS}
BACKBONES = tuple(SHAPES)
TIMM = "timm/"  # what the name of any other backbone starts with


def first_family(backbone: str) -> Family | None:
    """The family that stands for a backbone where nothing more is known; None for timm and foreign names."""
    return next((row for row in _ROWS if row.backbone == backbone), None)


def describe_architecture(architecture: Mapping[str, Any]) -> str:
    """Widths and depth in words: `widths 16-160-320-640, blocks 4`; empty for a timm model."""
    texts = {**architecture, "widths": "-".join(map(str, architecture["widths"]))} if architecture else {}
    return ", ".join(f"{name} {text}" for name, text in texts.items())
