"""What to compare: the methods, settings and tasks that options stand for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsbench.errors import FsbenchError, UsageError, unknown_name
from fsbench.evaluation.options import SETTINGS, Comparing, Evaluating, Solve
from fsbench.methods.base import MethodInfo
from fsbench.methods.registry import method_class, plain_label, split_variant, working_methods
from fsbench.results.metrics import ACCURACY, metric_of
from fsbench.results.studies import Value
from fsbench.tasks.protocol import ALL, ALPHA, PRESETS, TaskProtocol

NO_BASELINE = ""
NETWORK_TASKS = 100  # per column, of methods that adapt a network to each, unless they are asked for by name


@dataclass(frozen=True)
class MethodChoice:
    """A method with the parameters that were given for it."""

    label: str  # its name in the table
    method: str  # name in the registry, or `path/to/file.py:CLASS`
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters given; those of a variant included

    @property
    def info(self) -> MethodInfo:
        """The facts of the method."""
        return method_class(self.method).info

    @property
    def network(self) -> str:
        """The network that it needs, if it works on images; else empty."""
        return self.info.network_for(self.options)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to compare. The same specification on the same features gives the same table."""

    methods: tuple[MethodChoice, ...]  # in the order of the table
    protocols: tuple[TaskProtocol, ...]  # one per setting and number of shots: the columns of the table
    baseline: str | None = None  # label of the method that others are compared to; None chooses, empty is none
    split: str = "novel"
    tasks: int = 10_000  # per column
    seed: int = 0
    tune: bool = False  # use parameters chosen on the val classes, where a method has some to choose
    preset: str = ""  # `article` uses the published parameters of the data set; empty the scale-free defaults
    metrics: tuple[str, ...] = (ACCURACY.name,)
    published: bool = True
    skip_infeasible: bool = False
    over_classes: bool = False
    all_methods: bool = False  # leave out those that lack what they need; those that adapt a network solve fewer tasks
    by_default: bool = False  # nobody named the methods: others take their place where these cannot run
    blind: bool = False  # no method is told whether tasks are balanced, nor their α

    def __post_init__(self) -> None:
        for name in self.metrics:
            metric_of(name)
        if self.blind and (self.tune or self.preset):
            other = "tune" if self.tune else "preset"
            raise UsageError("blind", f"{other} chooses parameters for each setting; choose one of both")
        if self.tune and self.split == "val":
            raise UsageError("tune", "parameters are tuned on the val classes, which the split val would report on")
        if self.tune and self.preset:
            raise UsageError("preset", "tuned parameters replace a preset; choose one of tune and preset")

    @classmethod
    def of(
        cls, options: Comparing | Solve | Evaluating, methods: Sequence[str], parameters: Mapping[str, Any], **more: Any
    ) -> Spec:
        """The specification that options of a command or function stand for; `more` has what they lack.

        The parameters are given for every method; the name `all` alone is every method.
        """
        names = {field.name for field in dataclasses.fields(cls)} & type(options).model_fields.keys()
        names -= {"methods", "tasks"}
        choices = parse_methods(methods)
        refuse_same_methods(choices, getattr(options, "baseline", None))
        return cls(
            methods=tuple(with_options(choice, parameters) for choice in choices) if parameters else tuple(choices),
            protocols=protocols_of(options),
            tasks=options.tasks or PRESETS[options.protocol].tasks,
            all_methods=list(methods) == [ALL],
            by_default=isinstance(options, Comparing) and "methods" not in options.model_fields_set,
            **{name: getattr(options, name) for name in names},
            **more,
        )


def usual_methods() -> list[str]:
    """What `all` stands for: every method, some with a variant."""
    labels: list[str] = []
    for name in working_methods():
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
            raise FsbenchError(f"{name} is given by {choice.label} already.", "Choose one.")
    return dataclasses.replace(choice, options={**choice.options, **options})


def varied_methods(words: Sequence[str], options: Any) -> list[MethodChoice]:
    """The methods of a sweep or search with the parameters given, none of which is varied too."""
    choices = [with_options(choice, options.parameters) for choice in parse_methods(words)]
    refuse_same_methods(choices)
    for name in (name for choice in choices for name in choice.options if name in options.over):
        raise UsageError("over", f"{name} has a value already, by --set or by the name of a variant; choose one")
    return choices


