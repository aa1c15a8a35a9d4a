"""`--timeout` takes hours, minutes and seconds, more than none of them together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.cli.named_job import read_timeout
from fray.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "seconds"),
    {
        "1s": 1,
        "90s": 90,
        "30m": 1800,
        "24h": 86400,
        "1h30m": 5400,
        "1h1s": 3601,
        "0h0m1s": 1,
        "007s": 7,
    }.items(),
)
def test_a_duration_is_its_seconds(text: str, seconds: int) -> None:
    assert read_timeout(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0s",
        "0h0m0s",
        "1",
        "s",
        "1d",
        "1H",
        "1.5h",
        "-1h",
        "+1h",
        "1m1h",
        "1m1m",
        "1h 1m",
        "1s\n",
        " 1s",
        "100ms",
        "10000000h",
        "\N{FULLWIDTH DIGIT ONE}s",
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="90s, 30m or 1h30m"):
        read_timeout(text)


@given(st.integers(0, 9999999), st.integers(0, 59), st.integers(1, 59))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert read_timeout(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds
