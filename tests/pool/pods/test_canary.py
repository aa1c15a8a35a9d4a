"""What users have pickled is unpickled by the processes that work with it, and never by the head."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pool.hosts.pools import PATIENCE
from tests.pool.pods.attempt import Attempt


class Canary:
    """Notes each process that unpickles it in a file, and is None there."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        note = f"import os\nwith open({str(self.notes)!r}, 'a') as notes:\n    print(os.getpid(), file=notes)"
        return exec, (note,)


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held

    def hold(self, held: object) -> object:
        return held


def unpickled_by(canary: Canary) -> set[int]:
    return {int(line) for line in canary.notes.read_text().split()}


def build(notes: str) -> Any:
    return Canary(Path(notes))


def fail(notes: str) -> None:
    raise ValueError(build(notes))


def generate(notes: str) -> Iterator[Any]:
    yield build(notes)


def test_the_head_unpickles_nothing_that_a_peer_who_has_proven_itself_sends(
    attempt: Attempt, tmp_path: Path
) -> None:
    attempt.show_rank_0()
    head = attempt.start_head()
    attempt.start_worker()
    context = attempt.join()
    places = ("function", "argument", "value", "constructor", "call", "result", "error", "item")
    canaries = {place: Canary(tmp_path / place) for place in places}

    def carry() -> bool:
        return captured is None

    captured = canaries["function"]
    assert context.get(context.run(carry), timeout=PATIENCE)
    assert context.get(context.run(repr, canaries["argument"]), timeout=PATIENCE) == "None"
    assert context.get(context.run(repr, context.put(canaries["value"])), timeout=PATIENCE) == "None"
    holder = context.create_actor(Holder, canaries["constructor"])
    assert context.get(holder.hold.remote(canaries["call"]), timeout=PATIENCE) is None
    assert context.get(context.run(build, str(canaries["result"].notes)), timeout=PATIENCE) is None
    with pytest.raises(ValueError, match="None"):
        context.get(context.run(fail, str(canaries["error"].notes)), timeout=PATIENCE)
    (item,) = context.run(generate, str(canaries["item"].notes))
    assert context.get(item, timeout=PATIENCE) is None

    readers = {place: unpickled_by(canary) for place, canary in canaries.items()}
    assert all(readers.values()), readers
    assert head.pid not in set().union(*readers.values())
    assert all(os.getpid() in readers[place] for place in ("result", "error", "item"))
    assert all(readers[place] - {os.getpid()} for place in places[:5])
