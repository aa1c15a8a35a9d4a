"""What the workers run. Imported by every engine's workers: the standard library only, no engine."""

from __future__ import annotations

import math
import random
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "Tally",
    "count_arguments",
    "count_hits",
    "count_words",
    "do_nothing",
    "double",
    "find_sources",
    "give_headed_parts",
    "give_numbers",
    "give_parts",
    "merge_counts",
    "split_evenly",
    "sum_parts",
    "touch_pages",
    "wait_for_file",
]

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A word of a name: `getHTTPServer` has three, `get_http_server` too."""
VALUES_PER_PAGE = 512


def do_nothing(_number: int) -> None:
    """The smallest task. The number keeps engines from taking two calls for the same."""


def double(number: int) -> int:
    """A function that takes less than a microsecond."""
    return 2 * number


def give_numbers(count: int) -> Iterator[int]:
    """Small items."""
    for number in range(count):  # noqa: UP028 - Ray sends to its generators, which a range doesn't take
        yield number


def give_parts(parts: int, values: int) -> Iterator[list[int]]:
    """One map task of a shuffle: a list for each reduce task."""
    for part in range(parts):
        yield [part] * values


def give_headed_parts(parts: int, values: int) -> Iterator[int | list[int]]:
    """The same, each list after the number of its reduce task."""
    for part in range(parts):
        yield part
        yield [part] * values


def sum_parts(*parts: list[int]) -> int:
    """One reduce task."""
    return sum(map(sum, parts))


def count_arguments(*arguments: int) -> int:
    """How many values have arrived."""
    return len(arguments)


def wait_for_file(path: str) -> None:
    """Occupy a worker until `path` exists."""
    while not Path(path).exists():
        time.sleep(0.05)


def touch_pages(array: Any) -> tuple[float, bool]:
    """Read one number of every page of a float64 array; their sum, and whether the array is writeable."""
    return float(array[::VALUES_PER_PAGE].sum()), bool(array.flags.writeable)


def count_hits(seed: int, samples: int) -> int:
    """Of `samples` random points of the unit square, how many lie in the quarter circle (about pi/4)."""
    draw = random.Random(seed).random
    return sum(math.hypot(draw(), draw()) <= 1.0 for _ in range(samples))


def count_words(paths: Sequence[str]) -> Counter[str]:
    """How often each word stands in the files, capitals or not."""
    words: Counter[str] = Counter()
    for path in paths:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words.update(map(str.lower, WORD.findall(line)))
    return words


def merge_counts(*counts: Counter[str]) -> Counter[str]:
    """All counts as one."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def find_sources() -> list[tuple[str, int]]:
    """Path and size in bytes of each Python source of the standard library, largest first."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = [path for path in root.rglob("*.py") if "site-packages" not in path.parts]
    sized = [(str(path), path.stat().st_size) for path in found]
    return sorted(sized, key=lambda source: (-source[1], source[0]))


def split_evenly(sources: Sequence[tuple[str, int]], parts: int) -> list[list[str]]:
    """Deal files out in `parts` of about the same number of bytes; `sources` come largest first."""
    chunks: list[list[str]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for path, size in sources:
        smallest = sizes.index(min(sizes))
        chunks[smallest].append(path)
        sizes[smallest] += size
    return chunks


class Tally:
    """The actor that is measured: counts its calls."""

    def __init__(self) -> None:
        self._count = 0

    def increment(self) -> int:
        """Add one, and return the count."""
        self._count += 1
        return self._count
