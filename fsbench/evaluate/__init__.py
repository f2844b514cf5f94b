"""Evaluation: methods over many tasks, statistics, tuning.

The package has the name of a function of the Python interface, so it can be called as that function:
`fsbench.evaluate(…)` is `fsbench.api.files.evaluate(…)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsbench.report.record import RunRecord


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> RunRecord:
        from fsbench.api.files import evaluate

        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
