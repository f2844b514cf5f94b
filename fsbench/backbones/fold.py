"""Folding batch normalisation into the convolutions before it: the same features, fewer passes over memory."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-5


def fold(network: nn.Module, images: Tensor) -> nn.Module:
    """A copy of an eval-mode network with batch normalisation folded, if it gives the same features; else the network.

    Args:
        network: In eval mode.
        images: (B, 3, H, W) on which the features are compared, relative to their size, to 10⁻⁵.
    """
    folded = copy.deepcopy(network)
    for parent in list(folded.modules()):
        for name, child in list(parent.named_children()):
            if _is_block(child):
                setattr(parent, name, _fold_block(child))
    with torch.inference_mode():
        expected, found = network(images), folded(images)
    same = (found - expected).abs().max() <= TOLERANCE * expected.abs().max().clamp_min(1e-30)
    return folded if bool(same) else network


def _is_block(module: nn.Module) -> bool:
    """Whether a module is a smallest one that has both convolutions and batch normalisation below it."""
    kinds = {type(part) for part in module.modules()}
    inside = any(_is_block(child) for child in module.children())
    return {nn.Conv2d, nn.BatchNorm2d} <= kinds and not inside


def _fold_block(block: nn.Module) -> nn.Module:
    """Fold within one block; a block that cannot be traced is left as it is."""
    try:
        traced = fx.symbolic_trace(block)
    except Exception:  # whatever a foreign forward does, the block then stays as it is
        return block
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.args else None
        if not (isinstance(before, fx.Node) and node.op == before.op == "call_module" and len(before.users) == 1):
            continue
        norm, convolution = modules[str(node.target)], modules[str(before.target)]
        if isinstance(norm, nn.BatchNorm2d) and isinstance(convolution, nn.Conv2d) and norm.running_mean is not None:
            traced.set_submodule(str(before.target), fuse_conv_bn_eval(convolution, norm))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced
