"""The networks of the field written a second time, straight from their descriptions, on plain state dicts.

Nothing here uses fsbench. `backbone_keys/` lists the keys and shapes of published checkpoints, where
`{w,b,rm,rv,nbt}` stands for the five entries of a batch norm.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    batch_norm,
    conv2d,
    leaky_relu,
    max_pool2d,
    relu,
)

State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]

NORM_PARTS = {"w": "weight", "b": "bias", "rm": "running_mean", "rv": "running_var"}


def key_shapes(name: str) -> Shapes:
    """The keys and shapes of a published checkpoint, in file order."""
    shapes: Shapes = {}
    for line in (Path(__file__).parent / "backbone_keys" / f"{name}.txt").read_text().splitlines():
        key, _, shape = line.partition("  ")
        sizes = tuple(int(number) for number in re.findall(r"\d+", shape))
        if key.endswith(".{w,b,rm,rv,nbt}"):
            stem = key.removesuffix("{w,b,rm,rv,nbt}")
            shapes.update({stem + part: sizes for part in NORM_PARTS.values()})
            shapes[f"{stem}num_batches_tracked"] = ()
        else:
            shapes[key] = sizes
    return shapes


def random_state(shapes: Shapes, seed: int = 0) -> State:
    """Random weights with batch-norm statistics that are far from the identity."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for key, shape in shapes.items():
        if key.endswith("num_batches_tracked"):
            state[key] = torch.tensor(1234)
        elif len(shape) == 4:
            fan_in = shape[1] * shape[2] * shape[3]
            state[key] = torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5
        elif key.endswith("running_var") or (len(shape) == 1 and key.endswith("weight")):
            state[key] = 0.5 + torch.rand(shape, generator=generator)
        else:
            state[key] = 0.2 * torch.randn(shape, generator=generator)
    return state


