"""What is asked for: the methods, settings and tasks of a comparison, from the words that people type."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from fsbench.errors import FsbenchError, UsageError
from fsbench.methods import presets
from fsbench.methods.presets import symbol
from fsbench.methods.registry import method_class, method_names, needs_base, plain_label, split_variant
from fsbench.tasks.protocol import ALL_CLASSES, ALPHA, FEW_PRESENT, WAYS, TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from fsbench.results.curves import Value

ALL = "all"
NO_BASELINE = ""
SETTINGS = ("unbalanced", "balanced")
_MOST_TASKS = 10**9
NETWORK_TASKS = 100  # per column, of methods that adapt a network to each, unless they are asked for by name


@dataclass(frozen=True)
class MethodChoice:
    """A method with the parameters that were given for it.

    Attributes:
        label: Its name in the table.
        method: Name in the registry, or `path/to/file.py:CLASS`.
        options: Parameters given; those of a variant included.
    """

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> str:
        """The network that it needs, if it works on images; else empty."""
        return method_class(self.method).info.network_for(self.options)

    @property
    def adapts_network(self) -> bool:
        """Whether it adapts a network to every task, which takes seconds."""
        return bool(self.network) and method_class(self.method).info.cost == "network"

    @property
    def needs_base(self) -> bool:
        """Whether it needs statistics of base classes."""
        return needs_base(self.method if ".py:" in self.method else self.label)


class TaskWords(TypedDict, total=False):
    """How tasks are drawn, in words: what `--shots 1,5 --settings balanced` and the like say."""

    shots: str | int | Sequence[int]
    settings: str | Sequence[str]
    alpha: float | None
    ways: int | None
    queries: int
    protocol: str
    present: int | None


class SpecWords(TaskWords, total=False):
    """A comparison in words; see `Spec` for what they mean."""

    methods: str | Sequence[str]
    options: Mapping[str, Any]
    baseline: str | None
    split: str
    tasks: int
    seed: int
    tune: bool
    preset: str
    published: bool
    over_data: bool
    skip_infeasible: bool
    over_classes: bool
    prior_alpha: float | str | None
    blind: bool
    budget: float | None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to compare. The same specification on the same features gives the same table.

    Attributes:
        methods: In the order of the table.
        protocols: One per setting and number of shots: the columns of the table.
        baseline: Label of the method that others are compared to; None chooses, empty is none.
        split: Where tasks are drawn from.
        tasks: Number of tasks per column.
        seed: Random seed of the task lists.
        tune: Use parameters chosen on the val classes, where a method has some to choose.
        preset: `article` uses the published parameters of the data set; empty the scale-free defaults.
        published: Look up published numbers.
        over_data: Add intervals for new images of these classes.
        over_classes: Add intervals for new classes.
        skip_infeasible: Leave out settings for which a feature file has too few images, instead of refusing them.
        all_methods: Every method was asked for, so those that lack what they need are left out, and those that adapt a
            network to every task solve a part of the tasks.
        blind: No method is told whether tasks are balanced, nor their α.
        budget: Seconds for everything; each method solves as many tasks as fit into its share. None solves all.
    """

    methods: tuple[MethodChoice, ...]
    protocols: tuple[TaskProtocol, ...]
    baseline: str | None = None
    split: str = "novel"
    tasks: int = 10_000
    seed: int = 0
    tune: bool = False
    preset: str = ""
    published: bool = True
    over_data: bool = False
    skip_infeasible: bool = False
    over_classes: bool = False
    all_methods: bool = False
    blind: bool = False
    budget: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.tasks <= _MOST_TASKS:
            raise UsageError("tasks", f"expected 1 to {_MOST_TASKS:,}, got {self.tasks}", "10,000 are usual.")
        if self.preset not in presets.CHOICES:
            raise UsageError("preset", f"expected article, got {self.preset!r}")
        if self.blind and (self.tune or self.preset):
            other = "tune" if self.tune else "preset"
            raise UsageError("blind", f"--{other} chooses parameters for each setting; choose one of both")
        if self.tune and self.split == "val":
            raise UsageError("tune", "parameters are tuned on the val classes, which --split val would report on")
        if self.tune and self.preset:
            raise UsageError("preset", "tuned parameters replace a preset; choose one of --tune and --preset")

    @classmethod
    def from_words(cls, **words: Unpack[SpecWords]) -> Spec:
        """The specification that words stand for, as the command line and Python give them."""
        said: dict[str, Any] = {**words}
        choices, options = parse_methods(words["methods"]), said.pop("options", {})
        refuse_same_methods(choices, words.get("baseline"))
        if options:
            choices = [with_options(choice, options) for choice in choices]
        choices = with_prior(choices, said.pop("prior_alpha", None))
        tasks = {name: said.pop(name) for name in TaskWords.__annotations__ if name in said}
        everything = said.pop("methods") == ALL
        return cls(methods=tuple(choices), protocols=parse_protocols(**tasks), all_methods=everything, **said)


ABLATION = (
    MethodChoice("soft-kmeans", "soft-kmeans"),
    MethodChoice("+ VB", "bavardage", {"stage": "vb"}),
    MethodChoice("+ VB + PLDA", "bavardage"),
    MethodChoice("+ VB (released)", "bavardage", {"stage": "vb", "variant": "released"}),
    MethodChoice("+ VB + PLDA (released)", "bavardage", {"variant": "released"}),
)


def usual_methods() -> list[str]:
    """What `all` stands for: every method, some with a variant."""
    labels: list[str] = []
    for name in method_names():
        variants = method_class(name).info.variants
        labels += [name, *(f"{name}:{word}" for word in (variants.in_all if variants else ()))]
    return labels


