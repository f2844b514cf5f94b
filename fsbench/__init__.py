"""fsbench: benchmark transductive few-shot classification.

The few names of the Python interface are imported when they are first used, so that `import fsbench` itself costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsbench.api import compare, evaluate, extract, predict, trajectory
    from fsbench.backbones.load import load_backbone
    from fsbench.errors import FsbenchError
    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import FeatureFile
    from fsbench.tasks.protocol import TaskProtocol
    from fsbench.tasks.sampling import sample_tasks

__version__ = "0.1.0"

__all__ = [
    "BaseStatistics",
    "FeatureFile",
    "FsbenchError",
    "TaskProtocol",
    "compare",
    "evaluate",
    "extract",
    "load_backbone",
    "predict",
    "sample_tasks",
    "trajectory",
]

_HOMES = {
    "BaseStatistics": "fsbench.features.scatter",
    "FeatureFile": "fsbench.features.store",
    "FsbenchError": "fsbench.errors",
    "TaskProtocol": "fsbench.tasks.protocol",
    "compare": "fsbench.api",
    "evaluate": "fsbench.api",
    "extract": "fsbench.api",
    "load_backbone": "fsbench.backbones.load",
    "predict": "fsbench.api",
    "sample_tasks": "fsbench.tasks.sampling",
    "trajectory": "fsbench.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
