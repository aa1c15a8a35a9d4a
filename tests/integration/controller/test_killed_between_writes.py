"""An operator that dies before or after any of its writes: the next one comes to the same end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.kube.api import KubeApi
from tests.integration.controller.actor_stories import ACTOR, ActorStory
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands
from tests.integration.controller.kill_switch import KillSwitch, Moment
from tests.integration.controller.operator_thread import OperatorThread
from tests.integration.controller.stories import STORIES, Story, play, read_end, read_whole_end

pytestmark = pytest.mark.timeout(1800)
"""A story is played for each of its writes, or requests."""
MOST_WRITES = 60


class Supervisor:
    """Starts the operator again whenever it was killed."""

    def __init__(self, kubeconfig: Path, settings_for: SettingsFor, namespace: str) -> None:
        self._kubeconfig, self._settings_for, self._namespace = kubeconfig, settings_for, namespace
        self.deaths = 0
        self._begin()

    def arm(self, name: str, *, number: int, moment: Moment) -> None:
        """Have the operator killed at the `number`-th write about a job or an actor."""
        assert self._switched.wait(60)
        self._switch.arm(name, number=number, moment=moment)

    def keep_alive(self) -> None:
        """Replace a dead operator."""
        if self._operator.alive:
            return
        assert self._switch.dead, self._operator.failure
        self.deaths += 1
        self._begin()

    def end(self) -> None:
        """Stop the operator."""
        self._operator.stop()

    def _begin(self) -> None:
        self._switched = threading.Event()
        # A Lease of its own: how long the next one waits is not the matter here.
        settings = self._settings_for(self._namespace)
        self._operator = OperatorThread(self._kubeconfig, settings, wrap=self._wrap).start()

    def _wrap(self, api: KubeApi, kill: Callable[[], None]) -> KubeApi:
        self._switch = KillSwitch(api, kill)
        self._switched.set()
        return self._switch


@pytest.fixture
def supervisor(kubeconfig: Path, hands: Hands, settings_for: SettingsFor) -> Iterator[Supervisor]:
    """A supervisor of an operator of the test's namespace."""
    running = Supervisor(kubeconfig, settings_for, hands.namespace)
    yield running
    running.end()


@pytest.mark.parametrize(
    ("story", "moment"),
    # Before a write the server has what it has after the one before: of an actor one of both is enough.
    [*itertools.product(STORIES, ["before", "after"]), (ACTOR, "after")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_life_ends_the_same_at_whichever_write_the_operator_is_killed(
    story: Story | ActorStory, moment: Moment, hands: Hands, supervisor: Supervisor
) -> None:
    unharmed = story.begin(hands, "unharmed")
    play(hands, [unharmed], keep_alive=supervisor.keep_alive)
    expected = read_whole_end(hands, unharmed)
    unharmed.remove()
    for number in range(1, MOST_WRITES):
        deaths, name = supervisor.deaths, f"killed-{number}"
        supervisor.arm(name, number=number, moment=moment)
        life = story.begin(hands, name)
        play(hands, [life], keep_alive=supervisor.keep_alive)
        end = read_end(hands, life)
        life.remove()
        assert (end.status, end.children) == (expected.status, expected.children), (
            f"killed {moment} write {number}"
        )
        assert end.events <= expected.events, f"killed {moment} write {number}"
        if supervisor.deaths == deaths:
            break  # it made fewer writes: all were tried
    assert supervisor.deaths >= 6
