"""The user is told which part of a value can't be pickled, even of one that resists the search."""

from __future__ import annotations

import threading

import pytest

from fray.errors import SerializationError
from fray.runtime.pool.objects.values import encode
from tests.unit.pool.objects.samples import Point


def closing_over(thing: object) -> object:
    return lambda: thing


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"lock": threading.Lock()}, "result['lock']"),
        ([1, (2, Point(1, y=threading.Lock()))], "result[1][1].y"),
        (closing_over([threading.Lock()]), "result -> thing[0]"),
        (threading.Lock(), "result"),
    ],
)
def test_the_path_to_what_cannot_be_pickled(value: object, path: str) -> None:
    with pytest.raises(SerializationError) as raised:
        encode(value, what="the result of task 'x'", root="result")
    error = raised.value
    assert (error.what, error.path) == ("the result of task 'x'", path)
    assert "lock" in error.problem
    assert isinstance(error.__cause__, TypeError)


def test_the_search_for_it_ends_in_a_value_that_holds_itself() -> None:
    value: list[object] = [threading.Lock()]
    value.insert(0, value)
    with pytest.raises(SerializationError) as raised:
        encode(value)
    assert raised.value.path.startswith("value[0]")


def test_too_deep_a_value_is_told() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SerializationError):
        encode(value)


def closing_over_nothing() -> object:
    lock = threading.Lock()

    def inner() -> object:
        return lock, later

    if False:
        later = 1
    return inner


class KeyWithoutText:
    def __repr__(self) -> str:
        raise RuntimeError("never")


@pytest.mark.parametrize("value", [closing_over_nothing(), {KeyWithoutText(): threading.Lock()}])
def test_a_value_that_resists_the_search_is_told_all_the_same(value: object) -> None:
    with pytest.raises(SerializationError) as raised:
        encode(value)
    assert raised.value.path == "value"
