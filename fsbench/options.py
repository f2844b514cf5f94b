"""Options: each is declared once, as a field of a model with its type, default and help.

The command line, the signatures and docstrings of the Python interface, the reference page and the command that is
stored in a record derive from these models. Nothing heavy is imported, so that help and completion answer at once.
"""

from __future__ import annotations

import inspect
import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from fsbench.errors import FsbenchError, UsageError, unknown_name, wanted

Function = TypeVar("Function", bound="Callable[..., Any]")


def option(
    default: Any,
    help_text: str,
    *,
    panel: str = "",
    metavar: str = "",
    flag: str = "",
    completion: Sequence[str] | str = (),
    envvar: str = "",
    **limits: Any,
) -> Any:
    """A field that is an option.

    Args:
        default: Its value unless given; `...` if it must be given.
        help_text: A noun phrase with a full stop.
        panel: Heading of the help under which it stands.
        metavar: What stands for its value in the help; by its type unless given.
        flag: How the command line spells it, unless as its name; `--yes/--no` for both values of a switch.
        completion: Words that the shell completes, or the name of a list of them: `methods` or `datasets`.
        envvar: Environment variable that holds its default.
        limits: Bounds of its value, as pydantic names them.
    """
    about: Any = {"panel": panel, "metavar": metavar, "flag": flag, "completion": completion, "envvar": envvar}
    return Field(default, description=help_text, json_schema_extra=about, **limits)


def argument(default: Any, help_text: str, *, metavar: str, completion: Sequence[str] | str = ()) -> Any:
    """A field that is a positional argument on the command line."""
    about: Any = {"argument": True, "metavar": metavar, "completion": completion}
    return Field(default, description=help_text, json_schema_extra=about)


def whole_number(text: Any) -> Any:
    """A count such as 10000, 10_000 or 1e4."""
    if not isinstance(text, str):
        return text
    with suppress(ValueError):
        grouped = re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text.strip())  # 10,000, but not the list 1,5
        number = float(text.replace("_", "").replace(",", "" if grouped else ","))
        if math.isfinite(number) and number.is_integer():
            return int(text) if text.strip("+-").isdecimal() else int(number)
    raise ValueError(f"expected a whole number such as 10000 or 1e4, got {text!r}")


def _amount(text: Any) -> Any:
    """A number, or words such as `all`, `3-10` and `15/class`, whose meaning is checked where they are used."""
    if isinstance(text, str) and re.fullmatch(r"all|\d+-\d+|\d+/class", text.strip()):
        return text.strip()
    try:
        return whole_number(text)
    except ValueError:
        raise ValueError(f"expected a number such as 75, or `all`, `3-10`, `15/class`, got {text!r}") from None


def _names(words: Any) -> Any:
    """The parts of `1,5` or of a sequence, each once; a number is one part."""
    if isinstance(words, int | Path):
        return (words,)
    try:
        parts = (part.strip() for part in words.split(",")) if isinstance(words, str) else words
        return tuple(dict.fromkeys(parts))
    except TypeError:
        raise ValueError(f"expected values separated by commas, got {words!r}") from None