def refuse_same_methods(choices: Sequence[MethodChoice], baseline: str | None = None) -> None:
    """Refuse methods that differ by name alone, as `bavardage` and `bavardage:article` do."""
    labels = [choice.method if ".py:" in choice.method else choice.label for choice in choices]
    for one, other in itertools.combinations(dict.fromkeys([*labels, *([baseline] if baseline else [])]), 2):
        if plain_label(one) == plain_label(other):
            raise UsageError("methods", f"{one} and {other} are the same method; name it once")


def protocols_of(options: Any) -> tuple[TaskProtocol, ...]:
    """One protocol per setting and number of shots, from options that include those of `Drawing`, and settings."""
    settings: tuple[str, ...] = options.settings
    for setting in settings:
        if setting not in SETTINGS:
            raise UsageError("settings", f"expected unbalanced, balanced or both, got {setting!r}")
    if options.alpha is not None and "unbalanced" not in settings:
        raise UsageError("alpha", "α has no meaning for balanced tasks")
    if options.protocol not in PRESETS:
        raise unknown_name("protocol", options.protocol, PRESETS)
    preset = PRESETS[options.protocol]
    numbers = {name: getattr(options, name) for name in _NUMBERS if getattr(options, name) is not None}
    numbers = {name: getattr(preset, name) for name in _NUMBERS} | numbers
    mixes = {"balanced" if mix == "equal" else "unbalanced": mix for mix in preset.mixes}
    if numbers["queries"] == ALL:
        mixes = {"unbalanced": "images"}
    if options.alpha is not None and "unbalanced" not in mixes:
        raise UsageError("alpha", f"α has no meaning for {options.protocol}, whose tasks are balanced")
    if [*settings] == ["balanced"] and "balanced" not in mixes:
        raise UsageError("balanced", f"{options.protocol} with these queries has no balanced tasks")
    if preset.support == "meta" and options.shots != type(options).model_fields["shots"].default:
        raise UsageError("shots", _META_SHOTS)
    asked = options.shots if isinstance(options.shots, tuple) else (options.shots,)
    alphas = {"dirichlet": options.alpha or ALPHA, "images": options.alpha, "equal": None}
    return tuple(
        TaskProtocol(
            options.protocol, shots=shots, alpha=alphas[mixes[setting]], support=preset.support, **numbers,
            pooled=mixes[setting] == "images" and options.alpha is None,
        )
        for setting in [one for one in settings if one in mixes] or [*mixes]  # some protocols have one setting only
        for shots in ((1,) if preset.support == "meta" else asked)
    )  # fmt: skip


_NUMBERS = ("ways", "queries", "present", "unknown")
_META_SHOTS = "the protocol meta draws the shots of every class itself"


def command_of(file: Path, of_method: Mapping[str, Any], protocol: TaskProtocol, **others: Any) -> tuple[str, str]:
    """The `fsbench solve` that repeats one run, without the options of the method, and these.

    `others` are further options of the tasks, such as `tasks`, `seed` or `base`.
    """
    unbalanced = not protocol.equal or len(protocol.preset.mixes) == 1
    of_tasks = Solve(features=[file], unbalanced=unbalanced, **options_of(protocol), **others)
    return f"fsbench solve {of_tasks.words()}", Solve(**of_method).words()


def options_of(protocol: TaskProtocol) -> dict[str, Any]:
    """The options that ask for a protocol, but for the setting."""
    preset = protocol.preset
    usual = ALPHA if "dirichlet" in preset.mixes else None
    words = {name: getattr(protocol, name) for name in _NUMBERS if getattr(protocol, name) != getattr(preset, name)}
    if preset.support != "meta":
        words["shots"] = (protocol.shots,)
    return {"protocol": protocol.name, "alpha": None if protocol.alpha == usual else protocol.alpha, **words}


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
        kind, word = (int, "whole numbers") if self.name in WHOLE_NUMBERS else ((int, float), "numbers")
        for value in self.values if self.name in OF_PROTOCOL else ():
            if not isinstance(value, kind):
                raise FsbenchError(f"{self.name} takes {word}, got {value!r}.")


def at(
    values: Mapping[str, Value], protocol: TaskProtocol, options: Mapping[str, Any]
) -> tuple[TaskProtocol, dict[str, Any]]:
    """Protocol and options of the method at one place of the axes."""
    changed = {name: value for name, value in values.items() if name in OF_PROTOCOL}
    if "shots" in changed and protocol.support == "meta":
        raise UsageError("over", _META_SHOTS)
    others = {name: value for name, value in values.items() if name not in OF_PROTOCOL}
    return dataclasses.replace(protocol, **changed), {**options, **others}  # type: ignore[arg-type]
