"""Images in place of features: where they and the networks for them are found, for methods that work on images.

Images, networks and the packages that read them are loaded when the first such method runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.backbones.families import TIMM
from fsbench.backbones.find_weights import candidates, find_weights, shipped_weights
from fsbench.data.catalog import EMBEDDED, dataset_names
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import EvalTransform
    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.source import Source
    from fsbench.features.store import FeatureFile
    from fsbench.methods.networks import ImageNetwork

FEATURES = "features"  # the network that made the features


@dataclass(frozen=True)
class ImagePlaces:
    """Where methods on images look for the images and weights that belong to a feature file.

    Attributes:
        data: Folder of data sets.
        weights: Folder of checkpoints.
    """

    data: Path = Path("data")
    weights: Path = Path("weights")
    _networks: dict[tuple[str, Path], ImageNetwork] = field(default_factory=dict, init=False, repr=False, compare=False)
    _images: dict[tuple[Path, str], ImageSplit] = field(default_factory=dict, init=False, repr=False, compare=False)
    _tables: dict[tuple[Path, str, str], NDArray[np.uint8]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def source_for(
        self, network: str, source: Source, file: FeatureFile, runner: Runner, *, planned: bool = False
    ) -> Source:
        """A source with the network of that name, and with the pixels of the images as rows in place of features.

        If the run is only `planned`, the rows remain features, as decoding images takes time.
        """
        found = self.network(network, file)
        if planned:
            return replace(source, image_network=found)
        reporter = runner.reporter
        pixels: Any = runner.ranks.first_alone(lambda: self.pixels(file, source.split_name, found, reporter))
        return replace(source, image_network=found, split=replace(source.split, features=pixels))

    def missing(self, network: str, file: FeatureFile, split: str, runner: Runner) -> FsbenchError | None:
        """Why methods with this network cannot run on a feature file; None if they can. No image is decoded."""
        try:
            self._weights(network, file)
            runner.ranks.first_alone(lambda: self.images(file, split, runner.reporter))
        except FsbenchError as error:
            return error
        return None

    def network(self, name: str, file: FeatureFile) -> ImageNetwork:
        """The network of that name for the images of a feature file."""
        from fsbench.backbones.load import load_backbone  # noqa: PLC0415 - timm takes seconds to import
        from fsbench.methods.networks import ImageNetwork, load_network  # noqa: PLC0415

        if (name, file.path) in self._networks:
            return self._networks[name, file.path]
        made, weights = file.provenance, self._weights(name, file)
        if name != FEATURES and isinstance(weights, Path):
            found = load_network(weights, made.dataset)
        elif isinstance(weights, Path):
            found = load_network(weights, made.dataset, backbone=made.backbone, transform=_transform_of(file))
        elif transform := _transform_of(file):
            found = ImageNetwork(load_backbone(made.backbone, random_seed=weights), transform, {}, {})
        else:
            raise FsbenchError(
                f"{file.path} averages random crops of a network with random weights.", "Extract it with one crop."
            )
        if name == FEATURES and found.backbone.info.feature_dim != file.dimension:
            raise FsbenchError(
                f"{found.name} gives {found.backbone.info.feature_dim} features per image, and {file.path} has "
                f"{file.dimension}.",
                "Extract the features again.",
            )
        self._networks[name, file.path] = found
        return found

    def _weights(self, name: str, file: FeatureFile) -> Path | int:
        """The weights file of a network, or the seed of its random weights."""
        made = file.provenance
        if name == FEATURES:
            return self._weights_of_features(file)
        if candidates(self.weights, made.dataset, name) or candidates(shipped_weights(), made.dataset, name):
            return find_weights(self.weights, made.dataset, name)
        raise FsbenchError(
            f"No weights {name} for {made.dataset}: expected {self.weights / made.dataset / name}.safetensors.",
            "Train them with fsbench train, or name another folder of weights with --weights-dir.",
        )

    def _weights_of_features(self, file: FeatureFile) -> Path | int:
        made = file.provenance
        if seed := re.fullmatch(r"none, seed (\d+)", made.weights):
            return int(seed[1])
        if not made.weights_sha256 or made.imported:
            raise FsbenchError(
                f"{file.path} does not say which weights its features were made with.",
                "Methods on images need features from fsbench extract.",
            )
        for root in (self.weights, shipped_weights()):
            for path in sorted(root.rglob(escape(made.weights))):
                if path.is_file() and sha256_of(path) == made.weights_sha256:
                    return path
        if made.backbone.startswith(TIMM):
            from fsbench.backbones.timm_models import find_timm_weights  # noqa: PLC0415 - timm takes seconds to import

            path = find_timm_weights(self.weights, made.dataset, made.backbone)
            if sha256_of(path) == made.weights_sha256:
                return path
        raise FsbenchError(
            f"The weights that made the features of {file.path} are not under {self.weights}/: expected "
            f"{made.weights} with SHA-256 {made.weights_sha256[:8]}….",
            f"Put the file at {self.weights / made.dataset / made.weights}, or name its folder with --weights-dir.",
        )

    def images(self, file: FeatureFile, split: str, reporter: Reporter) -> ImageSplit:
        """The images of a split, in the order of the rows of the feature file; missing and other ones are refused."""
        if (file.path, split) not in self._images:
            self._images[file.path, split] = self._find_images(file, split, reporter)
        return self._images[file.path, split]

    def _find_images(self, file: FeatureFile, split: str, reporter: Reporter) -> ImageSplit:
        from fsbench.data.choose import choose_datasets  # noqa: PLC0415 - images are seldom needed
        from fsbench.data.dataset import FolderImages, ImageSplit, first_names  # noqa: PLC0415

        names, marks = file.images(split)
        name, summary = file.provenance.dataset, file.summary(split)
        if not names:
            raise FsbenchError(
                f"{file.path} does not name its images, so that methods on images cannot find them.",
                "Make the features with fsbench extract.",
            )
        if name in dataset_names():
            rendered = name != EMBEDDED or (self.data / EMBEDDED).exists()
            heard = Reporter(silent=True) if rendered else reporter  # what else there is to say, extract said
            (dataset,) = choose_datasets(name, None, self.data, heard)
            root, reader = dataset.root, next(iter(dataset.splits.values())).reader
            known = {reader.name(source): source for one in dataset.splits.values() for source in one.sources}
        else:
            root = self.data / name
            reader, known = FolderImages(root), {image: image for image in names}
        lost = [image for image in names if image not in known or reader.mark(known[image]) == -1]
        if lost:
            raise FsbenchError(
                f"{len(lost):,} of {len(names):,} images of {file.path} ({split}) are not in {root}: "
                f"{first_names(lost)}.",
                f"Put the images of {name} under the folder of --data-dir, or extract the features again.",
            )
        pairs = zip(names, marks, strict=True) if marks else ()
        if other := [image for image, mark in pairs if reader.mark(known[image]) != mark]:
            raise FsbenchError(
                f"{len(other):,} of {len(names):,} images in {root} are not those that {file.path} ({split}) was "
                f"extracted from: {first_names(other)}.",
                "Restore the images, or extract the features again.",
            )
        labels = np.repeat(np.arange(len(summary.class_names)), np.diff(summary.offsets))
        return ImageSplit(split, summary.class_names, labels, tuple(known[image] for image in names), reader, name)

    def pixels(self, file: FeatureFile, split: str, network: ImageNetwork, reporter: Reporter) -> NDArray[np.uint8]:
        """(M, S · S · 3) pixels of the images of a split, as the network wants them."""
        from fsbench.data.pixels import open_pixels, pixel_cache  # noqa: PLC0415 - images are seldom needed

        transform = network.transform
        key = file.path, split, json.dumps({**transform.describe(), "mean": None, "std": None})
        if key not in self._tables:
            images = self.images(file, split, reporter)
            pixels = open_pixels(images, transform, pixel_cache(self.data), reporter)
            self._tables[key] = pixels.reshape(len(pixels), -1)
        return self._tables[key]


def _transform_of(file: FeatureFile) -> EvalTransform | None:
    """The transform that a file's features were made with; None for random crops, and where it is not stated."""
    from fsbench.data.transforms import EvalTransform  # noqa: PLC0415 - images are seldom needed

    stated = json.loads(file.provenance.transform or "{}")
    if "crop" not in stated:
        return None
    try:
        return EvalTransform(**{**stated, "mean": tuple(stated["mean"]), "std": tuple(stated["std"])})
    except (KeyError, TypeError) as error:
        raise FsbenchError(
            f"{file.path} states a transform that fsbench does not know.", "Extract it again."
        ) from error
