"""The words behind `fray run MODULE:FUNCTION` as arguments of the function, by its annotations: pure.

    def main(data: Path, *, lr: float = 1e-3, layers: list[int] = [], resume: bool = False)

takes `data/ --lr 3e-4 --layers 8 --layers 4 --resume`. A parameter is given by its place or as an option. A
parameter without annotation has the type of its default, else it is text. A function whose only parameter is
`*words` reads its words itself: it gets them all, as they are.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fray.cli.annotated_types import TEXT, TextType, derive_type
from fray.errors import InvalidRequestError

__all__ = ["FunctionArguments", "asks_for_help", "describe_function", "parse_arguments"]

_EMPTY = inspect.Parameter.empty
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class FunctionArguments:
    """What to call a function with."""

    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class _Parameter:
    """A parameter, and which texts it takes; `type` is None where no text can become its value."""

    parameter: inspect.Parameter
    annotation: Any
    type: TextType | None

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_required(self) -> bool:
        return self.parameter.default is _EMPTY and self.parameter.kind in {*_BY_PLACE, *_BY_NAME}

    @property
    def is_by_place(self) -> bool:
        """Whether usage shows it by its place: as the function's own author calls it."""
        return self.parameter.kind == inspect.Parameter.POSITIONAL_ONLY or (
            self.parameter.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD and self.is_required
        )

    @property
    def form(self) -> str:
        """The parameter in a line of usage."""
        shown = "VALUE" if self.type is None else self.type.shown
        if self.parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            return f"[{self.name.upper()}...]"
        if self.parameter.kind == inspect.Parameter.VAR_KEYWORD:
            return f"[--NAME {shown}]..."
        if self.is_by_place:
            form = self.name.upper() + ("..." if self.type is not None and self.type.collect else "")
        elif self.type is not None and self.type.is_flag:
            form = f"--[no-]{self.name.replace('_', '-')}"
        else:
            form = f"{self.option} {shown}"
        return form if self.is_required else f"[{form}]"

    def describe(self) -> tuple[str, str]:
        """Return its form in a list of parameters, and what that leaves open: type, spellings, default."""
        notes = [self.type.shown] if self.type is not None and self.is_by_place else []
        if self.type is None:
            notes.append("no text can be read as it")
        if self.is_by_place and self.parameter.kind != inspect.Parameter.POSITIONAL_ONLY:
            notes.append(f"also {self.option}")
        if self.type is not None and self.type.collect:
            notes.append("may be repeated")
        if self.parameter.default is not _EMPTY:
            notes.append(f"default {self.parameter.default!r}")
        return (self.name.upper() if self.is_by_place else self.form.strip("[]")), ", ".join(notes)


@dataclass(frozen=True)
class _Function:
    """A function as its words see it."""

    target: str
    signature: inspect.Signature
    parameters: tuple[_Parameter, ...]

    @property
    def usage(self) -> str:
        return " ".join([f"Usage: fray run {self.target}", *(each.form for each in self.parameters)])

    def find(self, *kinds: Any) -> list[_Parameter]:
        return [each for each in self.parameters if each.parameter.kind in kinds]

    def refuse(self, field: str, problem: str) -> NoReturn:
        raise InvalidRequestError(field, problem, self.usage)


def parse_arguments(function: Callable[..., Any], words: Sequence[str], *, target: str) -> FunctionArguments:
    """Return what the words mean as arguments of the function, which the user calls `target`.

    Raises:
        InvalidRequestError: One is unknown, missing, given twice, or no value of its parameter; the remedy is
            the function's usage.
    """
    found = _read_function(function, target)
    if found is None:
        return FunctionArguments(tuple(words), {})
    given = _sort_words(found, words)
    arguments: dict[str, Any] = {}
    for parameter in found.parameters:
        if (texts := given.named.get(parameter.name)) is not None:
            arguments[parameter.name] = _read(found, parameter, parameter.option, texts)
    places = deque(given.places)
    for parameter in found.find(*_BY_PLACE):
        if places and parameter.name not in arguments:
            takes_all = parameter.type is not None and parameter.type.collect is not None
            texts = [places.popleft() for _ in range(len(places) if takes_all else 1)]
            arguments[parameter.name] = _read(found, parameter, parameter.name.upper(), texts)
    for parameter in found.find(inspect.Parameter.VAR_POSITIONAL):
        arguments[parameter.name] = tuple(
            _read(found, parameter, parameter.name.upper(), [each]) for each in places
        )
        places.clear()
    for parameter in found.find(inspect.Parameter.VAR_KEYWORD):
        arguments[parameter.name] = {
            name: _read(found, parameter, f"--{name}", texts) for name, texts in given.further.items()
        }
    if places:
        found.refuse(target, f"takes no further argument {places[0]!r}")
    missing = [each for each in found.parameters if each.is_required and each.name not in arguments]
    if missing:
        listed = ", ".join(each.name.upper() if each.is_by_place else each.option for each in missing)
        found.refuse(target, f"needs {listed}")
    bound = inspect.BoundArguments(found.signature, arguments)
    return FunctionArguments(bound.args, dict(bound.kwargs))


