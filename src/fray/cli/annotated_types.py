"""Which texts of a command line are values of an annotated type, and how they are read: pure."""

from __future__ import annotations

import contextlib
import enum
import inspect
import types
from collections import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

__all__ = ["TEXT", "TextType", "derive_type"]


@dataclass(frozen=True)
class TextType:
    """A type whose values are written as text.

    Attributes:
        shown: What people write: `INT`, or the words to choose from.
        read: Returns the value of a text; raises ValueError.
        is_flag: Whether an option of it needs no value.
        collect: Makes the value of several texts' values; None where one text is the value.
    """

    shown: str
    read: Callable[[str], Any]
    is_flag: bool = False
    collect: Callable[[list[Any]], Any] | None = None


def _read_bool(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError(text)


def _read_none(text: str) -> None:
    if text.lower() != "none":
        raise ValueError(text)


TEXT: Final = TextType("TEXT", str)
_ANY: Final = ("TEXT", "PATH")
"""Types that any text is a value of."""
_NONE: Final = TextType("none", _read_none)
_SIMPLE: Final[dict[Any, TextType]] = {
    str: TEXT,
    object: TEXT,
    Any: TEXT,
    int: TextType("INT", int),
    float: TextType("FLOAT", float),
    bool: TextType("true|false", _read_bool, is_flag=True),
    None: _NONE,
    type(None): _NONE,
}
_COLLECTIONS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.Iterable: list,
    abc.Collection: list,
}


def derive_type(annotation: Any, default: Any = inspect.Parameter.empty) -> TextType | None:
    """Return how texts become values of an annotation; None where they can't.

    Without annotation the type is that of the default, if texts can have it, else text.
    """
    if annotation is inspect.Parameter.empty:
        is_known = default is not None and default is not inspect.Parameter.empty
        return derive_type(_type_of(default)) or TEXT if is_known else TEXT
    if not isinstance(annotation, abc.Hashable):
        return None
    while hasattr(annotation, "__supertype__"):  # of NewType
        annotation = annotation.__supertype__
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return derive_type(parts[0])
    if origin is Literal:
        return _choice({str(part): part for part in parts})
    if origin in (Union, types.UnionType):
        return _union([derive_type(part) for part in parts])
    if (collect := _COLLECTIONS.get(origin or annotation)) is not None:
        return _collection(collect, parts)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = {str(member.value): member for member in annotation}
        return _choice(dict(annotation.__members__) | values, shown=annotation.__members__)
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return TextType("PATH", annotation)
    return _SIMPLE.get(annotation)


def _type_of(default: Any) -> Any:
    if isinstance(default, list | tuple | set | frozenset) and default:
        item = type(next(iter(default)))
        parts = (item, ...) if isinstance(default, tuple) else (item,)
        return types.GenericAlias(type(default), parts)
    return type(default)


def _choice(values: dict[str, Any], *, shown: Any = None) -> TextType:
    def read(text: str) -> Any:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return TextType("|".join(values if shown is None else shown), read)


def _union(members: Sequence[TextType | None]) -> TextType | None:
    """Return what reads a text as the first member that takes it; those that take any text come last."""
    known = [each for each in members if each is not None]
    single = sorted((each for each in known if each.collect is None), key=lambda each: each.shown in _ANY)
    values = [each for each in single if each is not _NONE]
    if not values:
        several = [each for each in known if each.collect is not None]
        return several[0] if several else None

    def read(text: str) -> Any:
        for each in single:
            with contextlib.suppress(ValueError):
                return each.read(text)
        raise ValueError(text)

    return TextType("|".join(each.shown for each in values), read, all(each.is_flag for each in values))


def _collection(collect: Callable[[list[Any]], Any], parts: tuple[Any, ...]) -> TextType | None:
    if collect is tuple and parts and parts[1:] != (Ellipsis,):
        return None  # of fixed length
    item = derive_type(parts[0]) if parts else TEXT
    if item is None or item.collect is not None:
        return None
    return TextType(item.shown, item.read, collect=collect)
