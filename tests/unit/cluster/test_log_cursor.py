"""No line of a log twice, none lost, and what can't be had is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fray.cluster.kubernetes.log_cursor import LogCursor, TimedLine

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def stamped(second: float, text: str) -> bytes:
    at = START + timedelta(seconds=second)
    return f"{at.strftime('%Y-%m-%dT%H:%M:%S.%f')}000Z {text}".encode()


def texts(lines: list[TimedLine | None]) -> list[str]:
    return [line.text for line in lines if line is not None]


def from_second(log: list[bytes], since: str | None) -> list[bytes]:
    """What Kubernetes answers."""
    return [line for line in log if since is None or line[:19].decode() >= since[:19]]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([-0.4, 0.0, 0.1, 0.5, 1.0, 3.0]), st.sampled_from("ab")), max_size=30
    ),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_every_line_comes_once_at_whichever_byte_the_connection_is_cut(
    steps: list[tuple[float, str]], cuts: list[int]
) -> None:
    second, log = 0.0, []
    for step, text in steps:
        # A line may be a moment older than the one before it.
        log.append(stamped(second + step, text))
        second += max(step, 0.0)
    cursor, told = LogCursor(), []
    for cut in [*cuts, len(log)]:
        cursor.resume()
        told += [cursor.take(line) for line in from_second(log[:cut], cursor.since)]
    # A cut may come before one that was there already.
    assert texts(told) == [text for _, text in steps]
    assert not any(line.missing for line in told if line is not None)


def test_a_log_that_lost_what_was_read_last_has_a_gap() -> None:
    cursor = LogCursor()
    for line in (stamped(0, "one"), stamped(1, "two")):
        assert cursor.take(line) is not None
    cursor.resume()
    found = [cursor.take(line) for line in (stamped(7, "eight"), stamped(8, "nine"))]
    assert [line.missing for line in found if line is not None] == [True, False]


def test_a_resume_without_loss_has_none() -> None:
    cursor = LogCursor()
    cursor.take(stamped(0, "one"))
    for _ in range(2):
        cursor.resume()
        assert cursor.take(stamped(0, "one")) is None
    line = cursor.take(stamped(5, "two"))
    assert line == TimedLine("two", START + timedelta(seconds=5))


def test_times_have_any_zone_and_precision() -> None:
    cursor = LogCursor()
    line = cursor.take(b"2026-01-31T13:00:00.123456789+01:00 caf\xc3\xa9 \xff")
    assert line == TimedLine("café \N{REPLACEMENT CHARACTER}", START + timedelta(microseconds=123456))
    assert cursor.since == "2026-01-31T11:59:59Z"
    assert cursor.take(b"2026-01-31T12:00:01Z ") == TimedLine("", START + timedelta(seconds=1))


def test_words_of_the_kubelet_are_passed_on() -> None:
    told = b"unable to retrieve container logs for containerd://abc"
    assert LogCursor().take(told) == TimedLine(told.decode())
