"""Objects, pages and changes as an API server sends them: what its clients share, without any HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fray.kube.errors import build_api_error

__all__ = [
    "Manifest",
    "Page",
    "Propagation",
    "WatchEvent",
    "build_delete_options",
    "parse_event",
    "parse_object",
]

Manifest: TypeAlias = dict[str, Any]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True)
class Page:
    """A part of a list: its items, and in the last one the version to watch from."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """One change: ADDED, MODIFIED, DELETED, or BOOKMARK (only a newer resource version)."""

    type: str
    object: Manifest


def build_delete_options(
    propagation: Propagation, *, uid: str | None, resource_version: str | None
) -> Manifest:
    """Return the body of a request to delete an object, only if it is still the one that is meant."""
    body: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    wanted = {"uid": uid, "resourceVersion": resource_version}
    preconditions = {name: value for name, value in wanted.items() if value is not None}
    return body | ({"preconditions": preconditions} if preconditions else {})


def parse_object(text: bytes, *keys: str) -> Manifest:
    """Parse an object that has these keys, as all of an API server's have; raises ValueError."""
    parsed = json.loads(text)
    if not isinstance(parsed, dict) or not parsed.keys() >= set(keys):
        raise ValueError(f"not an object with {' and '.join(keys)}")
    return parsed


def parse_event(request: str, line: bytes) -> WatchEvent:
    """Parse a line of a watch; raises ValueError when it is none, and the `ApiError` that it reports."""
    event = parse_object(line, "type", "object")
    kind, body = event["type"], event["object"]
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise ValueError("not an event")  # noqa: TRY004 - it's not the caller's
    if kind == "ERROR":
        if not isinstance(code := body.get("code", 500), int):
            raise ValueError("not an event")
        raise build_api_error(request, code, body)
    if "metadata" not in body:
        raise ValueError("not an event")
    return WatchEvent(kind, body)
