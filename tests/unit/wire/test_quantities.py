"""Quantities are read as Kubernetes reads them, exactly."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.wire.quantities import parse_quantity

VALUES = {
    8: "8",
    -3: "-3",
    "8": "8",
    "500m": "0.5",
    "1.5": "1.5",
    ".5": "0.5",
    "5.": "5",
    "+2": "2",
    "-1": "-1",
    "1Ki": "1024",
    "1.5Gi": "1610612736",
    "1Ei": "1152921504606846976",
    "100M": "100000000",
    "2E": "2000000000000000000",
    "3k": "3000",
    "1e3": "1000",
    "1E-3": "0.001",
    "250u": "0.00025",
    "7n": "0.000000007",
    "0": "0",
    "1e-12": "0.000000001",
    "-1e-12": "-0.000000001",
    "0.0000000011": "0.000000002",
    "0.1Ki": "102.4",
    "99999999999999999999Ki": "102399999999999999998976",
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_a_quantity_has_its_exact_value(text: int | str, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "+",
        "Ki",
        "e3",
        "1e",
        "1ki",
        "1K",
        "1 Gi",
        "1Gi ",
        "1\n",
        "1e1.5",
        "0x1",
        "1,5",
        "NaN",
        "Infinity",
        "--1",
        "1KiB",
        "1e1234567890",
        "\N{FULLWIDTH DIGIT ONE}",
        True,
        None,
        1.5,
        b"1",
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"500m, 8, 1\.5, 32Gi or 100M"):
        parse_quantity(text)


def test_a_hostile_exponent_costs_nothing() -> None:
    assert parse_quantity("1e999999999") > 10**18
    assert parse_quantity("1e-999999999") == Decimal("1e-9")


@given(st.integers(-(10**40), 10**40), st.integers(0, 9))
def test_milli_and_decimals_agree(number: int, digits: int) -> None:
    assert Fraction(parse_quantity(f"{number}e-{digits}")) == Fraction(number, 10**digits)
    assert parse_quantity(f"{number}m") == parse_quantity(f"{number}e-3")
