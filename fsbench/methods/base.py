"""What a method is: a frozen dataclass of annotated parameters, with its facts and `classify`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, get_type_hints, runtime_checkable

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fsbench.errors import FsbenchError, unknown_name
from fsbench.methods.facts import MethodInfo, Variants

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods.images.networks import ImageNetwork
    from fsbench.tasks.batch import TaskBatch

__all__ = ["Context", "Count", "Method", "MethodInfo", "NonNegative", "Positive", "Share", "Variants"]

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Context:
    """What the defaults of a method may depend on."""

    balanced: bool  # whether the classes are equally frequent among the queries
    shots: int = 1
    preset: str = ""  # benchmark whose published parameters to use, such as `mini`; else the general defaults
    alpha: float | None = None  # α of the Dirichlet distribution of the class proportions, where it is known
    base: BaseStatistics | None = None
    network: ImageNetwork | None = None  # for methods on images


class Method:
    """Base class of methods: frozen dataclasses with their facts and `classify`.

    Annotated fields are the parameters, which are checked when an object is made; a field that does not take part in
    comparisons (`compare=False`) is not one.
    """

    info: ClassVar[MethodInfo]
    preprocessing: ClassVar[str] = "UN"  # of rows, by `embed`: UN, L2N, CL2N, or power, the first half of PT and PLC
    depends_on: ClassVar[tuple[str, ...]] = ()  # files beside a method's own file whose content its results depend on

    def __post_init__(self) -> None:
        for name, kind in _kinds(type(self)).items():
            object.__setattr__(self, name, _checked(kind, name, getattr(self, name)))

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults for the context, overridden by the options; unknown options are refused."""
        names = [*_kinds(cls)]
        for name in options:
            if not names:
                raise FsbenchError(f"{cls.info.name} takes no parameters, got {name}.", f"Leave out {name}.")
            if name not in names:
                raise unknown_name(f"parameter of {cls.info.name}", name, names)
        return cls(**{**cls.defaults(context), **options})

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """Defaults that depend on the context; the others are the dataclass's own."""
        return {}

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Any:
        """Map raw features (M, D) row by row to what `classify` works on, once for a whole split.

        Returns one tensor, or several by the names of their spaces.
        """
        return prepared(self.preprocessing, features, base, self.info.title)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Class probabilities of the queries, (B, Q, K). No host synchronisation, no loop over tasks."""
        raise NotImplementedError

    def params(self) -> dict[str, Any]:
        """The parameters as plain data; JSON knows no infinity, so that one is a word."""
        values = {name: getattr(self, name) for name in _kinds(type(self))}
        return {name: "inf" if value == math.inf else value for name, value in values.items()}


@runtime_checkable
class Learnable(Protocol):
    """A method whose parameters tuning learns by gradient, in place of searching a grid."""

    def learn(self, labelled: Sequence[tuple[TaskBatch, Tensor]], free: Collection[str]) -> dict[str, float | str]:
        """New values of the free parameters, from tasks with the labels (B, Q) of their queries."""


@runtime_checkable
class Demanding(Protocol):
    """A method that takes much memory, and says how much. Its `memory_hint`, if it has one, says what to lower."""

    def memory_per_task(self, samples: int) -> int:
        """Estimate the bytes that one task of so many images takes."""


_KINDS: dict[type, dict[str, TypeAdapter[Any]]] = {}


def _kinds(cls: type) -> dict[str, TypeAdapter[Any]]:
    """What checks each parameter of a method: its annotation, strictly, but for whole numbers that stand for floats."""
    if cls in _KINDS:
        return _KINDS[cls]
    names = [one.name for one in dataclasses.fields(cls) if one.compare] if dataclasses.is_dataclass(cls) else []
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise FsbenchError(
            f"The annotations of {cls.__name__} cannot be read: {error}.", "Import types outside `if TYPE_CHECKING`."
        ) from error
    return _KINDS.setdefault(cls, {name: _adapter(hints[name]) for name in names})


def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def checked(kind: Any, name: str, value: Any) -> Any:
    """A value that is what an annotation says; else an error that names the parameter."""
    return _checked(_adapter(kind), name, value)


def _checked(kind: TypeAdapter[Any], name: str, value: Any) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        parts = (one["msg"].removeprefix("Input should be ").removeprefix("Value error, ") for one in error.errors())
        expected = " or ".join(dict.fromkeys(_WORDS.get(part, part) for part in parts))
        raise FsbenchError(f"{name} must be {expected}, got {value!r}.") from None


_WORDS = {
    "greater than 0": "a positive number",
    "greater than or equal to 0": "a number of at least 0",
    "greater than or equal to 1": "a whole number of at least 1",
    "less than or equal to 1": "at most 1",
    "less than 1": "below 1",
    "a valid number": "a number",
    "a valid integer": "a whole number",
    "a valid boolean": "True or False",
}


def require_base(base: BaseStatistics | None, name: str) -> BaseStatistics:
    """The base statistics, or an error that says who needs them."""
    if base is None:
        raise FsbenchError(
            f"{name} needs statistics of the base classes, and there are none.",
            "Give those of another feature file of the same backbone with --base FILE, or choose a method that needs "
            "none, such as pt-map. From Python: base=BaseStatistics.fit(features, labels).",
        )
    return base


def prepared(chain: str, features: Tensor, base: BaseStatistics | None, name: str) -> Tensor:
    """Rows (M, D) after a chain of row-level pre-processing; `power` is the first half of PT and PLC."""
    from fsbench.features.preprocess import apply_rows, power_rows  # noqa: PLC0415 - torch takes seconds to import

    if chain == "power":
        return power_rows(features)
    return apply_rows(chain, features, require_base(base, name).mean.to(features) if chain == "CL2N" else None)
