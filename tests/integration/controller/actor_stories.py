"""The life of a FrayActor that plays itself, whatever happens to the operator, and how it ends."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from fray import vocabulary as words
from tests.integration.controller.actor_hands import Actors
from tests.integration.controller.hands import Hands, Manifest, condition
from tests.integration.controller.stories import End, World, make_plain

__all__ = ["ACTOR", "SCALED_ACTOR", "ActorLife", "ActorStory"]

CONDITIONS = {
    "Accepted": ("True", "Valid"),
    "Ready": ("False", "StopRequested"),
    "Finished": ("True", "StopRequested"),
}
"""What its status says in the end."""


@dataclass(frozen=True)
class ActorStory:
    """It gets ready, loses its pod and gets another one, may be scaled to none, is stopped, and expires."""

    name: str = "actor"
    is_scaled: bool = False

    def begin(self, hands: Hands, name: str) -> ActorLife:
        """Submit an actor that lives through this."""
        return ActorLife(hands, name, self)


ACTOR = ActorStory()
SCALED_ACTOR = ActorStory("scaled-actor", is_scaled=True)


class ActorLife:
    """One actor that lives through the story, and its StatefulSet's controller, kubelet, members and user."""

    def __init__(self, hands: Hands, name: str, story: ActorStory) -> None:
        self._hands, self._actors, self.name = hands, Actors(hands), name
        self._left = 0 if story.is_scaled else 1
        """How many members there are when it is stopped."""
        self._sets = set[str]()
        self._pod: Manifest | None = None
        self._lost = False
        self.last_status: Manifest = {}
        """The status of the actor that was deleted after its end."""
        self._actors.submit(name, replicas=1, ttlSecondsAfterFinished=0)

    def step(self, world: World) -> bool:
        """Make the next move, if it is time for it; return whether the actor is gone."""
        actor, members = world.actors.get(self.name), world.sets.get(self.name)
        if self.last_status or actor is None:
            return bool(self.last_status)
        if members is not None:
            self._sets.add(members["metadata"]["uid"])
        if "deletionTimestamp" in actor["metadata"]:
            self._leave(actor)
        elif members is not None and "deletionTimestamp" in members["metadata"]:
            self._remove_set()
        elif members is not None and "status" in actor:
            self._keep_pod(members, actor["status"]["members"])
            self._use(actor)
        return bool(self.last_status)

    def remove(self) -> None:
        """Remove what the members reported; all else is gone."""
        query = {"labelSelector": f"{words.LABEL_ACTOR}={self.name}"}
        answer = self._hands.api.request("DELETE", f"{self._hands.core}/configmaps", query=query)
        assert answer.ok, answer.body

    def has_told(self, _: End) -> bool:
        """Whether the last event was sent: actors have none."""
        return True

    def judge(self, status: Manifest, children: list[str], events: list[str]) -> End:
        """Return how the life ended. Fails if that isn't as predicted, or more was made or is left."""
        told = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
        assert told == CONDITIONS, status
        counts = (status["ready"], status["replicas"], status["restarts"])
        assert counts == (f"0/{self._left}", 0, self._left), status
        assert len(self._sets) == 1, (self.name, self._sets)
        assert (children, events) == ([], []), self.name
        plain = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", json.dumps(status))
        return End(json.loads(make_plain(plain, self.name)), (), frozenset())

    def _use(self, actor: Manifest) -> None:
        """Do what is due once the operator has told all of what was done before."""
        replicas, status = actor["spec"]["replicas"], actor["status"]
        ready = condition(actor, "Ready")["status"] == "True" and all(
            member["startNumber"] for member in status["members"]
        )
        if ready and not self._lost:
            self._lost = True
            self._remove_pod()
        elif ready and status["restarts"] and replicas > self._left:
            self._actors.edit(self.name, replicas=self._left)
        # Each member that is left was started again once.
        elif replicas == self._left and (status["ready"], status["restarts"]) == (
            f"{self._left}/{self._left}",
            self._left,
        ):
            self._actors.edit(self.name, stopped=True)

    def _keep_pod(self, members: Manifest, told: list[Manifest]) -> None:
        """Make the pod once the operator has seen that there is none; remove one that is too much."""
        if not members["spec"]["replicas"]:
            self._remove_pod()
        elif self._pod is None and told and "pod" not in told[0]:
            self._pod = self._actors.place(members, 0)
            self._actors.report(self._pod, self.name, startNumber="1", restarts=str(int(self._lost)))
            self._actors.set_ready(self._pod, ready=True, ip="10.0.0.1")

    def _remove_pod(self) -> None:
        if self._pod is not None:
            self._hands.delete_pod(self._pod)
            self._pod = None

    def _remove_set(self) -> None:
        self._remove_pod()
        self._let_go(f"{self._actors.sets}/{self.name}")

    def _leave(self, actor: Manifest) -> None:
        """Do what follows the deletion of the actor after its end: what it owns goes, then the actor."""
        metadata = actor["metadata"]
        assert metadata["finalizers"] == ["foregroundDeletion"], metadata
        guard = self._hands.api.get(f"{self._hands.policies}/{self.name}-actor").body
        assert [owner["uid"] for owner in guard["metadata"]["ownerReferences"]] == [metadata["uid"]]
        assert self._hands.api.delete(f"{self._hands.policies}/{self.name}-actor").ok
        self._let_go(f"{self._actors.path}/{self.name}")
        self.last_status = actor["status"]

    def _let_go(self, path: str) -> None:
        answer = self._hands.api.merge(path, {"metadata": {"finalizers": None}})
        assert answer.ok or answer.status == 404, answer.body