def asks_for_help(function: Callable[..., Any], words: Sequence[str]) -> bool:
    """Return whether `--help` among the words asks how to call the function."""
    if _read_function(function, "") is None:
        return False
    own = _without_separator(words)
    return "--help" in (own[: own.index("--")] if "--" in own else own)


def describe_function(function: Callable[..., Any], *, target: str) -> str:
    """Return how to call the function from the command line: its usage, its docstring, its parameters."""
    found = _read_function(function, target)
    assert found is not None, "`asks_for_help` is false for it"
    parts = [found.usage]
    if doc := inspect.getdoc(function):
        parts.append(doc)
    rows = [each.describe() for each in found.parameters]
    width = max((len(form) for form, _ in rows), default=0)
    parts.append("\n".join(f"  {form:<{width}}  {notes}" for form, notes in rows))
    return "\n\n".join(filter(None, parts)) + "\n"


@dataclass
class _Given:
    """Words by what they are for: texts by parameter, further options by name, and texts by place."""

    named: dict[str, list[str]] = field(default_factory=dict)
    further: dict[str, list[str]] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)


def _sort_words(found: _Function, words: Sequence[str]) -> _Given:
    given = _Given()
    options = {each.name: each for each in found.find(*_BY_NAME)}
    takes_any = found.find(inspect.Parameter.VAR_KEYWORD)
    rest = deque(_without_separator(words))
    while rest:
        word = rest.popleft()
        if word == "--":
            given.places.extend(rest)
            break
        if not _is_option(word):
            given.places.append(word)
            continue
        typed, has_value, value = word.partition("=")
        name = typed.removeprefix("--").replace("-", "_")
        parameter, negated = options.get(name), False
        if parameter is None and name.startswith("no_"):
            parameter = options.get(name.removeprefix("no_"))
            negated = parameter is not None and parameter.type is not None and parameter.type.is_flag
            parameter = parameter if negated else None
        if parameter is None and (not takes_any or not typed.startswith("--")):
            near = difflib.get_close_matches(name, options, n=1)
            hint = f"; {options[near[0]].option} is near" if near else ""
            found.refuse(typed, f"is no parameter of {found.target}{hint}")
        if parameter is not None and parameter.type is not None and parameter.type.is_flag:
            if negated and has_value:
                found.refuse(typed, "takes no value")
            if not has_value:
                follows = not negated and bool(rest) and rest[0].lower() in ("true", "false")
                value = rest.popleft() if follows else str(not negated)
        elif not has_value:
            if not rest or _is_option(rest[0]):
                found.refuse(typed, f"needs a value; one that begins with '-' is written {typed}=VALUE")
            value = rest.popleft()
        if parameter is None:
            given.further.setdefault(name, []).append(value)
        else:
            given.named.setdefault(parameter.name, []).append(value)
    return given


def _without_separator(words: Sequence[str]) -> list[str]:
    """Return the words without a `--` in front, which only says that what follows is the function's."""
    return list(words[1:] if words and words[0] == "--" else words)


def _is_option(word: str) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _read(found: _Function, parameter: _Parameter, where: str, texts: Sequence[str]) -> Any:
    kind = parameter.type
    if kind is None:
        shown = getattr(parameter.annotation, "__name__", None) or str(parameter.annotation)
        found.refuse(where, f"is of type {shown}, and no text can be read as that")
    if kind.collect is None and len(texts) > 1:
        found.refuse(where, f"is given {len(texts)} times")
    values = []
    for text in texts:
        try:
            values.append(kind.read(text))
        except ValueError:
            found.refuse(where, f"is {text!r}, and takes {kind.shown}")
    return values[0] if kind.collect is None else kind.collect(values)


def _read_function(function: Callable[..., Any], target: str) -> _Function | None:
    """Return what is known of a function; None where it gets its words as they are."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
        kinds = {each.kind for each in signature.parameters.values()}
        if kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            # A decorator that passes all on; others take arguments of their own.
            signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None  # built-in functions may have none
    names = vars(sys.modules[function.__module__]) if getattr(function, "__module__", None) else {}
    parameters = tuple(_read_parameter(each, names) for each in signature.parameters.values())
    only_words = [each.parameter.kind for each in parameters] == [inspect.Parameter.VAR_POSITIONAL]
    if only_words and parameters[0].type is TEXT:
        return None
    return _Function(target, signature, parameters)


def _read_parameter(parameter: inspect.Parameter, names: dict[str, Any]) -> _Parameter:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, names)
        except Exception:  # noqa: BLE001 - a name that only type checkers import, or anything else
            return _Parameter(parameter, annotation, None)
    return _Parameter(parameter, annotation, derive_type(annotation, parameter.default))
