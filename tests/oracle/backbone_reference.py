"""The networks of the field written a second time, straight from their descriptions, on plain state dicts.

Nothing here uses fsbench. `backbone_keys/` lists the keys and shapes of published checkpoints, where
`{w,b,rm,rv,nbt}` stands for the five entries of a batch norm.
"""

import re
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, batch_norm, conv2d, leaky_relu, max_pool2d, relu

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


def convolve(state: State, name: str, maps: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
    return conv2d(maps, state[f"{name}.weight"], state.get(f"{name}.bias"), stride, padding)


def resnet12(state: State, images: Tensor, block: str, shortcut: str) -> Tensor:
    """Four blocks, slope 0.1 everywhere, 2×2 max-pool after each, average of what is left."""
    maps = images
    for number in range(4):
        here = block.format(number, number + 1)
        out = leaky_relu(normalise(state, f"{here}bn1", convolve(state, f"{here}conv1", maps)), 0.1)
        out = leaky_relu(normalise(state, f"{here}bn2", convolve(state, f"{here}conv2", out)), 0.1)
        out = normalise(state, f"{here}bn3", convolve(state, f"{here}conv3", out))
        side = normalise(state, f"{here}{shortcut}.1", convolve(state, f"{here}{shortcut}.0", maps, padding=0))
        maps = max_pool2d(leaky_relu(out + side, 0.1), 2)
    return maps.mean(dim=(2, 3))


def conv4(state: State, images: Tensor) -> Tensor:
    """Four blocks of convolution, batch norm, ReLU and 2×2 max-pool; what is left, at 2×2 positions, in one row."""
    maps = images
    for block in ("blocks.0", "blocks.1", "blocks.2", "blocks.3"):
        maps = max_pool2d(relu(normalise(state, f"{block}.bn", convolve(state, f"{block}.conv", maps))), 2)
    return adaptive_avg_pool2d(maps, 2).reshape(len(images), -1)


def basic_block(state: State, names: list[str], maps: Tensor, stride: int) -> Tensor:
    """Two convolutions and a shortcut, projected where the stride is 2: their names, each with that of its norm."""
    conv1, norm1, conv2, norm2, side, side_norm = names
    out = relu(normalise(state, norm1, convolve(state, conv1, maps, stride)))
    out = normalise(state, norm2, convolve(state, conv2, out))
    if stride == 2:
        maps = normalise(state, side_norm, convolve(state, side, maps, stride, padding=0))
    return relu(out + maps)


def resnet18(state: State, images: Tensor) -> Tensor:
    """A 3×3 stem without max-pool, then `layer1.0` to `layer4.1`."""
    maps = relu(normalise(state, "bn1", convolve(state, "conv1", images)))
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            parts = ("conv1", "bn1", "conv2", "bn2", "downsample.0", "downsample.1")
            names = [f"layer{stage}.{block}.{part}" for part in parts]
            maps = basic_block(state, names, maps, 2 if stage > 1 and block == 0 else 1)
    return maps.mean(dim=(2, 3))


def closerlook_resnet18(state: State, images: Tensor) -> Tensor:
    """A strided 7×7 stem with max-pool, then `trunk.4` to `trunk.11`."""
    maps = relu(normalise(state, "trunk.1", convolve(state, "trunk.0", images, 2, 3)))
    maps = max_pool2d(maps, 3, 2, 1)
    for index in range(4, 12):
        names = [f"trunk.{index}.{part}" for part in ("C1", "BN1", "C2", "BN2", "shortcut", "BNshortcut")]
        maps = basic_block(state, names, maps, 2 if index in (6, 8, 10) else 1)
    return maps.mean(dim=(2, 3))


def simpleshot_wideresnet(state: State, images: Tensor, blocks: int = 4) -> Tensor:
    """Biases everywhere; the stride sits on the second convolution; the shortcut reads the raw input."""
    maps = convolve(state, "conv1", images)
    for stage in (1, 2, 3):
        for block in range(blocks):
            here = f"layer{stage}.{block}."
            stride = 2 if stage > 1 and block == 0 else 1
            out = convolve(state, f"{here}conv1", relu(normalise(state, f"{here}bn1", maps)))
            out = convolve(state, f"{here}conv2", relu(normalise(state, f"{here}bn2", out)), stride)
            if f"{here}shortcut.0.weight" in state:
                maps = convolve(state, f"{here}shortcut.0", maps, stride, padding=0)
            maps = out + maps
    return relu(normalise(state, "bn1", maps)).mean(dim=(2, 3))


def s2m2_wideresnet(state: State, images: Tensor, maximum: bool = False) -> Tensor:
    """No biases; the stride sits on the first convolution; the shortcut reads the activated input."""
    maps = convolve(state, "conv1", images)
    for stage in (1, 2, 3):
        for block in range(4):
            here = f"block{stage}.layer.{block}."
            stride = 2 if stage > 1 and block == 0 else 1
            active = relu(normalise(state, f"{here}bn1", maps))
            out = convolve(state, f"{here}conv1", active, stride)
            out = convolve(state, f"{here}conv2", relu(normalise(state, f"{here}bn2", out)))
            if f"{here}convShortcut.weight" in state:
                maps = convolve(state, f"{here}convShortcut", active, stride, padding=0)
            maps = out + maps
    maps = relu(normalise(state, "bn1", maps))
    return maps.amax(dim=(2, 3)) if maximum else maps.mean(dim=(2, 3))