def value_of(text: str) -> Any:
    """A number, true, false, or the word itself."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _assignments(texts: Any) -> Any:
    """`rate=0.1` as a name and a text; dashes of the name may stand for underscores."""
    named: dict[str, str] = {}
    for text in texts:
        name, sign, right = text.partition("=")
        if not sign or not name or not right:
            raise ValueError(f"expected NAME=VALUE, got {text!r}")
        name = name.strip().replace("-", "_")
        if name in named:
            raise ValueError(f"{name} is given twice: {named[name]} and {right}")
        named[name] = right
    return named


def _parameters(texts: Any) -> Any:
    """`rate=0.1` as a name and a value."""
    if not isinstance(texts, list):
        return texts
    return {name: value_of(text) for name, text in _assignments(texts).items()}


def _axes(texts: Any) -> Any:
    """`tau=0.1,0.3` as a name and values."""
    if not isinstance(texts, list):
        return texts
    return {
        name: tuple(value_of(part.strip()) for part in text.split(",")) for name, text in _assignments(texts).items()
    }


Count = Annotated[int, BeforeValidator(whole_number)]
Amount = Annotated[int | str, BeforeValidator(_amount)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_names)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Shares = Annotated[  # 0.64,0.16,0.2, or a sequence of numbers
    str, BeforeValidator(lambda shares: ",".join(map(str, shares)) if isinstance(shares, (list, tuple)) else shares)
]
Parameters = Annotated[dict[str, Any], BeforeValidator(_parameters)]  # NAME=VALUE, several times
AxisValues = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(_axes)]  # NAME=VALUE,VALUE, several times


class Options(BaseModel):
    """The options of a command or function. A value that cannot be used is a UsageError that names the option."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise self._refused(error) from None

    @classmethod
    def _refused(cls, error: ValidationError) -> FsbenchError:
        """The first complaint, in words."""
        first = error.errors()[0]
        name, text, limits = str(first["loc"][0]), first["input"], first.get("ctx", {})
        if first["type"] == "extra_forbidden":
            return unknown_name("argument", name, cls.model_fields)
        same = [one for one in error.errors() if one["loc"][0] == name]
        complaint = str(limits["error"]) if "error" in limits else f"expected {wanted(same)}, got {text!r}"
        return UsageError(spelling(name, cls.model_fields[name]).strip("-").replace("-", "_"), complaint)

    def words(self) -> str:
        """What gives these options on the command line: `features/mini-wrn.h5 --shots 1`."""
        arguments: list[str] = []
        options: list[str] = []
        for place, field in type(self).model_fields.items():
            value = getattr(self, place)
            if value == field.default:
                continue
            several = [f"{key}={text_of(one)}" for key, one in value.items()] if isinstance(value, dict) else value
            words = [text_of(one) for one in (several if isinstance(several, list) else [value])]
            if isinstance(value, bool):
                options.append(spelling(place, field, value))
            elif "argument" in field.json_schema_extra:  # type: ignore[operator]
                arguments += words
            else:
                options += [part for word in words for part in (spelling(place, field), word)]
        return shlex.join([*arguments, *options])


def text_of(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, tuple):
        return ",".join(map(text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def spelling(name: str, field: FieldInfo, value: bool = True) -> str:
    """An option as the command line spells it: `--no-flip` for a value of False."""
    about: Any = field.json_schema_extra
    yes, _, no = (about.get("flag") or f"--{name.replace('_', '-')}").partition("/")
    return yes if value or not no else no


def kinds(annotation: Any) -> Iterator[Any]:
    """The plain types of an annotation, without None: `float`, and a literal word for `float | Literal["learned"]`."""
    if get_origin(annotation) is Annotated:
        yield from kinds(get_args(annotation)[0])
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) is None or get_origin(annotation) in (tuple, list, dict):
        yield from [] if annotation is type(None) else [annotation]
    else:  # a union
        for one in get_args(annotation):
            yield from kinds(one)


def takes_options(model: type[Options]) -> Callable[[Function], Function]:
    """Decorates a Python function whose `**options` are the fields of a model: signature and docstring list them."""

    def decorate(function: Function) -> Function:
        *own, rest = inspect.signature(function).parameters.values()
        fields = {name: field for name, field in model.model_fields.items() if name not in {one.name for one in own}}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=type_of(field))
            for name, field in fields.items()
        ]
        before, line, after = inspect.cleandoc(function.__doc__ or "").partition("    **options: ")
        lines = [f"    {name} ({type_of(field)}): {described(field)}\n" for name, field in fields.items()]
        function.__doc__ = "".join([before, *lines, line, after])
        function.__signature__ = inspect.Signature([*own, *more, rest])  # type: ignore[attr-defined]
        return function

    return decorate


def type_of(field: FieldInfo) -> str:
    """The type of a field as Python spells it: `float | 'sampler' | None`."""
    types = kinds(field.annotation)
    names = [repr(one) if isinstance(one, str) else str(one) if get_origin(one) else one.__name__ for one in types]
    return " | ".join([*names, *(["None"] if field.default is None else [])])


def described(field: FieldInfo) -> str:
    """Help and default of an option, for docstrings and the reference page."""
    silent = field.is_required() or field.default is False or field.default in (None, "", [], {}, ())
    return f"{field.description}" + ("" if silent else f" (default: {text_of(field.default)})")
