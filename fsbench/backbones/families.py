"""Recognises whose checkpoint it is by its key names, and gives the keys the names of this package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsbench.backbones import resnet12, resnet18, wideresnet
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from torch import Size, Tensor

    from fsbench.backbones.checkpoints import Checkpoint


HEADS = re.compile(r"(fc|linear|classifier|rotationLinear|linear_rot|rotate)\..+")

Rename = tuple[str, str | Callable[[re.Match[str]], str]]


@dataclass(frozen=True)
class Layout:
    """One way in which the field names the parts of a network.

    Attributes:
        family: The network and its origin, e.g. "wrn-s2m2".
        title: The same for readers.
        present: Patterns of names; each must match some key.
        absent: Patterns of names; none may match any key.
        renames: Substitutions, in order, that lead to the names of this package.
    """

    family: str
    title: str
    present: tuple[str, ...]
    absent: tuple[str, ...] = ()
    renames: tuple[Rename, ...] = ()

    def matches(self, names: str) -> bool:
        """Whether a list of names, one per line, is laid out this way."""
        found = [re.search(f"^{pattern}$", names, re.MULTILINE) for pattern in self.present]
        barred = [re.search(f"^{pattern}$", names, re.MULTILINE) for pattern in self.absent]
        return all(found) and not any(barred)

    def rename(self, name: str) -> str:
        """The name that this package gives to a part."""
        for pattern, replacement in self.renames:
            name = re.sub(pattern, replacement, name)
        return name


def _one_less(match: re.Match[str]) -> str:
    return f"layers.{int(match[1]) - 1}."


def _one_more(match: re.Match[str]) -> str:
    return f"layer{int(match[1]) + 1}."


def _easy_block(match: re.Match[str]) -> str:
    return f"layer{int(match[1]) + 1}.{int(match[2]) // 2}."  # a ReLU sits between two blocks


def _trunk_block(match: re.Match[str]) -> str:
    stage, block = divmod(int(match[1]) - 4, 2)  # the stem is trunk.0 to trunk.3
    return f"layer{stage + 1}.{block}."


LAYOUTS = (
    Layout("rn12-easy", "EASY's ResNet-12", present=(r"layers\.\d\.conv3\.weight",)),
    Layout(
        "rn12-metaoptnet",
        "a ResNet-12 named as in MetaOptNet, RFS, FEAT and LibFewShot",
        present=(r"layer\d\.0\.conv3\.weight",),
        absent=(r"conv1\.weight",),
        renames=((r"^layer(\d)\.0\.", _one_less), (r"\.downsample\.", ".shortcut.")),
    ),
    Layout(
        "rn12-metabaseline",
        "Meta-Baseline's ResNet-12",
        present=(r"layer\d\.conv3\.weight",),
        renames=((r"^layer(\d)\.", _one_less), (r"\.downsample\.", ".shortcut.")),
    ),
    Layout(
        "rn18-simpleshot",
        "a ResNet-18 as in SimpleShot, TIM and PT-MAP",
        present=(r"conv1\.weight", r"layer4\.\d\.conv2\.weight"),
        absent=(r"layer\d\.\d+\.conv3\.weight", r"conv1\.bias"),
    ),
    Layout(
        "rn18-easy",
        "EASY's ResNet-18",
        present=(r"layers\.\d\.[02]\.conv1\.weight",),
        renames=((r"^layers\.(\d)\.(\d)\.", _easy_block), (r"\.shortcut\.", ".downsample.")),
    ),
    Layout(
        "rn18-closerlook",
        "CloserLook's ResNet-18",
        present=(r"trunk\.\d+\.C1\.weight",),
        renames=(
            (r"^trunk\.0\.", "conv1."),
            (r"^trunk\.1\.", "bn1."),
            (r"^trunk\.(\d+)\.(?=\w+\.)", _trunk_block),
            (r"\.C(\d)\.", r".conv\1."),
            (r"\.BN(\d)\.", r".bn\1."),
            (r"\.shortcut\.", ".downsample.0."),
            (r"\.BNshortcut\.", ".downsample.1."),
        ),
    ),
    Layout(
        "wrn-simpleshot",
        "a wide ResNet as in SimpleShot and TIM",
        present=(r"(layer1\.0\.)?conv1\.bias", r"layer3\.\d+\.bn1\.weight"),
        absent=(r"layer4\..*",),
    ),
    Layout(
        "wrn-s2m2",
        "a wide ResNet named as in S2M2, PT-MAP and LibFewShot",
        present=(r"block\d\.layer\.\d+\.conv1\.weight",),
        renames=((r"^block(\d)\.layer\.", r"layer\1."), (r"\.convShortcut\.", ".shortcut.0.")),
    ),
    Layout(
        "wrn-easy",
        "EASY's wide ResNet",
        present=(r"blocks\.\d\.layer\.\d+\.conv1\.weight",),
        renames=(
            (r"^blocks\.(\d)\.layer\.", _one_more),
            (r"\.convShortcut\.", ".shortcut.0."),
            (r"^bn\.", "bn1."),
        ),
    ),
    Layout(  # what this package writes for the two above
        "wrn-s2m2",
        "a wide ResNet without bias",
        present=(r"conv1\.weight", r"layer3\.\d+\.bn1\.weight"),
        absent=(r".*conv1\.bias", r"layer4\..*", r"layer\d\.\d+\.conv3\.weight"),
    ),
)
# Families whose networks have the same tensors once the names are those of this package.
SAME_TENSORS = (
    {"rn12-easy", "rn12-metaoptnet", "rn12-metabaseline"},
    {"rn18-simpleshot", "rn18-easy"},
    {"rn18-closerlook", "rn18-torchvision"},
    {"wrn-simpleshot"},
    {"wrn-s2m2", "wrn-easy", "wrn-libfewshot"},
)


@dataclass(frozen=True)
class Recognised:
    """A checkpoint that was understood.

    Attributes:
        family: The network and its origin.
        title: The same for readers.
        model: The name under which timm knows the network.
        options: Widths and depth, read from the tensors.
        tensors: The weights of the backbone under the names of this package, without heads.
    """

    family: str
    title: str
    model: str
    tensors: Mapping[str, Tensor]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def backbone(self) -> str:
        """The name on the command line: rn12, rn18 or wrn."""
        return self.family.partition("-")[0]


def recognise(checkpoint: Checkpoint) -> Recognised:
    """Decides from names and shapes which network a checkpoint belongs to, and how wide and deep it is."""
    own = {name: tensor for name, tensor in checkpoint.tensors.items() if not HEADS.fullmatch(name)}
    listing = "\n".join(own)
    layout = next((layout for layout in LAYOUTS if layout.matches(listing)), None)
    if layout is None:
        raise FsbenchError(
            f"{checkpoint.path} is not the checkpoint of a known rn12, rn18 or wrn; "
            f"it has {len(own)} tensors: {', '.join(list(own)[:6])}, ….",
            "For any other network give its timm name: --backbone timm/<name>.",
        )
    tensors = {layout.rename(name): tensor for name, tensor in own.items()}
    if len(tensors) < len(own):
        raise FsbenchError(f"{checkpoint.path} looks like {layout.title} but names some parts twice.")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    family = layout.family
    if family.startswith("rn12"):
        return Recognised(family, layout.title, "fsbench_rn12", tensors, {"widths": _rn12_widths(shapes)})
    if family.startswith("rn18"):
        return _resnet18(layout, tensors, shapes)
    return _wideresnet(layout, checkpoint, tensors, shapes)


def _resnet18(layout: Layout, tensors: Mapping[str, Tensor], shapes: Mapping[str, Size]) -> Recognised:
    names = [f"layer{stage}.0." for stage in (1, 2, 3, 4)]
    options = {"widths": _widths(shapes, names, resnet18.STANDARD_WIDTHS)}
    if shapes.get("conv1.weight", (0,))[-1] != 7:
        return Recognised(layout.family, layout.title, "fsbench_rn18", tensors, options)
    if layout.family == "rn18-closerlook":
        return Recognised(layout.family, layout.title, "fsbench_rn18_7x7", tensors, options)
    return Recognised("rn18-torchvision", "torchvision's ResNet-18", "fsbench_rn18_7x7", tensors, options)


def _wideresnet(
    layout: Layout, checkpoint: Checkpoint, tensors: Mapping[str, Tensor], shapes: Mapping[str, Size]
) -> Recognised:
    names = ["", *(f"layer{stage}.0." for stage in (1, 2, 3))]
    blocks = {match[1] for name in shapes if (match := re.match(r"layer1\.(\d+)\.", name))}
    options: dict[str, Any] = {
        "widths": _widths(shapes, names, wideresnet.STANDARD_WIDTHS),
        "blocks": len(blocks) or wideresnet.STANDARD_BLOCKS,
    }
    if layout.family == "wrn-simpleshot":
        return Recognised(layout.family, layout.title, "fsbench_wrn", tensors, options)
    if layout.family == "wrn-s2m2" and layout.renames and _pools_by_maximum(checkpoint):
        options["max_pool"] = True
        return Recognised("wrn-libfewshot", "LibFewShot's wide ResNet", "fsbench_wrn_s2m2", tensors, options)
    return Recognised(layout.family, layout.title, "fsbench_wrn_s2m2", tensors, options)


def _pools_by_maximum(checkpoint: Checkpoint) -> bool:
    """Tells LibFewShot's wide ResNet, which has no head of its own, from S2M2's, which always has one."""
    if checkpoint.wrapper:
        return checkpoint.wrapper == "emb_func."
    if any(HEADS.fullmatch(name) for name in checkpoint.tensors):
        return False
    raise FsbenchError(
        f"{checkpoint.path} is a wide ResNet of S2M2 or of LibFewShot, and does not say which: they share "
        "their key names, but S2M2 averages the last maps and LibFewShot takes their maximum.",
        "Use S2M2's file with its head (linear.*), or LibFewShot's file of the whole method (emb_func.*).",
    )


def _rn12_widths(shapes: Mapping[str, Size]) -> tuple[int, ...]:
    return _widths(shapes, [f"layers.{block}." for block in range(4)], resnet12.STANDARD_WIDTHS)


def _widths(shapes: Mapping[str, Size], prefixes: list[str], standard: tuple[int, ...]) -> tuple[int, ...]:
    """Reads one width per prefix from its first convolution, or from the next tensor if that is missing."""
    widths = []
    for prefix, usual in zip(prefixes, standard, strict=True):
        parts = (shapes.get(f"{prefix}{part}.weight") for part in ("conv1", "conv2", "bn2"))
        widths.append(next((part[0] for part in parts if part), usual))
    return tuple(widths)
