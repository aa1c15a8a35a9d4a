"""What the members of an actor on this machine printed: a file of each, without times."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import BinaryIO, Final

from fray.cluster.local.store import state_errors
from fray.cluster.long_lines import split_long_line
from fray.runtime.actors.identity import Member
from fray.runtime.actors.local_objects import FileApi
from fray.runtime.actors.local_pod import find_log
from fray.types import JobId, LogLine
from fray.wire.frayactor import FrayActor

__all__ = ["read_actor_logs"]

PAUSE: Final = 0.2
"""Seconds between two looks at what has come."""
PIECE_BYTES: Final = 256 * 1024


def read_actor_logs(
    api: FileApi, actor: FrayActor, *, follow: bool, member: int | None, tail: int | None
) -> Iterator[LogLine]:
    """Yield the lines of an actor's members, one member after the other; see `Cluster.actor_logs`.

    Raises `StateDirectoryError` if the files can't be read.
    """
    indices = range(actor.spec.replicas) if member is None else (member,)
    with ExitStack() as files:
        logs = [_MemberLog(api, actor, index, files) for index in indices]
        # Looked at before reading: what was printed before the end is then read before leaving.
        lives = follow and api.has_actor(actor.metadata.name, actor.metadata.uid or "")
        printed = chain.from_iterable(log.read(to_end=not lives) for log in logs)
        yield from printed if tail is None else deque(printed, maxlen=tail)
        while lives:
            time.sleep(PAUSE)
            lives = api.has_actor(actor.metadata.name, actor.metadata.uid or "")
            for log in logs:
                yield from log.read(to_end=not lives)


class _MemberLog:
    """Reads what one member printed, as it comes."""

    def __init__(self, api: FileApi, actor: FrayActor, index: int, files: ExitStack) -> None:
        self._api = api
        self._member = Member(actor.spec.name, actor.metadata.name, actor.metadata.uid or "", index)
        self._files = files
        self._file: BinaryIO | None = None
        self._rest = b""

    def read(self, *, to_end: bool) -> Iterator[LogLine]:
        """Yield the lines that have come since the last call; `to_end`: one without an end, too."""
        with state_errors(self._api.state):
            self._file = self._file or self._open()
            while self._file is not None and (piece := self._file.read(PIECE_BYTES)):
                *whole, rest = (self._rest + piece).split(b"\n")
                for line in whole:
                    yield from self._build(line, ends=True)
                *parts, self._rest = split_long_line(rest)
                for part in parts:
                    yield from self._build(part, ends=False)

        if to_end and self._rest:
            yield from self._build(self._rest, ends=True)

    def _open(self) -> BinaryIO | None:
        path = find_log(self._api, self._member)
        # Kept open: the next actor of this name begins a file of its own.
        return None if path is None else self._files.enter_context(path.open("rb"))

    def _build(self, line: bytes, *, ends: bool) -> Iterator[LogLine]:
        index, job = self._member.index, JobId(self._member.name)
        *parts, last = split_long_line(line)
        for part in parts:
            yield LogLine(job, 1, index, index, 0, part.decode(errors="replace"), goes_on=True)
        text = last.decode(errors="replace").removesuffix("\r")
        yield LogLine(job, 1, index, index, 0, text, goes_on=not ends)
