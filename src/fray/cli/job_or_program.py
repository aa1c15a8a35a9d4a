"""What words of a command line are: the name of a job that is there, or what a new one would run.

Options may follow a name (`fray explain digits -o yaml`), but behind the first word of a program all options
are the program's, as with `fray run`. So a program needs `--` before it; a function shows by its colon. An
option behind a function that the command has itself was hardly meant for the function: it needs `--`, too.
"""

from __future__ import annotations

import shlex
from typing import Any

from typer import Context
from typer.core import TyperCommand

from fray.errors import InvalidRequestError

__all__ = ["JobOrProgramCommand", "ProgramCommand", "has_program"]

_PROGRAM = "fray.cli.has_program"


class ProgramCommand(TyperCommand):
    """A command whose parameter `words` is a program or a function, with its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; raises `InvalidRequestError` for own options behind a function."""
        _split(self, ctx, args)
        return super().parse_args(ctx, args)


class JobOrProgramCommand(TyperCommand):
    """A command whose parameter `words` may be either."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line, after finding out where its options end."""
        found = _split(self, ctx, args)
        ctx.meta[_PROGRAM] = found
        ctx.allow_interspersed_args = not found
        return super().parse_args(ctx, args)


def has_program(context: Context) -> bool:
    """Return whether the words of this command line are a program or a function."""
    return bool(context.meta[_PROGRAM])


def _split(command: TyperCommand, ctx: Any, args: list[str]) -> bool:
    """Return whether the words of a command line are certainly a program or a function."""
    ctx.allow_interspersed_args = False
    options, _, _ = command.make_parser(ctx).parse_args(args=list(args))
    words: list[str] = list(options.get("words") or ())
    if not words:
        return False
    if args[: len(args) - len(words)][-1:] == ["--"]:
        return True
    from fray.cli.named_job import split_target  # noqa: PLC0415 - `fray --help` needn't wait for it

    if split_target(words[0]) is None:
        return False
    if not ctx.resilient_parsing:
        _check_order(command, ctx, words)
    return True


def _check_order(command: TyperCommand, ctx: Any, words: list[str]) -> None:
    own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for word in words[1:]:
        if word == "--":
            return
        option = word.partition("=")[0]
        if option.startswith("-") and option in own:
            target, name = words[0], f"fray {ctx.info_name}"
            raise InvalidRequestError(
                option,
                f"stands behind {target}, so it would be an argument of the function",
                f"If it is for `{name}`, write it first: `{name} {option} ... {target}`; "
                f"if it is for the function, put `--` before that: `{name} -- {shlex.join(words)}`.",
            )
