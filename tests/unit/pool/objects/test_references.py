"""References inside a value are told, each once, and only to the encoding that they are in."""

from __future__ import annotations

import pytest

from fray.payload.values.references import report_reference
from fray.runtime.pool.objects.values import decode, encode
from tests.unit.pool.objects.samples import Ref


def test_references_inside_are_told_once_and_in_order(read: list[int]) -> None:
    value = {"a": [Ref(5), Ref(3)], "b": (Ref(5), lambda: Ref)}
    encoded = encode(value)
    assert encoded.contained == (5, 3)
    assert decode(encoded.to_bytes())["a"][1].object_id == 3
    assert sorted(read) == [3, 5, 5]


def test_pickling_beside_an_encoding_is_told_apart() -> None:
    assert not report_reference(1)
    assert encode(Ref(2)).contained == (2,)
    assert not report_reference(1)


class EncodesWithin:
    def __reduce__(self) -> tuple[object, ...]:
        assert encode(Ref(9)).contained == (9,)
        return EncodesWithin, ()


def test_an_encoding_within_an_encoding_keeps_its_own_references() -> None:
    assert encode([Ref(1), EncodesWithin(), Ref(2)]).contained == (1, 2)


class Interrupting:
    def __reduce__(self) -> tuple[object, ...]:
        raise KeyboardInterrupt


def test_an_interrupt_goes_through_and_leaves_no_collector_behind() -> None:
    with pytest.raises(KeyboardInterrupt):
        encode([Interrupting()])
    assert not report_reference(1)
