"""Messages of another version, or of a process with a defect, are known before they count."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fray.runtime.pool.machine.message_checks import RefusedMessageError, check_message
from fray.runtime.pool.messages.events import (
    ActorSubmitted,
    ObjectPut,
    ObjectsWanted,
    TaskDone,
    TaskSubmitted,
    WorkerLost,
)
from fray.runtime.pool.messages.greetings import NannyHello
from fray.runtime.pool.messages.specs import ActorSpec, Failed, Inline, Profile, Stored, TaskSpec

SPEC = TaskSpec(1, b"f", b"", "task", deps=(2,), holds=(2, 3), profile=Profile((("A", "1"),)))


@pytest.mark.parametrize(
    "message",
    [
        TaskSubmitted(SPEC, b"blob"),
        TaskSubmitted(SPEC._replace(timeout=60, retries=np.int64(2), shape=(("CPU", Fraction(1, 2)),)), b""),  # type: ignore[arg-type]
        ActorSubmitted(ActorSpec(1, b"c", b"", "", "Counter"), b"blob"),
        TaskDone(1, Failed(b"", "TaskTimeoutError", "t", ("one",), (("seconds", 1.5), ("worker", "w")))),
        ObjectPut(1, Inline(b"", (1, 2))),
        WorkerLost(1, "gone", True),
        NannyHello(0, "n", (("CPU", 1.0),), 1, 1, ""),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_sound_passes(message: Any) -> None:
    check_message(message)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (TaskSubmitted(SPEC._replace(deps=[2]), b""), "TaskSubmitted has as its spec"),  # type: ignore[arg-type]
        (TaskSubmitted(SPEC._replace(profile=(1, 2, 3)), b""), "TaskSubmitted has as its spec"),  # type: ignore[arg-type]
        (TaskSubmitted(SPEC._replace(shape=(("CPU",),)), b""), "TaskSubmitted has as its spec"),  # type: ignore[arg-type]
        (TaskSubmitted(SPEC, "blob"), "TaskSubmitted has as its blob 'blob'"),  # type: ignore[arg-type]
        (ObjectPut(1, Stored(1, None)), "ObjectPut has as its outcome"),  # type: ignore[arg-type]
        (ObjectsWanted((1, "2")), "ObjectsWanted has as its ids"),  # type: ignore[arg-type]
        (tuple.__new__(ObjectsWanted, ((1,), 2)), "ObjectsWanted isn't a message of this version"),
        (tuple.__new__(ObjectsWanted, ()), "ObjectsWanted isn't a message of this version"),
        ((1, 2), "tuple isn't a message of this version"),
        ({"task": 1}, "dict isn't a message of this version"),
    ],
)
def test_what_is_not_is_named(message: Any, told: str) -> None:
    with pytest.raises(RefusedMessageError, match=told):
        check_message(message)