def parse_methods(words: str | Sequence[str]) -> list[MethodChoice]:
    """Parse `soft-kmeans,bavardage:released`, or a list of such names; `all` is every method."""
    labels = words.split(",") if isinstance(words, str) else list(words)
    labels = usual_methods() if labels == [ALL] else labels
    choices = []
    for label in dict.fromkeys(label.strip() for label in labels):
        if ".py:" in label:
            choices.append(MethodChoice(label.rpartition(":")[2], label))
            continue
        name, options = split_variant(label)
        method_class(name)
        choices.append(MethodChoice(label, name, options))
    return choices


def with_options(choice: MethodChoice, options: Mapping[str, Any]) -> MethodChoice:
    """A method with further parameters, none of which its variant has set already."""
    for name in choice.options:
        if name in options:
            raise UsageError(name, f"also given by {choice.label}; choose one")
    return dataclasses.replace(choice, options={**choice.options, **options})


def with_prior(choices: Sequence[MethodChoice], prior: float | str | None) -> list[MethodChoice]:
    """Methods with a Dirichlet prior α_o, a number or `sampler`, where they have one; None leaves them as they are."""
    if prior is None:
        return list(choices)
    having = [choice for choice in choices if hasattr(method_class(choice.method), "prior_alpha")]
    if not having:
        names = ", ".join(choice.label for choice in choices)
        raise UsageError("prior-alpha", f"no method has such a prior: {names}", "BAVARDAGE has one.")
    return [with_options(choice, {"prior_alpha": prior}) if choice in having else choice for choice in choices]


def refuse_same_methods(choices: Sequence[MethodChoice], baseline: str | None = None) -> None:
    """Refuse methods that differ by name alone, as `bavardage` and `bavardage:article` do."""
    labels = [choice.method if ".py:" in choice.method else choice.label for choice in choices]
    for one, other in itertools.combinations(dict.fromkeys([*labels, *([baseline] if baseline else [])]), 2):
        if plain_label(one) == plain_label(other):
            raise UsageError("methods", f"{one} and {other} are the same method; name it once")


def parse_protocols(**words: Unpack[TaskWords]) -> tuple[TaskProtocol, ...]:
    """One protocol per setting and number of shots."""
    settings = parse_words(words.get("settings", SETTINGS), "settings")
    for setting in settings:
        if setting not in SETTINGS:
            raise UsageError("settings", f"expected unbalanced, balanced or both, got {setting!r}")
    alpha = words.get("alpha")
    if alpha is not None and "unbalanced" not in settings:
        raise UsageError("alpha", "α has no meaning for balanced tasks")
    name, ways, present = words.get("protocol", "disjoint"), words.get("ways"), words.get("present")
    few = name in FEW_PRESENT
    if present is not None and not few:
        raise UsageError("present", f"the protocol {name} has all classes among the queries", "Add --protocol keff.")
    levels = {"balanced": None, "unbalanced": ALPHA if alpha is None and not few else alpha}
    rules: dict[str, Any] = {"queries": words["queries"]} if "queries" in words else {}
    rules["ways"] = (ALL_CLASSES if few else WAYS) if ways is None else ways
    return tuple(
        TaskProtocol(
            name,  # type: ignore[arg-type]
            shots=shots,
            alpha=levels[setting],
            present=present,
            pooled=few and setting == "unbalanced" and alpha is None,
            **rules,
        )
        for setting in settings
        for shots in parse_numbers(words.get("shots", (1, 5)), "shots")
    )


def parse_numbers(words: str | int | Sequence[int], argument: str) -> list[int]:
    """Parse `1,5` as whole numbers, each once."""
    try:
        parts = words.split(",") if isinstance(words, str) else [words] if isinstance(words, int) else words
        return list(dict.fromkeys(int(part) for part in parts))
    except ValueError:
        raise UsageError(argument, f"expected whole numbers separated by commas, got {words!r}") from None


def parse_words(words: str | Sequence[str], argument: str) -> list[str]:
    """Parse `val,novel` as words, none twice."""
    parts = [part.strip() for part in (words.split(",") if isinstance(words, str) else words)]
    for part in parts:
        if parts.count(part) > 1:
            raise UsageError(argument, f"{part} is given twice")
    return parts


WHOLE_NUMBERS = ("shots", "queries", "ways")
OF_PROTOCOL = ("alpha", *WHOLE_NUMBERS)  # α is that of the sampler; the prior of BAVARDAGE is `prior_alpha`


@dataclass(frozen=True)
class Axis:
    """A parameter of the method or of the protocol, and the values it takes, each once, in the order given."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) < len(self.values):
            raise FsbenchError(f"A value of {self.name} is given twice: {', '.join(map(str, self.values))}.")
        if self.name not in OF_PROTOCOL:
            return
        kind, word = (int, "whole numbers") if self.name in WHOLE_NUMBERS else ((int, float), "numbers")
        for value in self.values:
            if not isinstance(value, kind):
                raise FsbenchError(f"{self.name} takes {word}, got {value!r}.")

    @property
    def symbol(self) -> str:
        """As the article writes it."""
        return symbol(self.name)


def at(
    values: Mapping[str, Value], protocol: TaskProtocol, options: Mapping[str, Any]
) -> tuple[TaskProtocol, dict[str, Any]]:
    """Protocol and options of the method at one place of the axes."""
    changed = {name: value for name, value in values.items() if name in OF_PROTOCOL}
    others = {name: value for name, value in values.items() if name not in OF_PROTOCOL}
    return dataclasses.replace(protocol, **changed), {**options, **others}  # type: ignore[arg-type]
