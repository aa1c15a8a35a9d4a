"""What every host of a job runs: a program with its arguments, or a Python callable.

How a callable gets into a pod is the payload's matter; here it is only held.
"""

from __future__ import annotations

import re
from builtins import callable as is_callable
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fray.credentials import redacted
from fray.errors import InvalidRequestError
from fray.types.checks import check_text, is_encodable

__all__ = ["BinaryEntrypoint", "CallableEntrypoint", "Entrypoint"]

PYTHON: Final = "python3"
"""The interpreter's name that images and Debian machines have alike."""
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ARGV: Final = "Give a list of texts, such as ['--steps', '10']; numbers as str(10)."


@dataclass(frozen=True, repr=False)
class CallableEntrypoint:
    """A Python callable and what it is called with."""

    callable: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_callable(self.callable):
            remedy = "Give the function itself, not what it returns: `main`, not `main()`."
            problem = f"is of type {type(self.callable).__name__}, which can't be called"
            raise InvalidRequestError("Entrypoint.callable", problem, remedy)
        if isinstance(self.args, str | bytes | Mapping) or not isinstance(self.args, Sequence):
            remedy = "Give the positional arguments as a list: args=[config]."
            raise InvalidRequestError("Entrypoint.args", f"is of type {type(self.args).__name__}", remedy)
        if not _is_by_name(self.kwargs):
            remedy = "Give keyword arguments by name: {'steps': 10}."
            raise InvalidRequestError("Entrypoint.kwargs", f"is of type {type(self.kwargs).__name__}", remedy)
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "kwargs", dict(self.kwargs))

    def __repr__(self) -> str:
        # Arguments may hold anything, whole data sets and credentials included; so may partial functions.
        return f"CallableEntrypoint({_name_of(self.callable)})"


@dataclass(frozen=True, repr=False)
class BinaryEntrypoint:
    """A program and its arguments: they reach it as they stand here, through no shell."""

    command: str
    args: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_text("Entrypoint.command", self.command, remedy="Name a program, such as 'python3'.")
        object.__setattr__(self, "args", _arguments(self.args))

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments in one."""
        return (self.command, *self.args)

    def __repr__(self) -> str:
        return f"BinaryEntrypoint({[redacted(argument) for argument in self.argv]!r})"


@dataclass(frozen=True, init=False, repr=False)
class Entrypoint:
    """What to run: exactly one of a callable and a program.

    Make one with `from_callable`, `from_command` or `from_module`. The constructor takes the parts
    themselves, or the flat spelling of an earlier API: `Entrypoint(callable=main, function_args={...})`,
    `Entrypoint(binary="train", args=[...])`. Both spellings can be read.

    Raises:
        InvalidRequestError: There is not exactly one of both, or a part means nothing.
    """

    callable_entrypoint: CallableEntrypoint | None
    binary_entrypoint: BinaryEntrypoint | None

    def __init__(
        self,
        callable_entrypoint: CallableEntrypoint | None = None,
        binary_entrypoint: BinaryEntrypoint | None = None,
        *,
        binary: str | None = None,
        args: Sequence[str] | None = None,
        callable: Callable[..., Any] | None = None,  # noqa: A002 - the name of the earlier API
        function_args: Mapping[str, Any] | None = None,
    ) -> None:
        given = [part is not None for part in (callable_entrypoint, binary_entrypoint, callable, binary)]
        if sum(given) != 1:
            problem = "names nothing to run" if not any(given) else "names more than one thing to run"
            remedy = "Use Entrypoint.from_callable(main), or Entrypoint.from_command(['train', '--fast'])."
            raise InvalidRequestError("Entrypoint", problem, remedy)
        if args is not None and binary is None:
            remedy = "Use Entrypoint.from_callable(main, args=[...]) for a callable."
            raise InvalidRequestError("Entrypoint.args", "needs binary", remedy)
        if function_args is not None and callable is None:
            remedy = "They are the keyword arguments of a callable; args are those of a binary."
            raise InvalidRequestError("Entrypoint.function_args", "needs callable", remedy)
        kinds = (
            ("callable_entrypoint", callable_entrypoint, CallableEntrypoint),
            ("binary_entrypoint", binary_entrypoint, BinaryEntrypoint),
        )
        for name, part, kind in kinds:
            if part is not None and not isinstance(part, kind):
                remedy = (
                    "Use Entrypoint.from_callable(main), from_command(['train']) or from_module('train')."
                )
                raise InvalidRequestError(f"Entrypoint.{name}", f"is of type {type(part).__name__}", remedy)
        if callable is not None:
            kwargs = function_args if function_args is not None else {}
            callable_entrypoint = CallableEntrypoint(callable, (), kwargs)
        if binary is not None:
            binary_entrypoint = BinaryEntrypoint(binary, () if args is None else args)
        object.__setattr__(self, "callable_entrypoint", callable_entrypoint)
        object.__setattr__(self, "binary_entrypoint", binary_entrypoint)

    @staticmethod
    def from_callable(
        c: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Entrypoint:
        """Return an entrypoint that calls `c(*args, **kwargs)` on every host.

        Raises:
            InvalidRequestError: It can't be called, or the arguments are no list and no mapping.
        """
        return Entrypoint(CallableEntrypoint(c, args, {} if kwargs is None else kwargs))

    @staticmethod
    def from_command(command: Sequence[str]) -> Entrypoint:
        """Return an entrypoint that runs a program: its name, then its arguments.

        Raises:
            InvalidRequestError: It is one text (which a shell would have to split), or empty.
        """
        if isinstance(command, str):
            remedy = f"Give a list, such as {command.split()!r}, or ['sh', '-c', ...] for a shell."
            raise InvalidRequestError("Entrypoint.command", "is one text", remedy)
        argv = _arguments(command)
        if not argv:
            remedy = "Give a program and its arguments: ['python3', 'train.py']."
            raise InvalidRequestError("Entrypoint.command", "is empty", remedy)
        return Entrypoint(binary_entrypoint=BinaryEntrypoint(argv[0], argv[1:]))

    @staticmethod
    def from_binary(command: str, args: Sequence[str] = ()) -> Entrypoint:
        """Return an entrypoint that runs a program with arguments.

        Raises:
            InvalidRequestError: The name is empty, or the arguments are no list of texts.
        """
        return Entrypoint(binary_entrypoint=BinaryEntrypoint(command, args))

    @staticmethod
    def from_module(module: str, args: Sequence[str] = ()) -> Entrypoint:
        """Return an entrypoint that runs a Python module as a script: `python3 -m module args`.

        Raises:
            InvalidRequestError: It is no dotted name of a module.
        """
        remedy = "Give a dotted name, such as 'my_package.train'."
        check_text("Entrypoint.module", module, remedy=remedy)
        words = module.split()
        if len(words) == 1 and module.endswith(".py"):
            remedy = f"Run a file with Entrypoint.from_command([{PYTHON!r}, {module!r}])."
            raise InvalidRequestError("Entrypoint.module", f"is {module!r}, a file", remedy)
        if not _MODULE.fullmatch(module):
            if len(words) > 1:
                remedy = f"Run a command with Entrypoint.from_command({words!r})."
            raise InvalidRequestError("Entrypoint.module", f"is {module!r}, no module's name", remedy)
        return Entrypoint(binary_entrypoint=BinaryEntrypoint(PYTHON, ("-m", module, *_arguments(args))))

    @property
    def callable(self) -> Callable[..., Any] | None:
        """The callable, or None."""
        return None if self.callable_entrypoint is None else self.callable_entrypoint.callable

    @property
    def function_args(self) -> Mapping[str, Any] | None:
        """The callable's keyword arguments, or None without a callable."""
        return None if self.callable_entrypoint is None else self.callable_entrypoint.kwargs

    @property
    def binary(self) -> str | None:
        """The program, or None."""
        return None if self.binary_entrypoint is None else self.binary_entrypoint.command

    @property
    def args(self) -> Sequence[Any]:
        """The program's arguments, or the callable's positional ones."""
        part = self.callable_entrypoint or self.binary_entrypoint
        return () if part is None else part.args

    def __repr__(self) -> str:
        if self.binary_entrypoint is not None:
            return f"Entrypoint.from_command({[redacted(part) for part in self.binary_entrypoint.argv]!r})"
        return f"Entrypoint.from_callable({_name_of(self.callable)})"


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _is_by_name(kwargs: Any) -> bool:
    return isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)


def _arguments(args: Any) -> tuple[str, ...]:
    """A program's arguments, which may be empty texts."""
    if isinstance(args, str | bytes | Mapping) or not isinstance(args, Sequence):
        raise InvalidRequestError("Entrypoint.args", f"is of type {type(args).__name__}, not a list", _ARGV)
    for index, argument in enumerate(args):
        if not isinstance(argument, str):
            problem = f"is of type {type(argument).__name__}, not text"
            raise InvalidRequestError(f"Entrypoint.args[{index}]", problem, _ARGV)
        if not is_encodable(argument):
            problem = "holds a character that no program's argument can"
            raise InvalidRequestError(f"Entrypoint.args[{index}]", problem, _ARGV)
    return tuple(args)
