"""The arguments of calls become bytes, and come back with values in the places of references.

What is called is in `functions`. Where large arguments are kept is for the caller to say (`put`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fray.errors import SerializationError
from fray.payload.values.references import SCALARS, Reference
from fray.runtime.pool.messages.specs import ObjectId
from fray.runtime.pool.objects.flat_format import BytesLike, Encoded, pack
from fray.runtime.pool.objects.values import INLINE_LIMIT, decode, encode

__all__ = ["EncodedCall", "decode_call", "encode_call"]


_NO_ARGUMENTS = pack(pickle.dumps(((), {}, ()), protocol=5))


class EncodedCall(NamedTuple):
    """The arguments of a task or of a call of a method, as in `TaskSpec`."""

    args: bytes
    deps: tuple[ObjectId, ...]
    """Objects whose values take the place of references at the top level."""
    holds: tuple[ObjectId, ...]
    """All references, those of `deps` included, each once."""


def encode_call(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    put: Callable[[Encoded], ObjectId] | None = None,
    limit: int = INLINE_LIMIT,
) -> EncodedCall:
    """Return arguments as bytes, without the values of references at the top level.

    `put` stores an argument as an object of its own, which must live until the task is submitted: the
    largest ones, until what is left is no larger than `limit` bytes. None: all arguments go along.

    Raises `SerializationError`.
    """
    if not args and not kwargs:
        return EncodedCall(_NO_ARGUMENTS, (), ())
    if SCALARS.issuperset(map(type, args)) and SCALARS.issuperset(map(type, kwargs.values())):
        body = pickle.dumps((args, kwargs, ()), protocol=5)
        if len(body) < limit or put is None:
            return EncodedCall(pack(body), (), ())
    values: dict[int | str, Any] = dict(enumerate(args))
    values.update(kwargs)
    refs = {place: part.object_id for place, part in values.items() if isinstance(part, Reference)}
    encoded = _encode_arguments(values, refs, len(args))
    contained = encoded.contained
    if put is not None and encoded.size > limit:
        refs |= _put_largest(values, refs, put, encoded.size - limit)
        encoded = _encode_arguments(values, refs, len(args))
    deps = tuple(refs.values())
    return EncodedCall(encoded.to_bytes(), deps, tuple(dict.fromkeys(deps + contained)))


def decode_call(args: BytesLike, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return `(args, kwargs)`, with the values of `deps`, in their order, in their places.

    Raises what `decode` raises.
    """
    if args == _NO_ARGUMENTS:
        return (), {}
    positional, named, places = decode(args, what="the arguments")
    if not places:
        return tuple(positional), named
    for place, value in zip(places, values, strict=True):
        (positional if isinstance(place, int) else named)[place] = value
    return tuple(positional), named


def _encode_arguments(
    values: dict[int | str, Any], refs: Mapping[int | str, ObjectId], count: int
) -> Encoded:
    rest = {place: None if place in refs else part for place, part in values.items()}
    positional = [rest.pop(index) for index in range(count)]
    try:
        return encode((positional, rest, list(refs)), what="the arguments", root="")
    except SerializationError as error:
        for prefix, name in (("[0]", "args"), ("[1]", "kwargs")):
            if error.path.startswith(prefix):
                error.path = name + error.path.removeprefix(prefix)
        raise


def _put_largest(
    values: Mapping[int | str, Any],
    refs: Mapping[int | str, ObjectId],
    put: Callable[[Encoded], ObjectId],
    excess: int,
) -> dict[int | str, ObjectId]:
    encoded = {place: encode(part) for place, part in values.items() if place not in refs}
    done = {}
    for place in sorted(encoded, key=lambda place: encoded[place].size, reverse=True):
        if excess <= 0:
            break
        done[place] = put(encoded[place])
        excess -= encoded[place].size
    return done
