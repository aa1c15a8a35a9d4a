"""Does the cluster harm as planned, and gives everything back in time.

Each strike is carried out at its time or left out when there is nothing to hit; either way the next is the
one that the seed says. What it did to pods and hosts goes into the records.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from e2e.chaos.plan import Blow, Strike
from e2e.chaos.recorder import Recorder
from e2e.chaos.records import NODE_DELETED, POD_DELETED, Hit, Outage, PodSighting
from e2e.chaos.storm import Storm
from e2e.cluster import kubelets, node_status
from e2e.cluster.api import Api, Response
from e2e.cluster.command import await_condition
from e2e.cluster.layout import Host, Layout
from e2e.faulty_proxy import FaultyProxy
from e2e.release import OPERATOR, SYSTEM
from fray.vocabulary import Role

__all__ = ["Agent", "Blowed", "Target", "evict", "remove_pod"]

T = TypeVar("T")

MOST_AWAY = 2
"""Hosts without their kubelet at the same time."""
MOST_RESTARTS = 1
"""Of an operator's container: a third start would wait for half a minute, longer each time."""
NURSE_SECONDS = 2.0
LOOK_SECONDS = 0.5
RETURN_SECONDS = 6.0
"""After its start a kubelet needs a moment to say that its node has no chips: it was Ready all the time."""
READY_SECONDS = 120.0
PROGRAM = "fray_operator"
WORKER_PROGRAM = "python"
AT_ONCE = {"gracePeriodSeconds": 0}


@dataclass(frozen=True)
class Target:
    """The cluster that is done harm: its API past the proxy, its hosts, and where the jobs are."""

    api: Api
    layout: Layout
    namespace: str


@dataclass(frozen=True)
class Blowed:
    """A strike that was due, and what it hit; None when there was nothing to hit."""

    at: float
    strike: Strike
    target: str | None


def evict(api: Api, namespace: str, name: str, uid: str) -> Response:
    """Ask for a pod's eviction, as a drain does; the answer is the server's."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)


def remove_pod(
    api: Api, namespace: str, name: str, uid: str, options: Mapping[str, Any] | None = None
) -> Response:
    """Delete a pod, as `kubectl delete pod` does; the answer is the server's."""
    body = {"preconditions": {"uid": uid}, **(options or {})}
    return api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body)


