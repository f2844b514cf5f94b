"""Features in memory, with their names and what is known of their base classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.features.scatter import base_statistics
from fsbench.methods.base import Context
from fsbench.ranks import ALONE

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import FeatureFile, Split
    from fsbench.ranks import Ranks
    from fsbench.report.progress import Reporter
    from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class Source:
    """One split that tasks are drawn from.

    Attributes:
        dataset: Name of the data set.
        backbone: Name of the backbone.
        split_name: `novel`, `val` or `base`.
        split: The features.
        base: Statistics of the base classes, if there are any.
        crops: Crops per image that the features are averaged over.
    """

    dataset: str
    backbone: str
    split_name: str
    split: Split
    base: BaseStatistics | None
    crops: int = 1

    def context(self, protocol: TaskProtocol) -> Context:
        """What defaults of methods may depend on."""
        return Context(
            balanced=protocol.balanced,
            shots=protocol.shots,
            dataset=self.dataset,
            alpha=protocol.alpha or 2.0,
            base=self.base,
        )


def load_source(file: FeatureFile, split: str, base: BaseStatistics | None) -> Source:
    """Read a split of a feature file together with what belongs to it."""
    made = file.provenance
    return Source(made.dataset, made.backbone, split, file.read(split), base, made.crops)


def base_of(file: FeatureFile, reporter: Reporter, ranks: Ranks = ALONE) -> BaseStatistics | None:
    """Statistics of the file's base classes, read or computed; None if it has none."""
    if "base" not in file.splits:
        return None
    with reporter.bar(f"scatter of {file.path.name}", 2 * file.summary("base").rows) as advance:
        return ranks.first_alone(lambda: base_statistics(file, advance))
