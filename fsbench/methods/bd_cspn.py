"""BD-CSPN."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.features.preprocess import unit_norm
from fsbench.methods.base import Method, MethodInfo, Positive
from fsbench.methods.centroids import class_means, squared_distances, support_and_query
from fsbench.tasks.batch import TaskBatch

TEMPERATURE = 10.0
_TIE = 1e-6  # of cosines, above their rounding errors


class BdCspn(Method):
    """Nearest prototype, after prototypes were rectified with pseudo-labelled queries.

    On CL2N features, queries are shifted onto the support, every sample gets the label of the most similar class mean,
    and prototypes become means weighted with the confidence in those labels. Queries, not shifted, go to the nearest
    one. Transductive; the classes' proportions play no role.
    """

    temperature: Positive = TEMPERATURE  # factor of the cosine similarity in the confidence

    preprocessing = "CL2N"
    info = MethodInfo(
        "bd-cspn", "BD-CSPN", 'Liu, Song, Qin, "Prototype Rectification for Few-Shot Learning", ECCV 2020',
        url="https://arxiv.org/abs/1911.10713", order=90, needs_base=True,
        grid={"temperature": (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0)},
        published={"BD-CSPN": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of minus the squared distance to the rectified prototypes, (B, Q, K)."""
        prototypes = rectified_prototypes(tasks, self.temperature)
        # Departs from the article: Euclidean distance and queries that are not shifted, as behind the published tables
        # of realistic evaluations, instead of the cosine similarity.
        return torch.softmax(-squared_distances(prototypes, support_and_query(tasks)[1]), dim=1).mT


def rectified_prototypes(tasks: TaskBatch, temperature: float) -> Tensor:
    """Prototypes (B, K, D) from support and pseudo-labelled queries."""
    support, query = support_and_query(tasks)
    shift = support.mean(dim=1, keepdim=True) - query.mean(dim=1, keepdim=True)  # cross-class bias
    samples = torch.cat([support, query + shift], dim=1)  # (B, N, D)
    means = class_means(tasks)  # (B, K, D)
    length = torch.linalg.vector_norm(samples, dim=2).clamp_min(1e-12)  # (B, N)
    cosine = unit_norm(means) @ samples.mT / length[:, None, :]  # (B, K, N)
    # Departs from the article: the support is pseudo-labelled too, and no query is left out for low confidence.
    # A tie counts for both classes: the only query of a task with two shots lies halfway between them, once shifted.
    chosen = cosine >= cosine.amax(dim=1, keepdim=True) - _TIE  # (B, K, N)
    confidence = torch.softmax(temperature * cosine, dim=1) * chosen
    count = chosen.sum(dim=2, keepdim=True)  # (B, K, 1)
    # Departs from the article: divided by the number of samples, not by the sum of weights, as in the public programs.
    # So prototypes of uncertain classes are shorter.
    rectified = confidence @ samples / count.clamp_min(1)
    return torch.where(count > 0, rectified, means)  # a class that nothing was assigned to keeps its mean
