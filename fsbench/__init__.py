"""fsbench: benchmark transductive few-shot classification.

The few names of the Python interface are imported when they are first used, so that `import fsbench` itself costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsbench.api import compare as compare
    from fsbench.api import evaluate as evaluate
    from fsbench.api import extract as extract
    from fsbench.api import label as label
    from fsbench.api import predict as predict
    from fsbench.backbones.load import load_backbone as load_backbone
    from fsbench.errors import FsbenchError as FsbenchError
    from fsbench.features.scatter import BaseStatistics as BaseStatistics
    from fsbench.features.store import FeatureFile as FeatureFile
    from fsbench.tasks.protocol import TaskProtocol as TaskProtocol
    from fsbench.tasks.sampling import sample_tasks as sample_tasks

__version__ = "0.1.0"
_HOMES = {
    **dict.fromkeys(("compare", "evaluate", "extract", "label", "predict"), "fsbench.api"),
    "BaseStatistics": "fsbench.features.scatter",
    "FeatureFile": "fsbench.features.store",
    "FsbenchError": "fsbench.errors",
    "TaskProtocol": "fsbench.tasks.protocol",
    "load_backbone": "fsbench.backbones.load",
    "sample_tasks": "fsbench.tasks.sampling",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
