"""What an API server's refusal means to the user of a client, and what they can do about it."""

from __future__ import annotations

import re

from fray.errors import (
    AccessDeniedError,
    ClusterUnreachableError,
    FrayError,
    FrayNotInstalledError,
    NamespaceNotFoundError,
)
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError, UnreachableError
from fray.kube.resources import FRAYJOBS

__all__ = ["explain", "is_kind_unknown"]

FORBIDDEN = re.compile(
    r'User "(?P<account>[^"]+)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group '
    r'"(?P<group>[^"]*)"'
)
NO_NAMESPACE = re.compile(r'^namespaces "(?P<name>[^"]+)" not found')


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
