"""Messages come out of a frame's body as they went in, whichever way each of them went."""

from __future__ import annotations

import pytest

from fray.runtime.pool.message_codec import decode_messages, encode_messages
from fray.runtime.pool.messages.commands import DeliverItems, ResumeGenerator, RunTask
from fray.runtime.pool.messages.events import ItemsProduced, TaskBlocked, TaskDone
from fray.runtime.pool.messages.specs import PLAIN, Failed, Inline, Profile, Stored, TaskSpec

SPEC = TaskSpec(1 << 41, b"digest", b"args", "task", 7, (3, 4), (3, 4, 5), retries=1, timeout=2.5)
MESSAGES = [
    RunTask(1, SPEC, b"blob", (Inline(b"a", (9,)), Stored(2, 100, ())), False, 2, 3, 4),
    RunTask(1, SPEC._replace(profile=Profile(max_calls=1)), b"", (), True, 1, 0, 0),
    RunTask(1, SPEC._replace(profile=Profile(), actor=6, method="m", shape=()), b"", (), True, 1, 0, 0),
    TaskDone(5, b"value", 8, 1e9, 0.25, False),
    TaskDone(5, Inline(b"value", (1, 2)), 8, 1e9, 0.25, False),
    TaskDone(5, Stored(1, 70_000, (1,), on_disk=True), 8, 1e9, 0.25, False),
    TaskDone(5, Failed(b"error", "", "task", ("once",), (("n", 1),)), 0, 1e9, 0.25, True),
    ItemsProduced(5, 10, ((1 << 41, b"a"), (7, b"b"))),
    ItemsProduced(5, 10, ((6, b"a"), (7, Inline(b"b", (3,))))),
    ItemsProduced(5, 10, ((6, Stored(1, 70_000, (1,))),)),
    DeliverItems(2, 5, 10, ((6, b"a"), (7, b"b"))),
    TaskBlocked(5, 6),
    ResumeGenerator(1, 2, 3),
]


def kinds(message: object) -> object:
    """The types of a message and of all tuples in it: equality of tuples doesn't look at them."""
    return (type(message), *map(kinds, message)) if isinstance(message, tuple) else type(message)


@pytest.mark.parametrize("messages", [[message] for message in MESSAGES] + [MESSAGES, MESSAGES * 3])
def test_messages_come_back(messages: list[object]) -> None:
    back = decode_messages(encode_messages(messages))
    assert back == messages
    assert list(map(kinds, back)) == list(map(kinds, messages))


def test_those_of_each_task_need_no_class() -> None:
    items = [message for message in MESSAGES if isinstance(message, ItemsProduced | DeliverItems)]
    body = encode_messages([MESSAGES[2], MESSAGES[3], items[0], items[-1]])
    assert b"fray" not in body
    restored = decode_messages(body)[0].spec.profile
    assert restored == PLAIN
