"""Values become bytes and buffers, and come back.

A value is pickled with protocol 5; buffers of 4 KiB and more (arrays) stay out of the pickle, so that they
are written from where they lie and read where they are mapped, read-only. Smaller arrays are copied, and are
writable.

How the bytes lie is in `flat_format`, what goes by name or by value in `pickling`. Calls, functions and
exceptions, which are more than a value, have files of their own.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from fray.errors import CodeNotFoundError, SerializationError, ValueExitError
from fray.payload.values.pickling import NotPicklableError, pickle_value
from fray.payload.values.references import SCALARS
from fray.payload.values.unpicklable import find_unpicklable_part
from fray.runtime.pool.objects.flat_format import BytesLike, Encoded, split

__all__ = ["INLINE_LIMIT", "decode", "encode", "encode_other", "pickle_plain"]

INLINE_LIMIT = 64 * 1024
"""Bytes up to which an encoded value travels with messages."""
PLAIN_ROW = 128
"""Parts of a list or tuple up to which all are looked at: for longer ones that takes what it may save."""


def encode(value: object, *, what: str = "the value", root: str = "value") -> Encoded:
    """Return a value as bytes and buffers.

    `what` names it in errors, and `root` begins the path to a part of it, as in `result['lock']`. The
    buffers must not change until they are written.

    Raises `SerializationError`, with the path to the part that can't be pickled where that is cheap.
    """
    plain = pickle_plain(value)
    return encode_other(value, what=what, root=root) if plain is None else Encoded(plain, [], ())


def encode_other(value: object, *, what: str, root: str = "value") -> Encoded:
    """Return what `encode` does, for a value that `pickle_plain` has left to it."""
    buffers = list[memoryview]()
    try:
        body, found = pickle_value(value, buffers)
    except NotPicklableError as error:
        path, problem = find_unpicklable_part(value, root, error.cause)
        raise SerializationError(what, path, problem) from error.cause
    return Encoded(body, buffers, tuple(dict.fromkeys(found)))


def decode(data: BytesLike, *, what: str = "the value") -> Any:
    """Return the value that `encode` was given; its large buffers are views of `data`, read-only.

    Raises:
        MalformedPayloadError: `data` isn't what `encode` made.
        CodeNotFoundError: a class or function of the value can't be imported here.
        ValueExitError: its code raised SystemExit, StopIteration or the like.
    """
    body, buffers = split(data)
    try:
        return pickle.loads(body, buffers=buffers)
    except (SystemExit, GeneratorExit, StopIteration, StopAsyncIteration) as error:
        raise ValueExitError(what, type(error).__qualname__, ", ".join(map(repr, error.args))) from error
    except ImportError as error:
        raise CodeNotFoundError(what, str(error)) from error
    except AttributeError as error:
        # The words of pickle for a module that hasn't got a name; other ones are of the value's own code.
        if not str(error).startswith(("Can't get attribute", "Can't get local attribute")):
            raise
        raise CodeNotFoundError(what, str(error)) from error


def pickle_plain(value: object) -> bytes | None:
    """Return the pickle of a scalar, or of a short row of them, which runs no code; None: it's another."""
    kind = type(value)
    if kind not in SCALARS:
        if kind is not tuple and kind is not list:
            return None
        row: Sequence[object] = value  # type: ignore[assignment]
        if len(row) > PLAIN_ROW or not SCALARS.issuperset(map(type, row)):
            return None
    return pickle.dumps(value, 5)
