"""The images and networks that belong to a feature file, for methods that work on images.

Images, networks and the packages that read them are loaded when the first such method runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fsbench.backbones.families import TIMM
from fsbench.backbones.find_weights import candidates, find_weights, shipped_weights
from fsbench.data.catalog import DATASETS, EMBEDDED
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import EvalTransform
    from fsbench.features.store import FeatureFile
    from fsbench.methods.images.networks import ImageNetwork

FEATURES = "features"  # the network that made the features


@dataclass(frozen=True)
class ImageLoader:
    """Where methods on images look for the images and weights that belong to a feature file."""

    data: Path = Path("data")  # folder of data sets
    weights: Path = Path("weights")  # folder of checkpoints
    _loaded: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def unavailable(self, network: str, file: FeatureFile, split: str, reporter: Reporter) -> FsbenchError | None:
        """Why methods with this network cannot run on a feature file; None if they can. No image is decoded."""
        try:
            self._weights(network, file)
            self._images(file, split, reporter)
        except FsbenchError as error:
            return error
        return None

    def network(self, name: str, file: FeatureFile) -> ImageNetwork:
        """The network of that name for the images of a feature file."""
        from fsbench.methods.images.networks import load_network  # noqa: PLC0415 - timm takes seconds to import

        key = file.path, name
        if key not in self._loaded:
            made, weights = file.provenance, self._weights(name, file)
            backbone, transform = (made.backbone, _transform_of(file)) if name == FEATURES else ("", None)
            self._loaded[key] = load_network(weights, made.dataset, backbone=backbone, transform=transform)
        network: ImageNetwork = self._loaded[key]
        return network

    def _weights(self, name: str, file: FeatureFile) -> Path | int:
        """The weights file of a network, or the seed of its random weights."""
        made = file.provenance
        if name == FEATURES:
            return self._weights_of_features(file)
        if candidates(self.weights, made.dataset, name) or candidates(shipped_weights(), made.dataset, name):
            return find_weights(self.weights, made.dataset, name)
        message = f"No weights {name} for {made.dataset}: expected {self.weights / made.dataset / name}.safetensors."
        raise FsbenchError(message, "Train them with fsbench train, or name another folder with --weights-dir.")

    def _weights_of_features(self, file: FeatureFile) -> Path | int:
        made = file.provenance
        if seed := re.fullmatch(r"none, seed (\d+)", made.weights):
            return int(seed[1])
        if not made.weights_sha256 or made.imported:
            message = f"{file.path} does not say which weights its features were made with."
            raise FsbenchError(message, "Methods on images need features from fsbench extract.")
        for root in (self.weights, shipped_weights()):
            for path in sorted(root.rglob(escape(made.weights))):
                if path.is_file() and sha256_of(path) == made.weights_sha256:
                    return path
        if made.backbone.startswith(TIMM):
            from fsbench.backbones.timm_models import find_timm_weights  # noqa: PLC0415 - timm takes seconds to import

            path = find_timm_weights(self.weights, made.dataset, made.backbone)
            if sha256_of(path) == made.weights_sha256:
                return path
        wanted = f"{made.weights} with SHA-256 {made.weights_sha256[:8]}…"
        message = f"The weights that made the features of {file.path} are not under {self.weights}/: {wanted}."
        raise FsbenchError(message, f"Put them into {self.weights / made.dataset}, or name their folder: --weights-dir")

    def _images(self, file: FeatureFile, split: str, reporter: Reporter) -> ImageSplit:
        """The images of a split, in the order of the rows of the feature file; missing and other ones are refused."""
        from fsbench.data.dataset import FolderImages, ImageSplit, first_names  # noqa: PLC0415
        from fsbench.data.pixels import pixel_cache  # noqa: PLC0415
        from fsbench.data.scan import choose_datasets  # noqa: PLC0415 - images are seldom needed
        from fsbench.features.image_hashes import INDEX, UNREADABLE, image_hashes  # noqa: PLC0415

        if (file.path, split) in self._loaded:
            known: ImageSplit = self._loaded[file.path, split]
            return known
        names, hashes = file.images(split)
        name, summary = file.provenance.dataset, file.summary(split)
        if not names or not hashes:
            raise FsbenchError(f"{file.path} does not say which images it has.", "Make it with fsbench extract.")
        if name in DATASETS:
            rendered = name != EMBEDDED or (self.data / EMBEDDED).exists()
            notes = Reporter(silent=True) if rendered else reporter  # extract already showed these notes
            (dataset,) = choose_datasets(name, None, self.data, notes)
            root, reader = dataset.root, next(iter(dataset.splits.values())).reader
            present = {image for one in dataset.splits.values() for image in one.images}
        else:
            root = self.data / name
            reader, present = FolderImages(root), set(names)
        labels = np.repeat(np.arange(len(summary.class_names)), np.diff(summary.offsets))
        images = ImageSplit(split, summary.class_names, labels, tuple(names), reader, name)
        lost = [image for image in names if image not in present]
        contents = [] if lost else image_hashes([images], pixel_cache(self.data) / INDEX, reporter)
        lost += [image for image, value in zip(names, contents, strict=False) if value.startswith(UNREADABLE)]
        if lost:
            message = f"{len(lost):,} of {len(names):,} images of {file.path} ({split}) are not in {root}"
            hint = f"Put the images of {name} under the folder of --data-dir, or extract the features again."
            raise FsbenchError(f"{message}: {first_names(lost)}.", hint)
        if other := [image for image, *pair in zip(names, hashes, contents, strict=False) if pair[0] != pair[1]]:
            message = f"{len(other):,} of {len(names):,} images in {root} are not those that {file.path} ({split}) has"
            hint = "Restore the images, or extract the features again."
            raise FsbenchError(f"{message}: {first_names(other)}.", hint)
        found = self._loaded[file.path, split] = replace(images, hashes=tuple(contents))
        return found

    def pixels(self, file: FeatureFile, split: str, network: ImageNetwork, reporter: Reporter) -> NDArray[np.uint8]:
        """(M, S · S · 3) pixels of the images of a split, as the network wants them."""
        from fsbench.data.pixels import decode, pixel_cache  # noqa: PLC0415 - images are seldom needed

        transform = network.transform
        key = file.path, split, json.dumps({**asdict(transform), "mean": None, "std": None})
        if key not in self._loaded:
            images = self._images(file, split, reporter)
            self._loaded[key] = decode(images, transform, pixel_cache(self.data), reporter).pixels
        pixels: NDArray[np.uint8] = self._loaded[key]
        return pixels.reshape(len(pixels), -1)


def _transform_of(file: FeatureFile) -> EvalTransform | None:
    """The transform that a file's features were made with; None for random crops, and where it is not stated."""
    from fsbench.data.transforms import EvalTransform  # noqa: PLC0415 - images are seldom needed

    stated = json.loads(file.provenance.transform or "{}")
    if "crop" not in stated:
        return None
    return EvalTransform(**{**stated, "mean": tuple(stated["mean"]), "std": tuple(stated["std"])})
