"""Judging a manifest against a structural schema, as the API server does before any rule.

The schema is the one in the CRD, so both judge alike: same fields, same ranges, same spelling of paths.
Texts are Fray's own. Stricter in one point: a null is refused everywhere, while the API server drops it
on a plain create and refuses it on server-side apply. Rules between fields are `fray.wire.rules`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from fray.errors import FieldError

__all__ = ["find_structure_problems"]

Schema = Mapping[str, Any]

_INT64: Final = range(-(2**63), 2**63)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT64


_JSON_TYPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "object": (lambda value: isinstance(value, dict), "a map"),
    "array": (lambda value: isinstance(value, list), "a list"),
    "string": (lambda value: isinstance(value, str), "a string"),
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
    "integer": (_is_integer, "an integer"),
}


def find_structure_problems(value: Any, schema: Schema, *, path: str = "") -> Iterator[FieldError]:
    """Yield what is wrong with a value's structure, in the order of the manifest.

    Args:
        value: JSON data.
        schema: A node of a structural schema (`fray.wire.schema`).
        path: Where the value stands, as the API server spells it (`spec.ports[0]`).
    """
    if value is None:
        if not schema.get("nullable"):
            yield FieldError(path, "has no value: give it one or remove the key")
    elif (problem := _type_problem(value, schema)) is not None:
        yield FieldError(path, problem)
    else:
        yield from _content_problems(value, schema, path)


def _type_problem(value: Any, schema: Schema) -> str | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, str) or _is_integer(value):
            return None
        return f"must be an integer or a string, not {_kind(value)}{_advice(value)}"
    if "type" not in schema:
        return None
    fits, wanted = _JSON_TYPES[schema["type"]]
    if fits(value):
        return None
    return f"must be {wanted}, not {_kind(value)}{_advice(value) if schema['type'] == 'string' else ''}"


def _advice(value: Any) -> str:
    return "" if isinstance(value, dict | list) else ": put it into quotes"


def _content_problems(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    if "enum" in schema and value not in schema["enum"]:
        legal = ", ".join(map(str, schema["enum"]))
        yield FieldError(path, f"must be one of {legal}, not {_shown(value)}")
    match value:
        case dict():
            yield from _object_problems(value, schema, path)
        case list():
            yield from _list_problems(value, schema, path)
        case str():
            yield from _string_problems(value, schema, path)
        case bool():
            pass
        case int():
            yield from _integer_problems(value, schema, path)


def _kind(value: Any) -> str:
    """What a value is, without showing it: it may be a secret that lost its quotes."""
    match value:
        case dict():
            return "a map"
        case list():
            return "a list"
        case str():
            return "a string"
        case bool():
            return "true or false"
        case int() if value not in _INT64:
            return "a number of more than 64 bits"
        case _:
            return "a number"


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | int) and len(str(value)) <= 64 else _kind(value)


def _object_problems(value: dict[Any, Any], schema: Schema, path: str) -> Iterator[FieldError]:
    most, least = schema.get("maxProperties"), schema.get("minProperties", 0)
    if most is not None and len(value) > most:
        yield FieldError(path, f"must have at most {most} entries, not {len(value)}")
    if len(value) < least:
        yield FieldError(path, f"must have at least {least} entries, not {len(value)}")
    properties: Mapping[str, Schema] = schema.get("properties", {})
    values: Schema | None = schema.get("additionalProperties")
    for key, item in value.items():
        below = f"{path}.{key}" if path else str(key)
        if not isinstance(key, str):
            yield FieldError(below, f"the key must be a string, not {_shown(key)}")
        elif key in properties:
            yield from find_structure_problems(item, properties[key], path=below)
        elif values is not None:
            yield from find_structure_problems(item, values, path=below)
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield FieldError(below, _unknown_field(key, properties))
    for key in schema.get("required", ()):
        if key not in value:
            yield FieldError(f"{path}.{key}" if path else key, "is required")


def _unknown_field(key: str, known: Mapping[str, Schema]) -> str:
    lower = {name.lower(): name for name in known}
    plain = key.lower().replace("_", "").replace("-", "")
    if (with_unit := lower.get(f"{plain}seconds")) is not None:
        return f"unknown field; did you mean {with_unit}, a number of whole seconds?"
    near = difflib.get_close_matches(plain, lower, n=1, cutoff=0.7)
    return f"unknown field; did you mean {lower[near[0]]}?" if near else "unknown field"


def _list_problems(value: list[Any], schema: Schema, path: str) -> Iterator[FieldError]:
    most, least = schema.get("maxItems"), schema.get("minItems", 0)
    if most is not None and len(value) > most:
        yield FieldError(path, f"must have at most {most} items, not {len(value)}")
    if len(value) < least:
        yield FieldError(path, f"must have at least {least} {'item' if least == 1 else 'items'}")
    if "items" in schema:
        for index, item in enumerate(value):
            yield from find_structure_problems(item, schema["items"], path=f"{path}[{index}]")
    for key in schema.get("x-kubernetes-list-map-keys", ()):
        yield from _duplicates(value, key, path)


def _duplicates(value: list[Any], key: str, path: str) -> Iterator[FieldError]:
    seen: dict[str, int] = {}
    for index, item in enumerate(value):
        name = item.get(key) if isinstance(item, dict) else None
        if not isinstance(name, str | int):
            continue
        seen[str(name)] = seen.get(str(name), 0) + 1
        if seen[str(name)] == 2:  # as the API server: the first repetition is named, further ones aren't
            yield FieldError(f"{path}[{index}]", f"{key} {_shown(name)} occurs more than once")


def _string_problems(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    most, least = schema.get("maxLength"), schema.get("minLength", 0)
    if most is not None and len(value) > most:
        yield FieldError(path, f"must have at most {most} characters, not {len(value)}")
    if len(value) < least:
        yield FieldError(path, f"must have at least {least} {'character' if least == 1 else 'characters'}")
    if "pattern" in schema and not _anchored(schema["pattern"]).fullmatch(value):
        yield FieldError(path, f"{_shown(value)} must match {schema['pattern']}")


@cache
def _anchored(pattern: str) -> re.Pattern[str]:
    """An anchored pattern for `fullmatch`: in Python `$` also matches before a last line break."""
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise ValueError(f"pattern {pattern!r} isn't anchored with ^ and $")
    return re.compile(f"(?:{pattern[1:-1]})", re.ASCII)


def _integer_problems(value: int, schema: Schema, path: str) -> Iterator[FieldError]:
    if value < schema.get("minimum", value):
        yield FieldError(path, f"must be at least {schema['minimum']}, not {value}")
    if value > schema.get("maximum", value):
        yield FieldError(path, f"must be at most {schema['maximum']}, not {value}")
