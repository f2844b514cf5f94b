"""What the completion of the shell needs: answers without heavy imports, and words with a colon in them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, redirect_stdout
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperOption

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def completing() -> Iterator[None]:
    """Answer the shell's completion fast, if it asks."""
    if "_FSBENCH_COMPLETE" not in os.environ:
        yield
        return
    known, finder = {*sys.modules}, Hollow()
    sys.meta_path.insert(0, finder)
    try:
        with _values_as_typed(), _colons_within_words():
            yield
    finally:
        sys.meta_path.remove(finder)
        for name in {*sys.modules} - known:
            if name.partition(".")[0] in _HEAVY:  # it is hollow, or has something hollow in it
                del sys.modules[name]


@contextmanager
def _values_as_typed() -> Iterator[None]:
    """Do not convert values, which nobody reads: typer would import pydantic for it, longer than all else takes."""
    for kind in (TyperArgument, TyperOption):
        kind.process_value = lambda self, ctx, value: value  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind in (TyperArgument, TyperOption):
            del kind.process_value  # both inherit it


@contextmanager
def _colons_within_words() -> Iterator[None]:
    """Let bash complete words with a colon in them, which it passes and replaces in parts: `bavardage`, `:`, `rel`."""
    if os.environ["_FSBENCH_COMPLETE"] != "complete_bash":
        yield
        return
    current = int(os.environ["COMP_CWORD"])
    words: list[str] = []
    for place, word in enumerate(os.environ["COMP_WORDS"].split("\n")[: current + 1]):
        if place > 1 and (word == ":" or words[-1].endswith(":")):
            words[-1] += word
        else:
            words.append(word)
    joined = len(words) <= current
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        lines = printed.getvalue().splitlines(keepends=True)
        sys.stdout.writelines(line.rpartition(":")[2] if joined else line for line in lines)


_LIGHT = (
    *("fsbench.cli", "fsbench.errors", "fsbench.ranks", "fsbench.methods.base"),
    *("fsbench.methods.catalog", "fsbench.methods.registry"),
    *("fsbench.tasks.protocol", "fsbench.data.catalog", "fsbench.backbones.families", "fsbench.train.settings"),
)
_HEAVY = ("fsbench", "torch", "pydantic")


class Hollow:
    """Imports nothing in place of modules that take long: for the shell's completion, options are all that matters."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Every module of fsbench that completion does without, and the libraries behind them."""
        kept = any(f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in _LIGHT)
        heavy = name.partition(".")[0] in _HEAVY and not kept
        return ModuleSpec(name, self, is_package=True) if heavy else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module in which everything is found, and is nothing."""
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(Nothing, name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


class _OfNothing(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class Nothing(metaclass=_OfNothing):
    """Stands for whatever a hollow module should have."""
