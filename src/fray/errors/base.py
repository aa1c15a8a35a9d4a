"""What every error of Fray has in common. Kinds of errors stand in the modules beside it."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from inspect import Parameter, Signature
from typing import Any, ClassVar, dataclass_transform

__all__ = ["FrayError"]


class _Texts(string.Formatter):
    """Fills a template with the attributes of an error.

    Beside Python's own format specifications: `{names:list}` puts commas between, `{lines:lines}` gives each
    a line of its own, `{size:MB}` is a number of bytes in megabytes, and `{parts:MB}` is names with theirs.
    `{path:? at }` is nothing for what is empty, and else the text behind the question mark and the value.
    """

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return getattr(args[0], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        match format_spec:
            case "list":
                return ", ".join(str(each) for each in value)
            case "lines":
                return "".join(f"\n  {each}" for each in value)
            case "MB" if isinstance(value, int | float):
                return f"{value / 1e6:.1f} MB"
            case str() if format_spec.startswith("?"):
                return f"{format_spec[1:]}{value}" if value else ""
            case "MB":
                return ", ".join(f"{name} ({self.format_field(size, 'MB')})" for name, size in value)
        return str(super().format_field(value, format_spec))


_TEXTS = _Texts()


@dataclass_transform(eq_default=False)
@dataclass(init=False, repr=False, eq=False)
class FrayError(Exception):
    """The root of all errors of Fray: `str()` is the message followed by the next step.

    A class derived from it is a dataclass, and needs no decorator.

    An error states its `message` and `next_step` as templates over its own fields; where the text depends on
    more, it is a property. What stands in a field is never read as a template.
    """

    __signature__: ClassVar[Signature] = Signature()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # An `__init__` that is written and compiled for each class would take as long as all the rest of what
        # importing them takes, and each process of Fray imports them all.
        dataclass(init=False, repr=False, eq=False)(cls)
        cls.__signature__ = Signature([_build_parameter(field) for field in fields(cls)])
        for name in ("message", "next_step"):
            if isinstance(template := vars(cls).get(name), str):
                setattr(cls, name, property(partial(FrayError.fill, template=template)))

    def __init__(self, *values: Any, **named: Any) -> None:
        bound = self.__signature__.bind(*values, **named)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{type(self).__qualname__}({values})"

    @property
    def message(self) -> str:
        """What happened, in one sentence or a short list."""
        return type(self).__name__

    @property
    def next_step(self) -> str:
        """What the reader should do now; groups of errors have none, each error has one."""
        return ""

    def fill(self, template: str) -> str:
        """Return a template with this error's fields in it."""
        return _TEXTS.vformat(template, (self,), {})

    def __str__(self) -> str:
        return f"{self.message}\n{self.next_step}" if self.next_step else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


def _build_parameter(field: Field[Any]) -> Parameter:
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
