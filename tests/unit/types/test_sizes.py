"""Sizes and cores: both grammars, what lacks a unit, and what a FrayJob is given."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import InvalidRequestError
from fray.types import ResourceConfig
from fray.types.sizes import format_cores, format_size, parse_cores, parse_size
from fray.wire.quantities import parse_quantity

MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the earlier APIs' units are binary
        ("4g", 4 * GIB),
        ("128m", 128 * MIB),
        ("512 MB", 512 * MIB),
        ("16GB", 16 * GIB),
        ("16GiB", 16 * GIB),
        ("2t", 2048 * GIB),
        ("1.5g", 3 * GIB // 2),
        (".5g", GIB // 2),
        ("2048k", 2 * MIB),
        # a FrayJob's are those of Kubernetes
        ("32Gi", 32 * GIB),
        ("100G", 100 * 10**9),
        ("5M", 5_000_000),
        ("2e9", 2_000_000_000),
        # bytes
        (4 * GIB, 4 * GIB),
        ("4294967296", 4 * GIB),
        (4294967296.0, 4 * GIB),
        (1048576, MIB),
        ("1048576.5", MIB + 1),
        # without a unit and below 1 MiB: GiB
        ("16", 16 * GIB),
        (16, 16 * GIB),
        (0.5, GIB // 2),
        ("1048575", 1048575 * GIB),
    ],
)
def test_what_a_size_means(text: Any, expected: int) -> None:
    assert parse_size("ram", text) == expected


BAD_SIZES = [
    *("", " ", "lots", "4gg", "-4g", "4 gallons", "4g 2m", "0", "1Ki", "1e19", "9e99", "1e999999999"),
    *("1e-999999999", "nan", "٤g", "9" * 40, "inf", "4kib", "g"),
    *(0, -1, True, None, [4], float("nan"), float("inf"), 2**63, -0.5),
]


@pytest.mark.parametrize("value", [*BAD_SIZES], ids=repr)
def test_what_is_no_size(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"ram: is .*\nWrite a size such as 4g"):
        parse_size("ram", value)


@given(st.text() | st.floats() | st.integers())
def test_any_value_is_a_size_or_a_typed_error(value: Any) -> None:
    try:
        size = parse_size("ram", value)
    except InvalidRequestError:
        return
    assert MIB <= size < 2**63


@given(st.integers(MIB, 2**63 - 1) | st.integers(20, 62).map(lambda bits: 2**bits))
def test_a_size_is_written_exactly(size: int) -> None:
    assert parse_quantity(format_size(size)) == size
    assert len(format_size(size)) <= 32, "the CRD's limit"


@pytest.mark.parametrize(
    ("size", "text"),
    [(4 * GIB, "4Gi"), (100 * 10**9, "100G"), (MIB + 1, "1048577"), (3 * GIB // 2, "1536Mi")],
)
def test_a_size_is_written_short(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize("value", ["16", 16, "0.5", 1048575])
def test_a_missing_unit_is_warned_of_where_it_was_written(value: Any) -> None:
    with pytest.warns(UserWarning, match=rf"ram is {value!r}, without a unit: read as {value} GiB") as caught:
        ResourceConfig(ram=value)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("value", ["16g", "16Gi", 1048576, "1048576", "2e9"])
def test_a_size_with_a_unit_or_in_bytes_is_not_warned_of(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ResourceConfig(ram=value, disk=value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (0.5, "500m"), ("500m", "500m"), ("8", "8"), (96, "96"), (1.5, "1500m"), (0.0001, "1m")],
)
def test_cores(value: Any, text: str) -> None:
    cores = parse_cores("cpu", value)
    assert format_cores(cores) == text
    assert parse_quantity(text) == cores >= Decimal(str(value).replace("500m", "0.5"))


@pytest.mark.parametrize(
    "value", [0, -1, "", "many", True, None, float("nan"), float("inf"), "1e999999999", 10**7, [1]], ids=repr
)
def test_what_is_no_number_of_cores(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"cpu: is .*\nWrite a number of cores above 0"):
        parse_cores("cpu", value)


@given(st.text() | st.floats() | st.integers())
def test_any_value_is_a_number_of_cores_or_a_typed_error(value: Any) -> None:
    try:
        cores = parse_cores("cpu", value)
    except InvalidRequestError:
        return
    assert parse_quantity(format_cores(cores)) == cores > 0
