r"""A callable with its arguments becomes bytes that another machine can check, and call.

    fray callable 1\n | stamp, a line of JSON | pickle of the call | pickle of the names of `__main__`

Both pickles come from one pickler, so that a class is one class in both. The bytes are opaque to what
carries them (`chunks`, `staging`), and none is unpickled before their digest is right, since that runs code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fray.errors import (
    CallArgumentsError,
    InvalidOptionError,
    PayloadChangedError,
    PayloadCodeError,
    PayloadExitError,
    PayloadPythonError,
    PayloadTooLargeError,
    PayloadUnreadableError,
    SerializationError,
)
from fray.payload.local_modules import local_modules_by_value
from fray.payload.stamp import PYTHON, Stamp
from fray.payload.values.caches import is_cached_function
from fray.payload.values.pickling import ByValuePickler
from fray.payload.values.references import collector
from fray.payload.values.unpicklable import (
    LARGE_CAPTURES,
    find_largest,
    find_unpicklable_part_among,
    warn_of_captures,
)

__all__ = [
    "Call",
    "Payload",
    "PayloadLimits",
    "check_call",
    "check_python",
    "decode_callable",
    "encode_callable",
]

MAGIC = b"fray callable 1\n"
MISSING_NAME = ("Can't get attribute", "Can't get local attribute", "module ")
"""How AttributeErrors begin that pickle and modules raise for a name that isn't there."""

_Parts: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class PayloadLimits:
    """Largest payloads, in bytes: in Secrets, and behind a staging URL (0 where there is none)."""

    secrets: int = 8 << 20
    """Eight Secrets of a MiB; etcd holds them until the job is deleted."""
    staging: int = 0

    def fits_secrets(self, payload: Payload) -> bool:
        """Whether a payload goes into Secrets; what doesn't goes behind the staging URL."""
        return payload.size <= self.secrets


@dataclass(frozen=True)
class Payload:
    """A callable as bytes: what they are, and for people whose they are."""

    data: bytes = field(repr=False)
    sha256: str
    stamp: Stamp
    function: str

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)


@dataclass(frozen=True)
class Call:
    """A callable that came through: what to call, with what, and what `__main__` held of it."""

    function: Callable[..., Any] = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    main: Mapping[str, Any] = field(repr=False)
    """Functions and classes of the launching script that the callable uses, by their names."""


def encode_callable(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    limits: PayloadLimits = PayloadLimits(),
) -> Payload:
    """Return a callable with its arguments as bytes that another machine with this Python can call.

    Functions and classes of `__main__`, of notebooks and of functions go by value, and so do those of modules
    that are importable here only because of the working directory or an editable install.

    Raises:
        CallArgumentsError: it can't be called so.
        InvalidOptionError: it can't be called at all, or calling it would run nothing (generator functions).
        SerializationError: something in it can't be pickled; says what and where.
        PayloadTooLargeError: it is larger than all of `limits`; names the largest parts.
    """
    name = _name_of(function)
    call = (function, tuple(args), dict(kwargs or {}))
    check_call(*call)
    stamp = Stamp.here()
    file = io.BytesIO()
    file.write(MAGIC + stamp.to_json().encode() + b"\n")
    with local_modules_by_value():
        _dump(call, name, file)
        data = file.getvalue()
        limit = max(limits.secrets, limits.staging)
        if len(data) > limit:
            parts = find_largest(_named_parts(call, name))
            staged = limits.staging >= limits.secrets
            raise PayloadTooLargeError(name, len(data), limit, parts, staged)
        if len(data) > LARGE_CAPTURES:
            warn_of_captures(function, name)
    return Payload(data, hashlib.sha256(data).hexdigest(), stamp, name)


def check_python(made_by: str) -> None:
    """Raise `PayloadPythonError` unless `made_by` is the minor version of this Python."""
    if made_by != PYTHON:
        raise PayloadPythonError(made_by, PYTHON)


def decode_callable(data: bytes, *, sha256: str) -> Call:
    """Return the call in a payload, whose digest came from somebody who is trusted.

    Imports what it needs, so it may take long and print.

    Raises:
        PayloadChangedError: the digest is another one; nothing was unpickled.
        PayloadPythonError: it was made by another minor version of Python; nothing was unpickled.
        PayloadCodeError: a module, or a name in it, isn't here.
        PayloadExitError: a module called `sys.exit` when it was imported.
        PayloadUnreadableError: anything else went wrong while it was read; the cause is chained.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise PayloadChangedError(sha256, found, len(data))
    line, _, body = data.removeprefix(MAGIC).partition(b"\n")
    try:
        if not data.startswith(MAGIC):
            raise ValueError("it doesn't begin as one")  # noqa: TRY301 - one story for all that is no payload
        stamp = Stamp.from_json(line)
    except ValueError as error:
        raise PayloadUnreadableError(f"it isn't a payload: {error}") from error
    check_python(stamp.python)
    unpickler = pickle.Unpickler(io.BytesIO(body))
    try:
        function, args, kwargs = unpickler.load()
        main = unpickler.load()
    except MemoryError:
        raise
    except SystemExit as error:
        # Left alone it would end this process as if the callable had run.
        raise PayloadExitError(repr(error.code)) from error
    except Exception as error:
        raise _explained(error, stamp) from error
    return Call(function, args, kwargs, main)


class _CallPickler(ByValuePickler):
    """Remembers what of the launching script's top level went by value."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.main: dict[str, Any] = {}

    def reducer_override(self, obj: Any) -> Any:
        if (isinstance(obj, type | types.FunctionType) or is_cached_function(obj)) and (
            obj.__module__ == "__main__"
        ):
            name = obj.__qualname__
            if getattr(sys.modules["__main__"], name, None) is obj:
                self.main[name] = obj
        return super().reducer_override(obj)


def _dump(call: _Parts, name: str, file: io.BytesIO) -> None:
    """Write both pickles. Raises `SerializationError`."""
    outer, found = collector.found, list[int]()
    collector.found = found
    try:
        pickler = _CallPickler(file)
        pickler.dump(call)
        # Whatever is in it was pickled with the call: it is a reference to that.
        pickler.dump(dict(pickler.main))
    except MemoryError:
        raise
    except Exception as error:
        path, problem = find_unpicklable_part_among(_named_parts(call, name), error)
        raise SerializationError(f"the callable {name!r}", path, problem) from error
    finally:
        collector.found = outer
    if found:
        raise SerializationError(
            f"the callable {name!r}",
            "",
            "it holds a reference to an object or actor of this process's pool, which no other job can read",
        )


def _named_parts(call: _Parts, name: str) -> list[tuple[str, Any]]:
    function, args, kwargs = call
    named = [(f"args[{index}]", part) for index, part in enumerate(args)]
    return [(name, function), *named, *((f"kwargs[{key!r}]", part) for key, part in kwargs.items())]


def _name_of(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def check_call(function: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that calling it so runs something.

    Raises:
        CallArgumentsError: it can't be called with these arguments.
        InvalidOptionError: it can't be called at all, or is a generator function.
    """
    name = _name_of(function)
    if not callable(function):
        raise InvalidOptionError("function", f"of type {type(function).__qualname__}", "what can be called")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidOptionError(
            "function", f"the generator function {name!r}", "functions: nothing would take the items"
        )
    try:
        # Not that of what it wraps: decorators may pass other arguments on than they take.
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return  # built-in functions may have none
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CallArgumentsError(name, str(error)) from None


def _explained(error: Exception, stamp: Stamp) -> PayloadCodeError | PayloadUnreadableError:
    if isinstance(error, ImportError):
        return PayloadCodeError("the callable", str(error), error.name or "")
    if isinstance(error, AttributeError) and str(error).startswith(MISSING_NAME):
        return PayloadCodeError("the callable", str(error))
    problem = f"{type(error).__qualname__}: {error}"
    return PayloadUnreadableError(problem, stamp.differences(Stamp.here()))
