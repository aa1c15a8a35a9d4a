"""What an API server answers when it doesn't do what it was asked, by what the caller should do.

HTTP codes end here: callers catch classes. Reasons and messages are the server's own words, cut to a
readable length.
"""

from __future__ import annotations

import json
from typing import Any

from fray.errors import SurroundingsError

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "ConflictError",
    "ExpiredError",
    "ForbiddenError",
    "NotFoundError",
    "RefusedError",
    "ServerError",
    "ThrottledError",
    "UnauthorizedError",
    "UnreachableError",
    "build_api_error",
    "read_api_error",
]

MESSAGE_LIMIT = 1024
UNKNOWN_PATH = "404 page not found"
"""All that a server says of a kind that it doesn't serve; of an object that isn't there it sends a Status."""
NOT_CONNECTED = ("ClientConnector", "NotConnected")
"""How reasons begin that mean there was no connection: names of aiohttp's errors, and our own word."""


class ApiError(SurroundingsError):
    """An API request that was not fulfilled.

    `request` is its method and path, `status` the HTTP code (0 when there was none), `reason` the
    server's reason, `detail` its message.
    """

    request: str
    status: int
    reason: str
    detail: str
    retry_after_seconds: float | None = None

    @property
    def message(self) -> str:
        """The request and the server's answer."""
        answer = f"{self.status} {self.reason}".strip() if self.status else self.reason
        return f"{self.request}: {answer}: {self.detail}"


class NotFoundError(ApiError):
    """There is no such object, or no such kind. Only this means absent."""


class AlreadyExistsError(ApiError):
    """An object of this name exists already."""


class ConflictError(ApiError):
    """The object has changed since it was read: read it again."""


class ExpiredError(ApiError):
    """The resource version is too old to go on from: list again."""


class ForbiddenError(ApiError):
    """The caller lacks a right, or a quota is used up."""

    next_step = "Grant this right to the caller's account, or raise the quota that the message names."


class UnauthorizedError(ApiError):
    """The caller's credentials couldn't be read, or aren't accepted (any more)."""

    next_step = "Look at the account's token; outside of a pod log in to the cluster again."


class RefusedError(ApiError):
    """The server or a webhook finds the object itself wrong: the same request will fail again."""

    next_step = "Correct what the message names; the same request will be refused again."


class ThrottledError(ApiError):
    """The server asks to come back later."""

    next_step = "Try again later, and from fewer callers."


class ServerError(ApiError):
    """The server failed, or a webhook it must ask did."""

    next_step = "Try again later; if it stays so, look at the API server and the webhooks that it asks."


class UnreachableError(ApiError):
    """No answer of the server came: the connection failed, took too long, or somebody else answered.

    The request may have been carried out, if it was sent.
    """

    @property
    def was_sent(self) -> bool:
        """Whether the request may have reached the server: False where no connection came about."""
        return not self.reason.startswith(NOT_CONNECTED)


def build_api_error(
    request: str, status: int, body: dict[str, Any] | str, *, retry_after_seconds: float | None = None
) -> ApiError:
    """Return the typed error of an answer; `body` is a `Status` object or the raw text."""
    if isinstance(body, dict) and body.get("kind") == "Status":
        reason, detail = str(body.get("reason") or ""), str(body.get("message") or "")
        after = (body.get("details") or {}).get("retryAfterSeconds")
        retry_after_seconds = retry_after_seconds if after is None else float(after)
    else:
        reason, detail = "", str(body)
    kind = _classify(status, reason, detail)
    if kind is NotFoundError and not reason and detail.strip() != UNKNOWN_PATH:
        kind = UnreachableError  # a proxy's words: they must not be taken for the server's
    return kind(request, status, reason, detail[:MESSAGE_LIMIT], retry_after_seconds)


def read_api_error(request: str, status: int, answer: bytes, *, retry_after: str = "") -> ApiError:
    """Return the typed error of an answer as it came, with the header `Retry-After`."""
    text = answer.decode(errors="replace")
    body: dict[str, Any] | str
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    seconds = float(retry_after) if retry_after.isdigit() else None
    return build_api_error(request, status, body, retry_after_seconds=seconds)


def _classify(status: int, reason: str, detail: str) -> type[ApiError]:
    if status == 409:
        return AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    if status == 500 and "failed to create typed patch object" in detail:
        # Server-side apply with an unknown field: the answer says 500, but it will never succeed.
        return RefusedError
    if status >= 500:
        return ServerError
    known: dict[int, type[ApiError]] = {
        401: UnauthorizedError,
        403: ForbiddenError,
        404: NotFoundError,
        410: ExpiredError,
        429: ThrottledError,
    }
    return known.get(status, RefusedError)
