"""What follows an error of an API server: the request is sent again, or the user gets a clear error.

Only requests that may be carried out twice are sent again: reads, and writes that the server itself tells
apart. A request that the server has judged is never sent again by this rule.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fray.backoff import Backoff
from fray.errors import (
    AccessDeniedError,
    ClusterUnreachableError,
    FrayError,
    FrayNotInstalledError,
    NamespaceNotFoundError,
)
from fray.kube.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from fray.kube.resources import FRAYJOBS

__all__ = ["BUSY", "LONGEST_ASKED", "Sleep", "explain", "is_kind_unknown", "persistently"]

FORBIDDEN = re.compile(
    r'User "(?P<account>[^"]+)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group '
    r'"(?P<group>[^"]*)"'
)
NO_NAMESPACE = re.compile(r'^namespaces "(?P<name>[^"]+)" not found')

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

LONGEST_ASKED: Final = 30.0
"""The longest pause, in seconds, that a server can ask for."""
BUSY: Final = Backoff(0.25, 4.0, tries=5, longest_asked=LONGEST_ASKED)
"""Where the server is overloaded or failed."""
LOST: Final = Backoff(0.4, 0.8, tries=2, longest_asked=LONGEST_ASKED)
"""Where no answer came. Few tries, because the usual cause is a wrong address and the user is waiting."""


def is_kind_unknown(error: ApiError) -> bool:
    """Whether the server doesn't know the kind that was asked for, rather than the object."""
    return isinstance(error, NotFoundError) and not error.reason


def explain(error: ApiError, *, server: str, namespace: str) -> FrayError:
    """Return the error that tells a user what to do; the given one, where that says all that is known."""
    if is_kind_unknown(error):
        return FrayNotInstalledError(server, str(FRAYJOBS))
    if isinstance(error, NotFoundError) and (missing := NO_NAMESPACE.search(error.detail)):
        return NamespaceNotFoundError(missing["name"], server)
    if isinstance(error, ForbiddenError) and (refused := FORBIDDEN.search(error.detail)):
        resource = ".".join(filter(None, (refused["resource"], refused["group"])))
        return AccessDeniedError(refused["account"], refused["verb"], resource, namespace, server)
    if isinstance(error, UnreachableError):
        problem = ": ".join(filter(None, (error.reason, error.detail)))
        return ClusterUnreachableError(server, error.request, problem)
    return error


async def persistently(act: Callable[[], Awaitable[T]], *, sleep: Sleep = asyncio.sleep) -> T:
    """Return what `act` returns, tried again after 429, 5xx and lost answers; raises the last `ApiError`."""
    failures = Counter[Backoff]()
    while True:
        try:
            return await act()
        except (ThrottledError, ServerError, UnreachableError) as error:
            backoff = LOST if isinstance(error, UnreachableError) else BUSY
            failures[backoff] += 1
            if failures[backoff] > backoff.tries:
                raise
            await sleep(backoff.pause(failures[backoff], error.retry_after_seconds))
