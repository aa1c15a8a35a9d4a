"""What the tasks and the actor of the word count do. No context, no printing: plain functions on data.

They are in a module beside the program, not in it, so that every worker finds them by their name.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Partition",
    "Tally",
    "count_words",
    "deal",
    "find_sources",
    "map_shard",
    "merge",
    "reduce_partition",
]

WORD = re.compile(r"[A-Za-z_]\w*")
FILES_PER_BATCH = 16


@dataclass(frozen=True)
class Partition:
    """The outcome for the words of one partition, or of several: `top` are the most frequent, sorted."""

    words: int
    distinct: int
    top: tuple[tuple[str, int], ...]


def find_sources(root: Path) -> list[Path]:
    """The Python files below a folder, without installed packages, in a stable order."""
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)


def deal(paths: Sequence[Path], shards: int) -> list[list[Path]]:
    """Deal files out like cards; no shard is empty."""
    return [list(paths[start::shards]) for start in range(min(shards, len(paths)))]


def count_words(paths: Iterable[Path], ignored: Collection[str]) -> Counter[str]:
    """How often each word stands in the files."""
    words: Counter[str] = Counter()
    for path in paths:
        words.update(WORD.findall(path.read_text(encoding="utf-8", errors="replace")))
    for word in ignored:
        del words[word]
    return words


def map_shard(
    paths: Sequence[Path], ignored: Collection[str], partitions: int, tally: Any
) -> Iterator[Counter[str]]:
    """Count a shard; yield, for each batch of files, one count per partition, in the order of partitions.

    A word is always in the same partition, whichever process counts it: that is why the built-in hash,
    which differs from process to process, won't do. `tally` is the handle of a `Tally`.
    """
    for start in range(0, len(paths), FILES_PER_BATCH):
        batch = paths[start : start + FILES_PER_BATCH]
        split: list[Counter[str]] = [Counter() for _ in range(partitions)]
        for word, count in count_words(batch, ignored).items():
            split[zlib.crc32(word.encode()) % partitions][word] = count
        yield from split
        tally.add.remote(len(batch))


def reduce_partition(top: int, *counts: Counter[str]) -> Partition:
    """Add up all counts of one partition."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return Partition(total.total(), len(total), _first(total.items(), top))


def merge(partitions: Iterable[Partition], top: int) -> Partition:
    """All partitions as one. The top is exact, since no word is in two of them."""
    found = list(partitions)
    candidates = [entry for partition in found for entry in partition.top]
    return Partition(
        sum(partition.words for partition in found),
        sum(partition.distinct for partition in found),
        _first(candidates, top),
    )


def _first(counts: Iterable[tuple[str, int]], top: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts, key=lambda entry: (-entry[1], entry[0]))[:top])


class Tally:
    """The actor: all map tasks tell it what they have done, the program asks it what to show."""

    def __init__(self) -> None:
        self._files = 0

    def add(self, files: int) -> None:
        """So many files more are counted."""
        self._files += files

    def read(self) -> int:
        """How many files are counted."""
        return self._files
