"""What a method is: a class of annotated parameters, with its facts and `classify`. Importing this needs no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    dataclass_transform,
    get_type_hints,
    runtime_checkable,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fsbench.errors import FsbenchError, unknown_name, wanted
from fsbench.tasks.protocol import ALPHA

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods.images.networks import ImageNetwork
    from fsbench.tasks.batch import TaskBatch

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Prior = Literal["none", "uniform", "free"]


@dataclass(frozen=True)
class Variants:
    """Variants of a method: the words that may follow its name, as in `bavardage:released`."""

    parameter: str  # that the word sets
    values: tuple[str, ...]  # the words, the default first
    in_all: tuple[str, ...] = ()  # those that `all` runs beside the default
    without_base: tuple[str, ...] = ()  # those that need no base classes, although the method does


@dataclass(frozen=True)
class MethodInfo:
    """The facts of a method. A method of your own needs a name, and `needs_base` if it uses the base classes."""

    name: str  # as typed on the command line; `title` is as printed, the name by default
    title: str = ""
    reference: str = ""  # authors, title, venue; `url` is a page of it
    # whether a query's answer depends on the other queries; `transductive_by` are values of parameters that make it
    # otherwise: `{"variant": {"transductive": True}}`
    transductive: bool = True
    # what it assumes of the class proportions among the queries: `none` (no role), `uniform`, or `free` (estimated)
    prior: Prior = "none"
    needs_base: bool = False
    # whether it uses the text prototypes of the classes: not at all, where there are some, or it needs them
    text: Literal["", "optional", "needed"] = ""
    zero_shot: bool = False  # whether it works without any labelled image, from text alone
    variants: Variants | None = None
    # parameters that tuning searches, with their values: about 50 cells, or a dozen along a single parameter or where a
    # cell takes minutes; never the number of iterations
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    # its names in published tables, each with the values of parameters that such a row belongs to; parameters that are
    # not named may have any value
    published: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    # `fast`: closed-form steps. `slow`: hundreds of gradient steps, so that a run keeps what is solved so far.
    # `network`: a network is adapted to every task, which takes seconds.
    cost: Literal["fast", "slow", "network"] = "fast"
    # values of parameters that make the prior another one: `{"mixing": {"uniform": "uniform"}}`
    prior_by: Mapping[str, Mapping[Any, Prior]] = field(default_factory=dict)
    # raised when the same parameters give other results. Records and tuned parameters of an earlier version are not
    # used.
    version: int = 1
    starts_from: str = ""  # method whose result it starts from, and should not end below
    url: str = ""
    # empty for methods on features. Methods on images name their network: `features` is the one that made the features,
    # anything else, such as `conv4-maml`, the weights of that name for the data set.
    network: str = ""
    # variants that need another network, or none: `{"head": ""}`
    network_by: Mapping[str, str] = field(default_factory=dict)
    transductive_by: Mapping[str, Mapping[Any, bool]] = field(default_factory=dict)
    order: int = 1000  # place in lists and tables; methods of users come last

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    def network_for(self, params: Mapping[str, Any]) -> str:
        """The network that the method needs with these parameters; empty if it works on features."""
        return self.network_by.get(self._variant(params), self.network)

    def needs_base_for(self, params: Mapping[str, Any]) -> bool:
        """Whether the method needs statistics of base classes with these parameters."""
        return self.needs_base and not (self.variants and self._variant(params) in self.variants.without_base)

    def _variant(self, params: Mapping[str, Any]) -> str:
        return str(params.get(self.variants.parameter, self.variants.values[0])) if self.variants else ""

    def assumes(self, params: Mapping[str, Any], alpha: float | None = None) -> str:
        """What the method assumes with these parameters, as tables say it: `inductive`, or the prior it has.

        It is told α if its prior is the α that the tasks are drawn with, and not merely the usual one.
        """
        transductive, prior = self.transductive, self.prior
        for name, words in self.transductive_by.items():
            transductive = words.get(params.get(name), transductive)
        if not transductive:
            return "inductive"
        for name, priors in self.prior_by.items():
            prior = priors.get(params.get(name), prior)
        told = prior == "free" and alpha not in (None, ALPHA) and params.get("prior_alpha") == alpha
        return ("no" if prior == "none" else prior) + " prior" + (", told α" if told else "")


@dataclass(frozen=True)
class Context:
    """What the defaults of a method may depend on."""

    balanced: bool  # whether the classes are equally frequent among the queries
    shots: int = 1
    preset: str = ""  # benchmark whose published parameters to use, such as `mini`; else the general defaults
    alpha: float | None = None  # α of the Dirichlet distribution of the class proportions, where it is known
    base: BaseStatistics | None = None
    network: ImageNetwork | None = None  # for methods on images


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Method:
    """Base class of methods: parameters, facts and `classify`.

    Annotated fields are the parameters, which are checked when an object is made and cannot be changed afterwards; a
    field that does not take part in comparisons (`compare=False`) is not one.
    """

    info: ClassVar[MethodInfo]
    preprocessing: ClassVar[str] = "UN"  # of rows, by `embed`: UN, L2N, CL2N, or power, the first half of PT and PLC
    depends_on: ClassVar[tuple[str, ...]] = ()  # files that a method of the user reads; those it imports count anyway
    later: ClassVar[tuple[str, ...]] = ("calibration",)  # parameters that records of before do not have, see `params`
    # temperature T of the final probabilities, p^(1/T) normalised: above 1 they are less confident, answers stay
    calibration: Positive = 1.0

    def __init_subclass__(cls) -> None:
        """Every method is a dataclass; `__setattr__` below freezes it, so that a decorator of its own does no harm."""
        if Method in cls.__bases__:  # which is no dataclass, so that methods may be decorated as any
            cls.__annotations__["calibration"] = Positive
            cls.calibration = field(default=1.0, kw_only=True)
        dataclass(frozen=True)(cls)
        del cls.__setattr__, cls.__delattr__

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r}")

    def __post_init__(self) -> None:
        for name, kind in _checks(type(self)).items():
            try:
                object.__setattr__(self, name, kind.validate_python(getattr(self, name)))
            except ValidationError as error:
                raise FsbenchError(f"{name} must be {wanted(error.errors())}, got {getattr(self, name)!r}.") from None

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults for the context, overridden by the options; unknown options are refused."""
        names = [*_checks(cls)]
        for name in options:
            if name not in names:
                raise unknown_name(f"parameter of {cls.info.name}", name, names)
        return cls(**{**cls.defaults(context), **options})

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """Defaults that depend on the context; the others are those of the fields."""
        return {}

    @classmethod
    def can_tune(cls) -> bool:
        """Whether it has a grid to search, or learns its parameters."""
        return bool(cls.info.grid) or issubclass(cls, Learnable)

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Any:
        """Map raw features (M, D) row by row to what `classify` works on, once for a whole split.

        Returns one tensor, or several by the names of their spaces.
        """
        return prepared(self.preprocessing, features, base, self.info.title)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Class probabilities of the queries, (B, Q, K). No host synchronisation, no loop over tasks."""
        raise NotImplementedError

    def memory_per_task(self, samples: int) -> int:
        """An estimate of the bytes that one task of so many images takes, beside its rows and their inner products."""
        return 0

    def outlier_scores(self, tasks: TaskBatch, probabilities: Tensor) -> Tensor:
        """How little queries look like the classes of their task (B, Q), given their probabilities (B, Q, K).

        The default, best on val classes, is the distance to the nearest class of the support: see `strangeness`.
        """
        from fsbench.methods.centroids import strangeness  # noqa: PLC0415 - torch takes seconds to import

        return strangeness(tasks)

    def calibrated(self, probabilities: Tensor) -> Tensor:
        """Calibrated probabilities (B, Q, K)."""
        if self.calibration == 1:
            return probabilities
        powers = (probabilities / probabilities.amax(dim=2, keepdim=True)) ** (1 / self.calibration)
        return powers / powers.sum(dim=2, keepdim=True)

    def values(self) -> dict[str, Any]:
        """All parameters as plain data; JSON knows no infinity, so that one is a word."""
        values = {name: getattr(self, name) for name in _checks(type(self))}
        return {name: "inf" if value == math.inf else value for name, value in values.items()}

    def params(self) -> dict[str, Any]:
        """The parameters as records have them: those that came `later` are left out at their default."""
        usual = {name for name in self.later if getattr(self, name) == getattr(type(self), name)}
        return {name: value for name, value in self.values().items() if name not in usual}


@runtime_checkable
class Learnable(Protocol):
    """A method whose parameters tuning learns by gradient, in place of searching a grid."""

    def learn(self, labelled: Sequence[tuple[TaskBatch, Tensor]], free: Collection[str]) -> dict[str, float | str]:
        """New values of the free parameters, from tasks with the labels (B, Q) of their queries."""


def _read_checks(cls: Any) -> dict[str, TypeAdapter[Any]]:
    """What checks each parameter of a method: its annotation, strictly, but for whole numbers that stand for floats."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise FsbenchError(
            f"The annotations of {cls.__name__} cannot be read: {error}.", "Import types outside `if TYPE_CHECKING`."
        ) from error
    strict = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return {one.name: TypeAdapter(hints[one.name], config=strict) for one in fields(cls) if one.compare}


_checks: Callable[[Any], dict[str, TypeAdapter[Any]]] = functools.cache(_read_checks)


def require_base(base: BaseStatistics | None, name: str) -> BaseStatistics:
    """The base statistics, or an error that says who needs them."""
    if base is None:
        raise FsbenchError(
            f"{name} needs statistics of the base classes, and there are none.",
            "Give those of another feature file of the same backbone with --base FILE, use the images of large tasks "
            "with --base pool, or choose a method that needs none, such as pt-map. From Python: "
            "base=BaseStatistics.fit(features, labels), or base='pool'.",
        )
    return base


def prepared(chain: str, features: Tensor, base: BaseStatistics | None, name: str) -> Tensor:
    """Rows (M, D) after a chain of row-level pre-processing; `power` is the first half of PT and PLC."""
    from fsbench.features.preprocess import apply_rows, power_rows  # noqa: PLC0415 - torch takes seconds to import

    if chain == "power":
        return power_rows(features)
    return apply_rows(chain, features, require_base(base, name).mean.to(features) if chain == "CL2N" else None)
