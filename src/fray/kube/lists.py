"""A list of objects read while it arrives, so that no more of it is in memory than one object at a time.

A page holds as many objects as were asked for, whatever their size: a hundred of 1.5 MB take a gigabyte as
Python objects. Only JSON as an API server writes it is read here, with one member `items`.
"""

from __future__ import annotations

import codecs
import json
from typing import Any

__all__ = ["ListReader"]

ITEMS = '"items":['
SEPARATORS = " \t\r\n,"


class ListReader:
    """Takes a list in pieces; gives its objects as they are complete, and the rest at the end."""

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
