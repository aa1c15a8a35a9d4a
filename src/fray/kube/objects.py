"""Objects, lists and changes as an API server sends them: what its clients share, without any HTTP."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fray.kube.errors import build_api_error

__all__ = [
    "ListReader",
    "Manifest",
    "Page",
    "Propagation",
    "WatchEvent",
    "parse_event",
    "parse_object",
]

Manifest: TypeAlias = dict[str, Any]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]

ITEMS = '"items":['
SEPARATORS = " \t\r\n,"


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


class ListReader:
    """Takes a list in pieces; gives its objects as they are complete, and the rest at the end.

    So no more of a list is in memory than one object at a time: a page holds as many as were asked for,
    whatever their size, and a hundred of 1.5 MB take a gigabyte as Python objects. Only JSON as an API server
    writes it is read, with one member `items`.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._head = "", ""
        self._state = "head"
        self._enough = 0
        """How much text there must be before it is worth another look for the end of an object."""

    def feed(self, piece: bytes) -> list[Any]:
        """Take the next piece; return the objects that are complete now."""
        self._text += self._decode(piece)
        if self._state == "head" and (start := self._text.find(ITEMS)) >= 0:
            start += len(ITEMS)
            self._head, self._text, self._state = self._text[:start], self._text[start:], "items"
        if self._state != "items" or len(self._text) < self._enough:
            return []
        return self._take()

    def finish(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the last objects, and all of the list but them; raises ValueError if it isn't whole."""
        self._text += self._decode(b"", final=True)
        found = self._take() if self._state == "items" else []
        if self._state == "items":
            raise ValueError("the list is cut, or no JSON")
        envelope = json.loads(self._head + self._text)
        if not isinstance(envelope, dict):
            raise ValueError("not an object")  # noqa: TRY004 - it's not the caller's
        return found + (envelope.get("items") or []), envelope

    def _take(self) -> list[Any]:
        """Return the objects that are whole; what follows them stays."""
        found, text, at = [], self._text, 0
        while True:
            while at < len(text) and text[at] in SEPARATORS:
                at += 1
            if at < len(text) and text[at] == "]":
                self._state = "tail"
                break
            try:
                item, at = self._parse(text, at)
            except ValueError:
                break
            found.append(item)
        self._text = text[at:]
        self._enough = 2 * len(self._text)
        return found
