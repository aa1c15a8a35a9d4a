"""Functions, classes of actors and whatever else can be called become bytes, once each, and come back.

What they are called with is in `calls`. Which ones were sent already is for the client to know.
"""

from __future__ import annotations

import pickle
import types
import weakref
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from fray.runtime.pool.messages import FunctionId, ObjectId
from fray.runtime.pool.objects.values import decode, encode

__all__ = ["EncodedFunction", "decode_function", "encode_function"]


class EncodedFunction(NamedTuple):
    """A function, a class of actors, or anything else that can be called."""

    id: FunctionId
    """Digest of `blob`: BLAKE2b, 16 bytes."""
    blob: bytes
    contained: tuple[ObjectId, ...]
    """References in its closure, which belong into `TaskSpec.holds`."""


_encoded_functions: dict[int, tuple[weakref.ref[Any], EncodedFunction]] = {}


def encode_function(function: Callable[..., Any]) -> EncodedFunction:
    """Return a function as bytes: importable ones by name, others by value.

    Functions and classes are encoded once, so that a closure is sent as it was then; other callables may
    change and are encoded each time.

    Raises `SerializationError`.
    """
    known = _encoded_functions.get(id(function))
    if known is not None and known[0]() is function:
        return known[1]
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    encoded = encode(function, what=f"the function {name!r}", root=name)
    blob = pickle.dumps((name, encoded.to_bytes()), protocol=5)
    result = EncodedFunction(blake2b(blob, digest_size=16).digest(), blob, encoded.contained)
    if isinstance(function, types.FunctionType | type):
        key = id(function)
        # The entry goes with the function, before its id can be another's.
        _encoded_functions[key] = (weakref.ref(function, lambda _: _encoded_functions.pop(key, None)), result)
    return result


def decode_function(blob: bytes) -> Callable[..., Any]:
    """Return the function.

    Raises:
        CodeNotFoundError: its module, or its name in it, isn't here; says which.
    """
    name, data = pickle.loads(blob)
    return cast("Callable[..., Any]", decode(data, what=f"the function {name!r}"))
