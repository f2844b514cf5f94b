"""What a method is: its information, its parameters, and the functions it must have."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

from fsbench.errors import FsbenchError, unknown_name
from fsbench.tasks.protocol import ALPHA

Prior = Literal["none", "uniform", "free"]
Cost = Literal["fast", "slow", "network"]

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods.networks import ImageNetwork
    from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class Variants:
    """Variants of a method: the words that may follow its name, as in `bavardage:released`."""

    parameter: str  # that the word sets
    values: tuple[str, ...]  # the words, the default first
    in_all: tuple[str, ...] = ()  # those that `all` runs beside the default
    without_base: tuple[str, ...] = ()  # those that need no base classes, although the method does

    @property
    def default(self) -> str:
        """The variant that a name without a word stands for."""
        return self.values[0]

    def suffix(self, params: Mapping[str, Any]) -> str:
        """What follows the name of the method with these parameters: `:released`; nothing for the default."""
        word = params.get(self.parameter, self.default)
        return "" if word == self.default else f":{word}"


@dataclass(frozen=True)
class MethodInfo:
    """All that is known of a method beside its parameters. Nothing else lists methods or facts about them.

    Attributes:
        name: As typed on the command line; `title` is as printed.
        reference: Authors, title, venue; `url` is a page of it, if one is known for certain.
        transductive: Whether a query's answer depends on the other queries; `transductive_by` are values of parameters
            that make it otherwise: `{"variant": {"transductive": True}}`.
        prior: What it assumes of the class proportions among the queries: `none` (no role), `uniform`, or `free`
            (estimated).
        prior_by: Values of parameters that make the prior another one: `{"mixing": {"uniform": "uniform"}}`.
        grid: Parameters that tuning searches, with their values: about 50 cells, or a dozen along a single parameter
            or where a cell takes minutes; never the number of iterations.
        version: Raised when the same parameters give other results. Records and tuned parameters of an earlier version
            are not used.
        published: Its names in published tables, each with the values of parameters that such a row belongs to;
            parameters that are not named may have any value.
        cost: `fast`: closed-form steps. `slow`: hundreds of gradient steps, so that a run says how long it will take.
            `network`: a network is adapted to every task, which takes seconds.
        network: Empty for methods on features. Methods on images name their network: `features` is the one that made
            the features, anything else, such as `conv4-maml`, the weights of that name for the data set.
        network_by: Variants that need another network, or none: `{"head": ""}`.
        learned: Whether tuning learns its parameters by gradient, in place of searching a grid (`learn`).
        starts_from: Method whose result it starts from, and should not end below.
    """

    name: str
    title: str
    reference: str
    transductive: bool
    prior: Prior
    needs_base: bool = False
    variants: Variants | None = None
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    published: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    cost: Cost = "fast"
    prior_by: Mapping[str, Mapping[Any, Prior]] = field(default_factory=dict)
    version: int = 1
    starts_from: str = ""
    url: str = ""
    network: str = ""
    network_by: Mapping[str, str] = field(default_factory=dict)
    learned: bool = False
    transductive_by: Mapping[str, Mapping[Any, bool]] = field(default_factory=dict)

    def network_for(self, options: Mapping[str, Any]) -> str:
        """The network that the method needs with these options; empty if it works on features."""
        if not self.network_by or self.variants is None:
            return self.network
        word = options.get(self.variants.parameter, self.variants.default)
        return self.network_by.get(word, self.network)

    def assumes(self, params: Mapping[str, Any], alpha: float | None = None) -> str:
        """What the method assumes with these parameters, as tables say it: `inductive`, or the prior it has.

        It is told α if its prior is the α that the tasks are drawn with, and not merely the usual one.
        """
        transductive = self.transductive
        for name, words in self.transductive_by.items():
            transductive = words.get(params.get(name), transductive)
        if not transductive:
            return "inductive"
        prior = self.prior
        for name, priors in self.prior_by.items():
            prior = priors.get(params.get(name), prior)
        told = prior == "free" and alpha not in (None, ALPHA) and params.get("prior_alpha") == alpha
        return {"none": "no prior", "uniform": "uniform prior", "free": "free prior"}[prior] + (
            ", told α" if told else ""
        )


@dataclass(frozen=True)
class Context:
    """What the defaults of a method may depend on."""

    balanced: bool  # whether the classes are equally frequent among the queries
    shots: int = 1
    preset: str = ""  # benchmark whose published parameters to use, such as `mini`; else the general defaults
    alpha: float | None = None  # α of the Dirichlet distribution of the class proportions, where it is known
    base: BaseStatistics | None = None
    network: ImageNetwork | None = None  # for methods on images


class Method(Protocol):
    """A frozen dataclass of hyper-parameters with two pure functions."""

    info: ClassVar[MethodInfo]

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """Resolve options and the defaults of a setting into parameters."""

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Map raw features (M, D) row by row to what `classify` works on. Done once for a whole split."""

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Class probabilities of the queries, (B, Q, K). No host synchronisation, no loop over tasks."""

    def params(self) -> dict[str, Any]:
        """The resolved parameters as plain data, for records."""


@runtime_checkable
class Stepwise(Method, Protocol):
    """A method that can be watched at work."""

    def assignments(self, tasks: TaskBatch) -> Iterator[Tensor]:
        """Soft assignments (B, K, Q) of the queries after every step; `classify` takes the last."""


@runtime_checkable
class Learnable(Method, Protocol):
    """A method whose parameters tuning learns by gradient, in place of searching a grid."""

    def learn(self, known: Sequence[tuple[TaskBatch, Tensor]], free: Collection[str]) -> dict[str, float | str]:
        """New values of the free parameters, from tasks with the labels (B, Q) of their queries."""


@runtime_checkable
class Demanding(Method, Protocol):
    """A method that takes much memory, and says how much. Its `memory_hint`, if it has one, says what to lower."""

    def memory_per_task(self, samples: int) -> int:
        """Estimate the bytes that one task of so many images takes."""


class Parameters:
    """Mixin for method dataclasses: options by field name, unknown ones refused; parameters as plain data."""

    info: ClassVar[MethodInfo]

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults for the context, overridden by the options."""
        known = [item.name for item in dataclasses.fields(cls) if item.name != "network"]  # type: ignore[arg-type]
        for name in options:
            if not known:
                raise FsbenchError(f"{cls.info.name} takes no parameters, got {name}.", f"Leave out {name}.")
            if name not in known:
                raise unknown_name(f"parameter of {cls.info.name}", name, known)
        return cls(**{**cls.defaults(context), **with_declared_types(cls, options)})

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """Defaults that depend on the context; the others are the dataclass's own."""
        return {}

    def params(self) -> dict[str, Any]:
        """The parameters as plain data; JSON knows no infinity, so that one is a word."""
        names = (item.name for item in dataclasses.fields(self) if item.name != "network")  # type: ignore[arg-type]
        values = {name: getattr(self, name) for name in names}
        return {name: "inf" if value == math.inf else value for name, value in values.items()}


