"""How far a container's log has been read: where to go on after a cut, what to drop, and what is missing.

Pure. Kubernetes resumes at a whole second, and lines of standard output and error may be a moment out of
order, so the last two seconds come again. Their lines are known by time and content, and counted, since a
program may print one line twice in the same moment.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

from fray.cluster.long_lines import LONGEST_LINE, split_long_line

__all__ = ["LogCursor", "TimedLine", "split_timed_line"]

STAMP = re.compile(
    rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})?(?P<zone>Z|[+-]\d\d:\d\d) "
)


OVERLAP = timedelta(seconds=1)
"""How much more than the last second is read again."""


@dataclass(frozen=True)
class TimedLine:
    """A line that wasn't returned before. `at` is None for words of the kubelet, which have no time.

    `missing` is True where lines before it were lost: those that were read last are gone from the log.
    """

    text: str
    at: datetime | None = None
    missing: bool = False


class LogCursor:
    """The place in one container's log up to which it was read."""

    def __init__(self) -> None:
        self._second: datetime | None = None
        self._seen: dict[datetime, array[int]] = {}
        """The lines since `since`, by their second; eight bytes each, since there may be very many."""
        self._repeated = _Expected(())
        """Those of them that are still to come again."""

    @property
    def since(self) -> str | None:
        """Where to resume, as Kubernetes takes it; None: at the beginning."""
        return None if self._second is None else (self._second - OVERLAP).strftime("%Y-%m-%dT%H:%M:%SZ")

    def resume(self) -> None:
        """Expect the log again, from `since` on."""
        self._repeated = _Expected(self._seen.values())

    def take(self, line: bytes) -> TimedLine | None:
        """Return a line as it came, without its newline; None where it was returned before."""
        stamp = STAMP.match(line)
        if stamp is None:
            return TimedLine(line.decode(errors="replace"))
        second, at = _read_time(stamp)
        key = int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")
        if self._repeated.take(key):
            return None
        later = self._second is None or second > self._second
        missing = later and self._repeated.left > 0
        if later:
            self._second = second
            self._repeated = _Expected(())
            self._seen = {at: keys for at, keys in self._seen.items() if at >= second - OVERLAP}
        if self._second is not None and second >= self._second - OVERLAP:
            self._seen.setdefault(second, array("Q")).append(key)
        return TimedLine(line[stamp.end() :].decode(errors="replace"), at, missing)


class _Expected:
    """Lines that are to come again, some of them several times; nine bytes each, since there may be many."""

    def __init__(self, keys: Iterable[array[int]]) -> None:
        self._keys = array("Q", sorted(chain.from_iterable(keys)))
        self._came = bytearray(len(self._keys))
        self.left = len(self._keys)

    def take(self, key: int) -> bool:
        """Whether this line was to come again; it is expected once less then."""
        index = bisect_left(self._keys, key)
        while index < len(self._keys) and self._keys[index] == key:
            if not self._came[index]:
                self._came[index] = True
                self.left -= 1
                return True
            index += 1
        return False


def split_timed_line(line: bytes, *, longest: int = LONGEST_LINE) -> list[bytes]:
    """Return a line as it came in parts that aren't too long, at least one; each has the time of the line."""
    stamp = STAMP.match(line)
    begin = 0 if stamp is None else stamp.end()
    if len(line) - begin <= longest:
        return [line]
    return [line[:begin] + part for part in split_long_line(line[begin:], longest=longest)]


def _read_time(stamp: re.Match[bytes]) -> tuple[datetime, datetime]:
    """Return the second of a line, and its time as exactly as Python has it."""
    zone = stamp["zone"].decode().replace("Z", "+00:00")
    second = datetime.fromisoformat(stamp["second"].decode() + zone).astimezone(UTC)
    digits = (stamp["fraction"] or b".").decode()[1:7].ljust(6, "0")
    return second, second.replace(microsecond=int(digits))
