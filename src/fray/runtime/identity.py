"""Who this process is within its job: which slice, which host of it, which rank of how many.

The plan sets these facts in the environment of every process of a gang, the same on a laptop and in a
pod; this is the one place that reads them. Only the numbers are here: what a training framework does
with them (`jax.distributed.initialize`, `torch.distributed`) belongs to the user's code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

from fray.errors import SettingError
from fray.vocabulary import (
    ENV_ATTEMPT,
    ENV_COORDINATOR_ADDRESS,
    ENV_HOST,
    ENV_HOSTS_PER_SLICE,
    ENV_JOB_NAME,
    ENV_NUM_SLICES,
    ENV_SLICE,
)

__all__ = ["Identity", "IdentityError", "current_identity", "use_identity"]

_VARIABLES = (
    ENV_JOB_NAME,
    ENV_ATTEMPT,
    ENV_SLICE,
    ENV_NUM_SLICES,
    ENV_HOST,
    ENV_HOSTS_PER_SLICE,
    ENV_COORDINATOR_ADDRESS,
)


class IdentityError(SettingError):
    """The environment doesn't say which process of its job this one is.

    `variable` is the one that is missing or wrong; `problem` says what is wrong with it.
    """

    next_step = (
        "Fray sets it in every process of a job: start this one with `fray run`, and pass the whole "
        f"environment on to its children. To run outside any job, unset {', '.join(_VARIABLES)}."
    )


@dataclass(frozen=True)
class Identity:
    """One process of a gang: all processes of one attempt, one per host, started together.

    `attempt` counts from 1; `slice` (0 to `num_slices` - 1) and `host` (0 to `hosts_per_slice` - 1, within
    its slice) from 0. `coordinator` is the `host:port` at which rank 0 may offer a rendezvous; None in
    a process outside any job, whose `job` is empty.
    """

    job: str
    attempt: int
    slice: int
    num_slices: int
    host: int
    hosts_per_slice: int
    coordinator: str | None

    @property
    def rank(self) -> int:
        """Number of this process within the gang, from 0; slice by slice, so that neighbours share one."""
        return self.slice * self.hosts_per_slice + self.host

    @property
    def world_size(self) -> int:
        """Number of processes in the gang."""
        return self.num_slices * self.hosts_per_slice

    @property
    def is_leader(self) -> bool:
        """True in exactly one process of the gang: the one that prints and writes for all."""
        return self.rank == 0

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Identity:
        """Read the identity that the plan wrote into `environ`.

        Raises:
            IdentityError: a variable is missing, no number, out of its range, or no `host:port`.
        """
        num_slices = _number(environ, ENV_NUM_SLICES, minimum=1)
        hosts_per_slice = _number(environ, ENV_HOSTS_PER_SLICE, minimum=1)
        return cls(
            job=_text(environ, ENV_JOB_NAME),
            attempt=_number(environ, ENV_ATTEMPT, minimum=1),
            slice=_number(environ, ENV_SLICE, minimum=0, below=(num_slices, ENV_NUM_SLICES)),
            num_slices=num_slices,
            host=_number(environ, ENV_HOST, minimum=0, below=(hosts_per_slice, ENV_HOSTS_PER_SLICE)),
            hosts_per_slice=hosts_per_slice,
            coordinator=_address(environ, ENV_COORDINATOR_ADDRESS),
        )


_of_context: ContextVar[Identity | None] = ContextVar("fray_identity", default=None)


def current_identity() -> Identity:
    """The identity of this process, read once from its environment; in a host that is a thread, of that.

    A process outside any job (none of the variables is set) is rank 0 of 1, so that the same program
    also runs without Fray.

    Raises:
        IdentityError: some of the variables are set, but they are not whole or not right.
    """
    return _of_context.get() or _of_process()


def use_identity(identity: Identity) -> None:
    """Let `current_identity` return this one in this context: the host is a thread, and not its process."""
    _of_context.set(identity)


@cache
def _of_process() -> Identity:
    environ = os.environ  # noqa: TID251 - entry of a job's process: the only reader of these variables
    if not any(variable in environ for variable in _VARIABLES):
        return Identity(job="", attempt=1, slice=0, num_slices=1, host=0, hosts_per_slice=1, coordinator=None)
    return Identity.from_env(environ)


def _text(environ: Mapping[str, str], variable: str) -> str:
    value = environ.get(variable)
    if value is None:
        raise IdentityError(variable, "is not set")
    if not value:
        raise IdentityError(variable, "is empty")
    return value


def _number(
    environ: Mapping[str, str], variable: str, *, minimum: int, below: tuple[int, str] | None = None
) -> int:
    """The whole number in `variable`; `below` is an upper bound and the variable that it comes from."""
    value = _text(environ, variable)
    # int() alone would also take "1_000", " 1" and other alphabets' digits, which no plan writes.
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise IdentityError(variable, f"is {value!r}, not a whole number")
    number = int(value)
    if number < minimum:
        raise IdentityError(variable, f"is {number}; the smallest legal value is {minimum}")
    if below is not None and number >= below[0]:
        raise IdentityError(variable, f"is {number}, but must be below {below[1]}, which is {below[0]}")
    return number


def _address(environ: Mapping[str, str], variable: str) -> str:
    value = _text(environ, variable)
    host, _, port = value.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise IdentityError(variable, f"is {value!r}, not host:port")
    return value
