"""The user of the actors: submits one after the other, has threads call them, and stops or deletes them.

A member is a `Counter` of the image, whose state is fresh in each incarnation. A caller counts a word of its
own by the first call of a handle, and asks for it by all later ones: another incarnation doesn't know it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from e2e.chaos.plan import MOST_MEMBERS, Act, ActorPlan
from e2e.chaos.recorder import Recorder, collection_of
from e2e.chaos.user import PATCHES, is_done
from e2e.cluster.api import Api
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import ActorDiedError, ActorNotFoundError, ActorUnavailableError
from fray.vocabulary import FRAYACTOR_PLURAL

__all__ = ["ActorUser", "Calls", "call_by_one_handle"]

PAUSE_SECONDS = 0.1
KNOWN_SECONDS = 10.0
"""After which a caller knows that its member has ended; a call that takes longer hangs."""
START_SECONDS = 30.0
"""How long the first call of a handle waits for a start, before its caller looks for the actor again."""
END_SECONDS = 60.0


@dataclass
class Calls:
    """What callers met: answers and errors by their type, and in words what must not be."""

    met: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class ActorUser:
    """Works at each `tick`, like the user of the jobs; `under_way` is the actor that has not ended.

    Callers call it, one thread for each member that it may have, as long as the `with` block lasts.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        recorder: Recorder,
        actors: Iterator[ActorPlan],
        connect: Callable[[], KubernetesCluster],
    ) -> None:
        self.plans: list[ActorPlan] = []
        self.under_way: ActorPlan | None = None
        self.calls = Calls()
        self._api, self._recorder, self._waiting = api, recorder, actors
        self._collection = collection_of(namespace, FRAYACTOR_PLURAL)
        self._done = 0
        self._since: float | None = None
        """When the last deed was done, or the actor was ready first."""
        self._over = threading.Event()
        self._connect = connect
        self._threads = [
            threading.Thread(target=self._call, args=(index,), name=f"caller of member {index}")
            for index in range(MOST_MEMBERS)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(END_SECONDS)

    def tick(self, *, more: bool) -> None:
        """Do what is due; with `more`, submit an actor when there is none. Raises ApiError."""
        plan = self.under_way
        if plan is None:
            if more:
                self._submit()
        elif self.has_ended(plan):
            self.under_way = None
        elif self._done < len(plan.deeds):
            self._proceed(plan)

    def has_ended(self, plan: ActorPlan) -> bool:
        """Whether an actor is what it will be: finished, or gone."""
        seen = self._recorder.actor(plan.name)
        return seen is not None and (seen.finished or seen.gone)

    def _submit(self) -> None:
        plan = next(self._waiting)
        while not is_done(self._api.post(self._collection, plan.to_manifest()), already=409):
            time.sleep(PAUSE_SECONDS)
        self.plans.append(plan)
        self.under_way, self._done, self._since = plan, 0, None

    def _proceed(self, plan: ActorPlan) -> None:
        if self._since is None:
            seen = self._recorder.actor(plan.name)
            if seen is not None and seen.ready:
                self._since = time.time()
            return
        deed = plan.deeds[self._done]
        if time.time() < self._since + deed.after:
            return
        path = f"{self._collection}/{plan.name}"
        if deed.act is Act.DELETE:
            answer = self._api.delete(path)
        elif deed.act is Act.SCALE:
            answer = self._api.merge(f"{path}/scale", {"spec": {"replicas": deed.workers}})
        else:
            answer = self._api.merge(path, PATCHES[deed.act])
        if is_done(answer, already=404):
            self._done, self._since = self._done + 1, time.time()

    def _call(self, index: int) -> None:
        """Call a member of the actor that there is, by one handle after the other, until all is over."""
        with self._connect() as cluster:
            while not self._over.is_set():
                plan = self.under_way
                if plan is not None:
                    member = f"{plan.name}-{index}"
                    call_by_one_handle(cluster, member, self.calls, is_over=self._over.is_set)
                self._over.wait(PAUSE_SECONDS)


def call_by_one_handle(
    cluster: KubernetesCluster, member: str, calls: Calls, *, is_over: Callable[[], bool]
) -> None:
    """Call a member by one handle until it has ended or all is over, and note what its caller met."""
    word, bound, began = uuid.uuid4().hex, False, time.monotonic()
    try:
        handle: Any = cluster.get_actor(member)
        handle.update.remote([word]).result(START_SECONDS)
        while not is_over():
            bound, began = True, time.monotonic()
            found = handle.get.remote(word).result(KNOWN_SECONDS)
            if found != 1:
                calls.wrong.append(f"{member}: a handle reached another incarnation, which said {found!r}")
                return
            calls.met["answers"] += 1
            time.sleep(PAUSE_SECONDS)
    except (ActorDiedError, ActorUnavailableError, ActorNotFoundError) as error:
        calls.met[type(error).__name__] += 1
    except BaseException as error:  # noqa: BLE001 - a hang, an error of another type, anything
        if isinstance(error, TimeoutError) and not bound:
            calls.met["waited for a start"] += 1
        else:
            seconds = time.monotonic() - began
            calls.wrong.append(f"{member}: a call ended after {seconds:.1f} s with {error!r}")
