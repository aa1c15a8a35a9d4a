"""What words of a command line are: the name of a job that is there, or what a new one would run.

Options may follow a name (`fray explain digits -o yaml`), but behind the first word of a program all options
are the program's, as with `fray run`. So a program needs `--` before it; a function shows by its colon.
"""

from __future__ import annotations

from typing import Any

from typer import Context
from typer.core import TyperCommand

__all__ = ["JobOrProgramCommand", "has_program"]

_PROGRAM = "fray.cli.has_program"


class JobOrProgramCommand(TyperCommand):
    """A command whose parameter `words` may be either."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line, after finding out where its options end."""
        from fray.cli.named_job import split_target  # noqa: PLC0415 - `fray --help` needn't wait for it

        ctx.allow_interspersed_args = False
        options, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        words: list[str] = list(options.get("words") or ())
        before = args[: len(args) - len(words)]
        found = bool(words) and (before[-1:] == ["--"] or split_target(words[0]) is not None)
        ctx.meta[_PROGRAM] = found
        ctx.allow_interspersed_args = not found
        return super().parse_args(ctx, args)


def has_program(context: Context) -> bool:
    """Return whether the words of this command line are a program or a function."""
    return bool(context.meta[_PROGRAM])
