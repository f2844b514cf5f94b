"""A folder as a user may have it: features, images, a checkpoint, files of others. All of it small."""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import timm
import torch

from fsbench.data.catalog import dataset_info
from tests.images import write_images
from tests.synthetic import make_features

SHIPPED = Path(__file__).parents[1] / "weights" / "glyphs"


def write_feature_files(folder: Path) -> None:
    """Feature files of the names that documents use, all with the same made-up rows and names of images."""
    features = make_features()
    images = tuple(f"{row}.png" for row in range(len(features.novel.features)))
    features = replace(features, novel=replace(features.novel, images=images))
    (folder / "features").mkdir()
    for dataset, backbone in (("glyphs", "rn12"), ("mini", "wrn"), ("mini", "rn18"), ("cub", "rn18")):
        features.write(folder / "features" / f"{dataset}-{backbone}.h5", dataset, backbone)


def write_photos(folder: Path, classes: int = 25, images: int = 30) -> None:
    """Class folders of small pictures in `photos`, and a checkpoint `my.pth` for them."""
    names = [f"bird{number:02d}" for number in range(classes)]
    write_images(folder, {"photos": names}, images=images)
    shutil.copy(SHIPPED / "rn12.safetensors", folder / "my.pth")


def write_labelling(folder: Path) -> None:
    """`labelled` and `photos`, the download of a page, and a file that names the layers of a network otherwise."""
    write_images(folder, {"labelled": ["Kittiwake", "Tern"]}, images=5)
    (folder / "photos").mkdir()
    for path in sorted((folder / "labelled").rglob("*.png"))[2::5]:
        path.rename(folder / "photos" / f"{path.parent.name}.png")
    (folder / "Downloads").mkdir()
    names = [f"labelled/{name}/000.png,{name},1.0000,checked" for name in ("Kittiwake", "Tern")]
    table = "\n".join(["file,label,confidence,flag", *names])
    (folder / "Downloads" / "labels.csv").write_text(table, encoding="utf-8")
    state = timm.create_model("tf_efficientnet_lite1", num_classes=0).state_dict()
    torch.save({f"_{name}": tensor for name, tensor in state.items()}, folder / "efficientnet-lite1-77cc7160.pth")


def write_pickles(folder: Path) -> None:
    """`base_cub.plk` and `cub.plk`, as PT-MAP and BAVARDAGE keep features: class → list of rows."""
    features = make_features()
    for name, split in (("base_cub", features.base), ("cub", features.novel)):
        rows = {int(label): list(split.features[split.labels == label]) for label in np.unique(split.labels)}
        (folder / f"{name}.plk").write_bytes(pickle.dumps(rows))


def write_clip(folder: Path) -> None:
    """`pets.npz` with names of classes, their text prototypes in `prompts.npz`, and both in one feature file."""
    novel = make_features().novel
    text = np.stack([novel.features[novel.labels == label].mean(axis=0) for label in range(len(novel.class_names))])
    names = np.array(novel.class_names)
    np.savez(folder / "pets.npz", features=novel.features, labels=novel.labels, class_names=names)
    np.savez(folder / "prompts.npz", text=text[::-1], class_names=names[::-1])


def write_mini(folder: Path, images: int = 30) -> None:
    """mini-ImageNet under `data`, with its class names and few pictures, and weights for it."""
    info = dataset_info("mini")
    for split, name, classes, count in (("base", "train", 64, 2), ("val", "val", 16, 1), ("novel", "test", 5, images)):
        write_images(folder / "data" / "mini", {name: list(info.classes(split))[:classes]}, images=count)
    (folder / "weights" / "mini").mkdir(parents=True)
    shutil.copy(SHIPPED / "wrn.safetensors", folder / "weights" / "mini")
