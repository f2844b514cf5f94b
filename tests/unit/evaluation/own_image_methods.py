"""Small methods on images, as a user may write them: `file.py:CLASS`."""

from typing import ClassVar

import torch
from torch import Tensor

from fsbench.data.pixels import normalised
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import MethodInfo, Variants
from fsbench.methods.images.networks import ImageMethod
from fsbench.tasks.batch import TaskBatch


def nearest_mean(features: Tensor, tasks: TaskBatch) -> Tensor:
    """(B, Q, K) probabilities by the distance to the class means of features (B, N, D)."""
    support, queries = features[:, : tasks.support_size], features[:, tasks.support_size :]
    weights = tasks.one_hot().to(features)
    means = weights @ support / weights.sum(dim=2, keepdim=True)
    return (-(torch.cdist(queries, means) ** 2)).softmax(dim=2)


class MeanOfNetwork(ImageMethod):
    """The nearest class mean, on L2-normalised features that it computes from the images of every task itself."""

    info: ClassVar[MethodInfo] = MethodInfo(
        "mean-of-network", "Mean of network", "", transductive=False, prior="none", cost="network", network="features"
    )

    def classify(self, tasks: TaskBatch) -> Tensor:
        assert self.network is not None
        side = self.network.transform.crop
        images = tasks.rows.flatten(end_dim=1).unflatten(1, (side, side, 3))
        features = self.network.backbone(normalised(images, self.network.transform))
        features = torch.nn.functional.normalize(features, dim=1).unflatten(0, tasks.rows.shape[:2])
        return nearest_mean(features, tasks)


class MeanColour(ImageMethod):
    """The nearest class mean of the colours; `other` takes other weights, `plain` works on features."""

    variant: str = "usual"
    info: ClassVar[MethodInfo] = MethodInfo(
        "mean-colour", "Mean colour", "", transductive=False, prior="none", network="colours",
        network_by={"other": "colours-other", "plain": ""}, variants=Variants("variant", ("usual", "other", "plain")),
    )  # fmt: skip

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        return features

    def classify(self, tasks: TaskBatch) -> Tensor:
        rows = tasks.rows.float()
        return nearest_mean(rows if self.network is None else rows.unflatten(2, (-1, 3)).mean(dim=2), tasks)