def narrowed(shapes: Shapes, divisor: int) -> Shapes:
    """The same keys with every channel number divided; 3 input channels, kernels and heads' rows are kept."""
    return {
        key: tuple(size // divisor if size % divisor == 0 else size for size in shape[:2]) + shape[2:]
        for key, shape in shapes.items()
    }


def normalise(state: State, name: str, maps: Tensor) -> Tensor:
    parts = [state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
    return batch_norm(maps, parts[0], parts[1], parts[2], parts[3], training=False, eps=1e-5)


def resnet12(state: State, images: Tensor, block: str, shortcut: str) -> Tensor:
    """Four blocks, slope 0.1 everywhere, 2×2 max-pool after each, average of what is left."""
    maps = images
    for number in range(4):
        here = block.format(number, number + 1)
        out = leaky_relu(normalise(state, here + "bn1", conv2d(maps, state[here + "conv1.weight"], padding=1)), 0.1)
        out = leaky_relu(normalise(state, here + "bn2", conv2d(out, state[here + "conv2.weight"], padding=1)), 0.1)
        out = normalise(state, here + "bn3", conv2d(out, state[here + "conv3.weight"], padding=1))
        side = conv2d(maps, state[f"{here}{shortcut}.0.weight"])
        maps = max_pool2d(leaky_relu(out + normalise(state, f"{here}{shortcut}.1", side), 0.1), 2)
    return adaptive_avg_pool2d(maps, 1).flatten(1)


def conv4(state: State, images: Tensor) -> Tensor:
    """Four blocks of convolution, batch norm, ReLU and 2×2 max-pool; what is left, at 2×2 positions, in one row."""
    maps = images
    for block in ("blocks.0", "blocks.1", "blocks.2", "blocks.3"):
        out = normalise(state, f"{block}.bn", conv2d(maps, state[f"{block}.conv.weight"], padding=1))
        maps = max_pool2d(relu(out), 2)
    return adaptive_avg_pool2d(maps, 2).reshape(len(images), -1)


def resnet18(state: State, images: Tensor) -> Tensor:
    """A 3×3 stem without max-pool, then `layer1.0` to `layer4.1`."""
    maps = relu(normalise(state, "bn1", conv2d(images, state["conv1.weight"], padding=1)))
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            here = f"layer{stage}.{block}."
            stride = 2 if stage > 1 and block == 0 else 1
            out = relu(normalise(state, here + "bn1", conv2d(maps, state[here + "conv1.weight"], None, stride, 1)))
            out = normalise(state, here + "bn2", conv2d(out, state[here + "conv2.weight"], padding=1))
            if stride == 2:
                maps = conv2d(maps, state[here + "downsample.0.weight"], None, stride)
                maps = normalise(state, here + "downsample.1", maps)
            maps = relu(out + maps)
    return adaptive_avg_pool2d(maps, 1).flatten(1)


def closerlook_resnet18(state: State, images: Tensor) -> Tensor:
    """A strided 7×7 stem with max-pool, then `trunk.4` to `trunk.11`."""
    maps = relu(normalise(state, "trunk.1", conv2d(images, state["trunk.0.weight"], None, 2, 3)))
    maps = max_pool2d(maps, 3, 2, 1)
    for index in range(4, 12):
        here = f"trunk.{index}."
        stride = 2 if index in (6, 8, 10) else 1
        out = relu(normalise(state, here + "BN1", conv2d(maps, state[here + "C1.weight"], None, stride, 1)))
        out = normalise(state, here + "BN2", conv2d(out, state[here + "C2.weight"], padding=1))
        if stride == 2:
            maps = conv2d(maps, state[here + "shortcut.weight"], None, stride)
            maps = normalise(state, here + "BNshortcut", maps)
        maps = relu(out + maps)
    return adaptive_avg_pool2d(maps, 1).flatten(1)


def simpleshot_wideresnet(state: State, images: Tensor, blocks: int = 4) -> Tensor:
    """Biases everywhere; the stride sits on the second convolution; the shortcut reads the raw input."""
    maps = conv2d(images, state["conv1.weight"], state["conv1.bias"], padding=1)
    for stage in (1, 2, 3):
        for block in range(blocks):
            here = f"layer{stage}.{block}."
            stride = 2 if stage > 1 and block == 0 else 1
            out = relu(normalise(state, here + "bn1", maps))
            out = conv2d(out, state[here + "conv1.weight"], state[here + "conv1.bias"], padding=1)
            out = relu(normalise(state, here + "bn2", out))
            out = conv2d(out, state[here + "conv2.weight"], state[here + "conv2.bias"], stride, 1)
            if here + "shortcut.0.weight" in state:
                side = state[here + "shortcut.0.weight"], state[here + "shortcut.0.bias"]
                maps = conv2d(maps, side[0], side[1], stride)
            maps = out + maps
    return adaptive_avg_pool2d(relu(normalise(state, "bn1", maps)), 1).flatten(1)


def s2m2_wideresnet(
    state: State, images: Tensor, stage_name: str = "block{1}", last: str = "bn1", maximum: bool = False
) -> Tensor:
    """No biases; the stride sits on the first convolution; the shortcut reads the activated input."""
    maps = conv2d(images, state["conv1.weight"], padding=1)
    for stage in range(3):
        for block in range(4):
            here = f"{stage_name.format(stage, stage + 1)}.layer.{block}."
            stride = 2 if stage > 0 and block == 0 else 1
            active = relu(normalise(state, here + "bn1", maps))
            out = conv2d(active, state[here + "conv1.weight"], None, stride, 1)
            out = conv2d(relu(normalise(state, here + "bn2", out)), state[here + "conv2.weight"], padding=1)
            if here + "convShortcut.weight" in state:
                maps = conv2d(active, state[here + "convShortcut.weight"], None, stride)
            maps = out + maps
    maps = relu(normalise(state, last, maps))
    pooled = adaptive_max_pool2d(maps, 1) if maximum else adaptive_avg_pool2d(maps, 1)
    return pooled.flatten(1)