class Agent:
    """Works at each `tick`; `log` tells what it did. Call `give_back` in the end, whatever happened."""

    def __init__(
        self,
        target: Target,
        recorder: Recorder,
        proxy: FaultyProxy,
        storm: Storm,
        strikes: Iterator[Strike],
    ) -> None:
        self.log: list[Blowed] = []
        self.nursed = 0
        """Replicas of the operator that were replaced, since they would have waited for long."""
        self._target, self._recorder, self._proxy, self._storm = target, recorder, proxy, storm
        self._api = target.api
        self._strikes = strikes
        self._next = next(strikes)
        self._due = time.time() + self._next.after
        self._nurse_at = self._look_at = 0.0
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._away: dict[str, tuple[Host, float, str]] = {}
        """Hosts without kubelet: since when, and by what."""
        self._returning: dict[str, float] = {}
        """Those among them whose kubelet was started again, and when they may count as back."""
        self._blows: dict[Blow, Callable[[Strike], str | None]] = {
            Blow.KILL_OPERATOR: self._kill_operator,
            Blow.DELETE_OPERATOR: self._delete_operator,
            Blow.EVICT_POD: lambda strike: self._hit_pod(strike, "evicted", evict),
            Blow.DELETE_POD: lambda strike: self._hit_pod(strike, POD_DELETED, remove_pod),
            Blow.KILL_WORKER: self._kill_worker,
            Blow.FREEZE_KUBELET: self._freeze,
            Blow.KILL_KUBELET: lambda strike: self._kill_kubelet(strike, deletes_node=False),
            Blow.DELETE_NODE: lambda strike: self._kill_kubelet(strike, deletes_node=True),
            Blow.CUT_WATCHES: lambda _: _counted(proxy.cut_all_watches(), "watches"),
            Blow.EXPIRE_WATCHES: lambda _: _counted(proxy.expire_all_watches(), "watches"),
            Blow.API_STORM: self._rage,
        }

    @property
    def counts(self) -> Counter[str]:
        """How often each blow hit something."""
        return Counter(blowed.strike.blow.value for blowed in self.log if blowed.target is not None)

    def tick(self, *, strike: bool) -> None:
        """Give back what is due, and do the next strike when that is due, unless `strike` is False."""
        now = time.time()
        while self._undo and self._undo[0][0] <= now:
            heapq.heappop(self._undo)[2]()
        self._welcome()
        self._nurse(now)
        if strike and now >= self._due:
            target = self._blows[self._next.blow](self._next)
            self.log.append(Blowed(now, self._next, target))
            self._next = next(self._strikes)
            self._due = now + self._next.after

    def give_back(self) -> None:
        """End all harm now, and wait until all hosts are ready. Raises NotReadyError."""
        self._undo.clear()
        self._storm.rages = False
        for host, _, _ in self._away.values():
            if host.name not in self._returning:
                self._restart(host)

        def all_back() -> bool:
            self._welcome()
            return not self._away

        await_condition("all nodes are ready", all_back, timeout=READY_SECONDS)

    # --- pods -------------------------------------------------------------------------------------------

    def _hit_pod(
        self, strike: Strike, how: str, blow: Callable[[Api, str, str, str], Response]
    ) -> str | None:
        pod = _choose(self._recorder.living_pods(), strike.victim)
        if pod is None:
            return None
        answer = blow(self._api, self._target.namespace, pod.name, pod.uid)
        if not answer.ok:
            return None  # it has ended by now
        self._note(pod, how)
        return pod.name

    def _kill_worker(self, strike: Strike) -> str | None:
        workers = [pod for pod in self._recorder.living_pods() if pod.role == Role.WORKER and pod.node]
        pod = _choose(workers, strike.victim)
        if pod is None or pod.node is None:
            return None
        if not kubelets.kill_in_pod(self._target.layout.host_named(pod.node), pod.uid, WORKER_PROGRAM):
            return None  # it hasn't begun yet, or has ended by now
        self._note(pod, "killed")
        return pod.name

    def _note(self, pod: PodSighting, how: str) -> None:
        hit = Hit(time.time(), pod.job, pod.attempt, pod.uid, pod.node, how)
        self._recorder.records.hits.append(hit)

    # --- the operator -----------------------------------------------------------------------------------

    def _operators(self) -> list[Mapping[str, Any]]:
        answer = self._api.get(f"/api/v1/namespaces/{SYSTEM}/pods", labelSelector=OPERATOR)
        found: list[Mapping[str, Any]] = answer.body["items"] if answer.ok else []
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))

    def _kill_operator(self, strike: Strike) -> str | None:
        pod = _choose([pod for pod in self._operators() if _runs(pod)], strike.victim)
        if pod is None:
            return None
        host = self._target.layout.host_named(pod["spec"]["nodeName"])
        killed = kubelets.kill_in_pod(host, pod["metadata"]["uid"], PROGRAM)
        return str(pod["metadata"]["name"]) if killed else None

    def _delete_operator(self, strike: Strike) -> str | None:
        pod = _choose(self._operators(), strike.victim)
        return None if pod is None else self._replace(pod)

    def _replace(self, pod: Mapping[str, Any]) -> str | None:
        metadata = pod["metadata"]
        deleted = remove_pod(self._api, SYSTEM, metadata["name"], metadata["uid"], AT_ONCE).ok
        return str(metadata["name"]) if deleted else None

    def _nurse(self, now: float) -> None:
        """Replace replicas whose containers wait for their next start: that isn't what is tested."""
        if now < self._nurse_at:
            return
        self._nurse_at = now + NURSE_SECONDS
        for pod in self._operators():
            restarts = [status["restartCount"] for status in pod["status"].get("containerStatuses", [])]
            if not _runs(pod) and max(restarts, default=0) >= MOST_RESTARTS:
                self.nursed += self._replace(pod) is not None

    def _rage(self, strike: Strike) -> str | None:
        if self._storm.rages:
            return None
        self._storm.rages = True
        self._later(strike.seconds, self._calm)
        return f"requests for {strike.seconds:g} s"

    def _calm(self) -> None:
        self._storm.rages = False

    # --- kubelets and nodes -----------------------------------------------------------------------------

    def _freeze(self, strike: Strike) -> str | None:
        host = self._take_host(strike, list(self._target.layout.hosts), "kubelet frozen")
        if host is None:
            return None
        kubelets.freeze_kubelet(host)
        self._later(strike.seconds, lambda: self._restart(host))
        return f"{host.name} for {strike.seconds:g} s"

    def _kill_kubelet(self, strike: Strike, *, deletes_node: bool) -> str | None:
        hosts = self._target.layout.hosts
        if deletes_node:
            # Without the first host's Node nothing reaches JobSet's webhooks and the cluster's DNS.
            hosts = tuple(host for host in hosts if host.taints)
        host = self._take_host(strike, list(hosts), NODE_DELETED if deletes_node else "kubelet killed")
        if host is None:
            return None
        kubelets.kill_kubelet(host)
        if deletes_node:
            self._api.delete(f"/api/v1/nodes/{host.name}")
        self._later(strike.seconds, lambda: self._restart(host))
        return f"{host.name} for {strike.seconds:g} s"

    def _restart(self, host: Host) -> None:
        kubelets.thaw_kubelet(host)
        kubelets.start_kubelet(host)
        self._returning[host.name] = time.time() + RETURN_SECONDS

    def _take_host(self, strike: Strike, hosts: Sequence[Host], how: str) -> Host | None:
        if len(self._away) >= MOST_AWAY:
            return None
        host = _choose([host for host in hosts if host.name not in self._away], strike.victim)
        if host is not None:
            self._away[host.name] = host, time.time(), how
        return host

    def _welcome(self) -> None:
        """Look after hosts whose kubelets run again: their chips are to be advertised anew."""
        now = time.time()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for name, due in list(self._returning.items()):
            host, begin, how = self._away[name]
            if not node_status.is_ready(host, self._api):
                node_status.advertise_resources(host, self._api)
            elif now >= due:
                self._recorder.records.outages.append(Outage(name, begin, now, how))
                del self._returning[name], self._away[name]

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (time.time() + seconds, next(self._order), undo))


def _choose(candidates: Sequence[T], victim: float) -> T | None:
    return candidates[int(victim * len(candidates))] if candidates else None


def _counted(number: int, what: str) -> str | None:
    return f"{number} {what}" if number else None


def _runs(pod: Mapping[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all("running" in status.get("state", {}) for status in statuses)
