"""Times as they stand in a resource: RFC 3339 in UTC, to the millisecond.

Kubernetes' own conditions have whole seconds; a local job's timeouts and back-off need finer ones, and
RFC 3339 allows both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["CLOCK_SKEW", "format_time", "parse_time"]

CLOCK_SKEW = timedelta(minutes=1)
"""How far a node's clock, which says when a host ran and ended, may be from the API server's, which says when
its pod was made and deleted.
"""


def format_time(moment: datetime) -> str:
    """Return an aware datetime as `2026-01-31T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """Return the aware datetime of an RFC 3339 string.

    Raises `ValueError` for anything else.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment
