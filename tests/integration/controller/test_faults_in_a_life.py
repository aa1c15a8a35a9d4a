"""Every request in a life fails once in every way that requests fail: the end is as if none had.

None of it may end the process: only what is wrong with the process itself would be mended by a restart.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray.vocabulary import LABEL_ACTOR, LABEL_JOB
from tests.integration.controller.actor_stories import SCALED_ACTOR, ActorStory
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import OperatorThread
from tests.integration.controller.stories import (
    STORIES,
    SUCCESS,
    End,
    Story,
    build_parent_name,
    play,
    read_ends,
    read_whole_end,
)

pytestmark = pytest.mark.timeout(1800)
"""A story is played for each of its writes, or requests."""
FAULTS = (
    Fault(Harm.ANSWER, 409, "Conflict"),
    Fault(Harm.ANSWER, 410, "Expired"),
    Fault(Harm.ANSWER, 429, "TooManyRequests"),
    Fault(Harm.ANSWER, 500, "InternalError"),
    Fault(Harm.ANSWER, 503, "ServiceUnavailable"),
    Fault(Harm.LIE, 504, "Timeout"),
    Fault(Harm.CUT),
    Fault(Harm.CUT_AFTER),
    Fault(Harm.CUT_IN_BODY),
    Fault(Harm.HANG),
    Fault(Harm.HANG_AFTER),
    Fault(Harm.DELAY),
)
UNANSWERED = (Harm.LIE, Harm.CUT_AFTER, Harm.CUT_IN_BODY, Harm.HANG_AFTER)
"""An operator that can't know that its status was written doesn't tell events about it either."""
REQUEST_SECONDS = 15.0
"""Longer than a busy machine stops: no other requests may fail than those that are to."""


@dataclass(frozen=True)
class Place:
    """One request of a life: the how manieth of its kind it is, from 1 on."""

    what: str
    number: int


class OneFaultEach:
    """A rule by which each job or actor suffers one fault at one of its requests."""

    def __init__(self) -> None:
        self.planned: dict[str, tuple[Place, Fault]] = {}
        self.places: defaultdict[str, list[Place]] = defaultdict(list)
        self.suffered: dict[str, str] = {}

    def __call__(self, call: Call) -> Fault | None:
        name = _subject_of(call)
        if name is None:
            return None
        before = self.places[name]
        place = Place(call.what, 1 + sum(other.what == call.what for other in before))
        before.append(place)
        planned, fault = self.planned.get(name, (None, None))
        if place != planned:
            return None
        self.suffered[name] = f"{call.what} {fault}"
        return fault


def _subject_of(call: Call) -> str | None:
    """Return the name of the actor or job, or its child, that a request is about; None for those of all."""
    parts = call.path.split("/")
    kind = parts[-2] if parts[-1] != "status" else parts[-3]
    if kind in ("frayjobs", "frayactors", "statefulsets"):
        found = parts[parts.index(kind) + 1]
    elif kind == "jobsets":
        found = parts[-1].rpartition("-a")[0]
    else:
        labels = call.body.get("metadata", {}).get("labels", {})
        found = labels.get(LABEL_JOB) or labels.get(LABEL_ACTOR)
    return found and found.removesuffix(build_parent_name(""))


def _faults_at(number: int, story: Story | ActorStory) -> tuple[Fault, ...]:
    """All faults for each request of the plain story, three in turn for those of the longer ones."""
    if story is SUCCESS:
        return FAULTS
    return tuple(FAULTS[(number * 3 + index) % len(FAULTS)] for index in range(3))


def is_as_expected(end: End, expected: End, suffered: str) -> bool:
    told_all = not suffered.startswith(tuple(f"PUT frayjobs/status {harm}" for harm in UNANSWERED))
    events = end.events == expected.events if told_all else end.events <= expected.events
    return (end.status, end.children) == (expected.status, expected.children) and events


@pytest.mark.parametrize("story", [*STORIES, SCALED_ACTOR], ids=lambda story: story.name)
def test_a_life_ends_the_same_whichever_of_its_requests_fails(
    story: Story | ActorStory, proxy: FaultyProxy, hands: Hands, settings_for: SettingsFor, proxied: Path
) -> None:
    rule = proxy.rule = OneFaultEach()
    operator = OperatorThread(proxied, settings_for(hands.namespace), request_seconds=REQUEST_SECONDS).start()

    def keep_alive() -> None:
        assert operator.alive, operator.failure

    try:
        unharmed = story.begin(hands, "unharmed")
        play(hands, [unharmed], keep_alive=keep_alive)
        expected = read_whole_end(hands, unharmed)
        lives = []
        for number, place in enumerate(list(rule.places["unharmed"]), start=1):
            for index, fault in enumerate(_faults_at(number, story)):
                name = f"hurt-{number}-{index}"
                rule.planned[name] = (place, fault)
                lives.append(story.begin(hands, name))
        play(hands, lives, keep_alive=keep_alive)

        def differences() -> list[str]:
            found = read_ends(hands, lives)
            return [
                f"{rule.suffered.get(name)}: {end}"
                for name, end in found.items()
                if not is_as_expected(end, expected, rule.suffered.get(name, "nothing"))
            ]

        # The last event may still be tried again.
        eventually(lambda: not differences(), told=differences)
        # Two changes that are seen at once are told at once: a life may need a later request of a kind less
        # than another did. The first of each kind comes in every life.
        unhurt = [rule.planned[life.name] for life in lives if life.name not in rule.suffered]
        assert [(place, str(fault)) for place, fault in unhurt if place.number == 1] == []
    finally:
        operator.stop()
    assert operator.failure is None
