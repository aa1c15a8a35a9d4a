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

from fray.payload.values.captures import Captures
from fray.payload.values.classes import sent_states
from fray.payload.values.unpicklable import LARGE_CAPTURES, warn_of_captures
from fray.runtime.pool.messages.specs import DIGEST_BYTES, FunctionId, ObjectId
from fray.runtime.pool.objects.values import decode, encode

__all__ = ["EncodedFunction", "decode_function", "encode_function"]


class EncodedFunction(NamedTuple):
    """A function, a class of actors, or anything else that can be called."""

    id: FunctionId
    """Digest of `blob`: BLAKE2b, 16 bytes; one more where there are references, see `messages.FunctionId`."""
    blob: bytes
    contained: tuple[ObjectId, ...]
    """References in its closure, which belong into `TaskSpec.holds`."""


class _Known(NamedTuple):
    function: weakref.ref[Any]
    encoded: EncodedFunction
    captures: Captures
    states: tuple[int, ...]
    """Of the classes that it has captured, as they were sent with it."""

    def is_as_it_was(self) -> bool:
        """Return whether workers still get what the function is now: one process has one state of a class."""
        return not self.captures.changed() and sent_states(self.captures.classes) == self.states


_encoded_functions: dict[int, _Known] = {}


def encode_function(function: Callable[..., Any]) -> EncodedFunction:
    """Return a function as bytes: importable ones by name, others by value.

    Functions and classes are encoded once, and anew when what they have captured has changed; other callables
    are encoded each time.

    Raises `SerializationError`.
    """
    known = _encoded_functions.get(id(function))
    if known is not None and known.function() is function and known.is_as_it_was():
        return known.encoded
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    # First: what another thread changes during the encoding is seen by the next call.
    captures = Captures(function) if isinstance(function, types.FunctionType | type) else None
    encoded = encode(function, what=f"the function {name!r}", root=name)
    blob = pickle.dumps((name, encoded.to_bytes()), protocol=5)
    seen_late = captures is not None and captures.seen_late
    if len(blob) > LARGE_CAPTURES or seen_late:
        warn_of_captures(function, name, seen_late=seen_late)
    size = DIGEST_BYTES + 1 if encoded.contained else DIGEST_BYTES
    result = EncodedFunction(blake2b(blob, digest_size=size).digest(), blob, encoded.contained)
    if captures is not None:
        key = id(function)
        # The entry goes with the function, before its id can be another's.
        kept = weakref.ref(function, lambda _: _encoded_functions.pop(key, None))
        _encoded_functions[key] = _Known(kept, result, captures, sent_states(captures.classes))
    return result


def decode_function(blob: bytes) -> Callable[..., Any]:
    """Return the function.

    Raises:
        CodeNotFoundError: its module, or its name in it, isn't here; says which.
    """
    name, data = pickle.loads(blob)
    return cast("Callable[..., Any]", decode(data, what=f"the function {name!r}"))
