"""fsbench: benchmark transductive few-shot classification."""

__version__ = "0.1.0"