@dataclass(frozen=True)
class OnImages(Parameters):
    """Mixin for methods on images: rows are the pixels of images, S · S · 3 bytes each, with the channels last."""

    network: ImageNetwork | None = field(default=None, repr=False, compare=False, kw_only=True)

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults for the context, overridden by the options, with the network if these need one."""
        made = super().configure(context, **options)
        return dataclasses.replace(made, network=context.network) if cls.info.network_for(options) else made

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Pixel rows as they are; features are refused."""
        if self.network is None:
            raise FsbenchError(
                f"{self.info.title} works on images, and there are only features here.",
                "Run it on a feature file whose images are here, with fsbench solve or fsbench compare.",
            )
        return features

    def params(self) -> dict[str, Any]:
        """The parameters as plain data, with the name of the weights."""
        return super().params() | ({"weights": self.network.name} if self.network else {})


def with_declared_types(cls: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with 10 as 10.0 wherever a method does not ask for whole numbers, so that both are one record."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    words = {item.name: re.findall(r"\w+", str(item.type)) for item in fields}
    kept = {name for name, declared in words.items() if "float" not in declared or "int" in declared}
    return {
        name: _as_fraction(value) if type(value) is int and name not in kept else value
        for name, value in options.items()
    }


def _as_fraction(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def require_base(base: BaseStatistics | None, name: str) -> BaseStatistics:
    """The base statistics, or an error that says who needs them."""
    if base is None:
        raise FsbenchError(
            f"{name} needs statistics of the base classes, and there are none.",
            "Give those of another feature file of the same backbone with --base FILE, or choose a method that needs "
            "none, such as pt-map. From Python: base=BaseStatistics.fit(features, labels).",
        )
    return base


_LARGEST_COUNT = 10**6


def require_count(**values: int) -> None:
    """Refuse parameters that are not whole numbers of at least 1, or that would not come to an end."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_COUNT:
            raise FsbenchError(f"{name} must be a whole number from 1 to {_LARGEST_COUNT:,}, got {value!r}.")


def require_amount(**values: float) -> None:
    """Refuse parameters that are not finite positive numbers."""
    for name, value in values.items():
        if not _is_number(value) or value <= 0:
            raise FsbenchError(f"{name} must be a positive number, got {value!r}.")


def require_weight(**values: float) -> None:
    """Refuse parameters that are not finite numbers of at least 0."""
    for name, value in values.items():
        if not _is_number(value) or value < 0:
            raise FsbenchError(f"{name} must be a number of at least 0, got {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
