"""A list that is read piece by piece is the same list, at whichever item it is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fray.kube.objects import ListReader

ITEMS = [{"metadata": {"name": name}, "text": ' ],"items":[ é\\ "'} for name in ("a", "b", "ü")]
METADATA = {"resourceVersion": "7", "continue": "on"}
TYPED = {"kind": "PodList", "apiVersion": "v1", "metadata": METADATA, "items": ITEMS}
CUSTOM = {"apiVersion": "v1", "items": ITEMS, "kind": "FrayJobList", "metadata": METADATA}


def text_of(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def read(text: bytes, size: int) -> tuple[list[Any], dict[str, Any]]:
    reader, found = ListReader(), []
    for start in range(0, len(text), size):
        found += reader.feed(text[start : start + size])
    last, envelope = reader.finish()
    return found + last, envelope


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
@pytest.mark.parametrize("body", [TYPED, CUSTOM], ids=["typed", "custom"])
def test_the_objects_and_the_rest_are_told_apart(body: dict[str, Any], size: int) -> None:
    items, envelope = read(text_of(body), size)
    assert items == ITEMS
    assert envelope["metadata"] == METADATA
    assert envelope["kind"] == body["kind"]


@pytest.mark.parametrize("items", [[], None])
def test_a_list_of_nothing(items: list[Any] | None) -> None:
    assert read(text_of({**TYPED, "items": items}), 5)[0] == []


def test_spaces_and_line_breaks_are_no_objects() -> None:
    text = b'{"kind":"L","metadata":{},"items":[ {"a":1} ,\n {"a":2}\n]}\n'
    assert read(text, 4)[0] == [{"a": 1}, {"a": 2}]


def test_objects_are_given_as_soon_as_they_are_whole() -> None:
    reader = ListReader()
    assert reader.feed(b'{"items":[{"a":1},{"a":') == [{"a": 1}]
    assert reader.feed(b'2},{"a":3},{"a"') == [{"a": 2}, {"a": 3}]
    assert reader.feed(b':4}],"kind":"L"}') + reader.finish()[0] == [{"a": 4}]


def test_a_large_object_is_not_looked_through_again_for_each_piece() -> None:
    reader, tries, parse = ListReader(), [], json.JSONDecoder().raw_decode

    def count(text: str, at: int) -> tuple[Any, int]:
        tries.append(at)
        return parse(text, at)

    reader._parse = count
    text, found = text_of({"items": [{"text": "x" * 1_000_000}]}), []
    for start in range(0, len(text), 1000):
        found += reader.feed(text[start : start + 1000])
    assert len(found + reader.finish()[0]) == 1
    assert len(tries) < 20


@pytest.mark.parametrize("text", [b"", b"[]", b"<html>", b'{"items":[{"a":1}', b'{"items":[x]}', b'"x"'])
def test_what_is_cut_or_no_list_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read(text, 3)
