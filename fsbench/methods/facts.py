"""Facts about a method: all that is not an equation or a parameter. Importing this needs neither torch nor pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fsbench.tasks.protocol import ALPHA

Prior = Literal["none", "uniform", "free"]
Cost = Literal["fast", "slow", "network"]


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
    variants: Variants | None = None
    # parameters that tuning searches, with their values: about 50 cells, or a dozen along a single parameter or where a
    # cell takes minutes; never the number of iterations
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    # its names in published tables, each with the values of parameters that such a row belongs to; parameters that are
    # not named may have any value
    published: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    # `fast`: closed-form steps. `slow`: hundreds of gradient steps, so that a run says how long it will take.
    # `network`: a network is adapted to every task, which takes seconds.
    cost: Cost = "fast"
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

    def network_for(self, options: Mapping[str, Any]) -> str:
        """The network that the method needs with these options; empty if it works on features."""
        word = options.get(self.variants.parameter, self.variants.default) if self.variants else ""
        return self.network_by.get(word, self.network)

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
