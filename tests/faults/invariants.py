"""What must hold at every moment, whatever happens: checked at each request that is sent and each change.

It looks at the server alone, and knows nothing of how the operator decides.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator

from e2e.chaos.oracle import CHARGES, find_regressions, is_finished
from fray.kube.api import Manifest
from fray.kube.resources import EVENTS, FRAYJOBS, JOBSETS, LEASES, PODS, Resource
from fray.testing.memory import Call, MemoryServer
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB_UID, LABEL_JOBSET_UID

__all__ = ["EVENTS_OF_AN_ATTEMPT", "Invariants", "is_current"]

EVENTS_OF_AN_ATTEMPT = 6
OBSOLETE_SECONDS = 600.0
"""How long a JobSet may go on that was made too late: operators die first, and watches are late."""


class Invariants:
    """Collects what was broken, with the moment; `clock` returns seconds since the start."""

    def __init__(self, server: MemoryServer, *, clock: Callable[[], float]) -> None:
        self._server, self._clock = server, clock
        self._jobsets: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._alive: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._events: defaultdict[str, set[str]] = defaultdict(set)
        self._carries_out_late = False
        self._late: set[str] = set()
        self._obsolete: dict[str, float] = {}
        self.obsolete: list[float] = []
        """Of each JobSet that was made after its attempt had ended: how many seconds it went on."""
        self.broken: list[str] = []
        server.listeners.append(self._on_change)

    def on_send(self, call: Call, *, sender: str) -> None:
        """Check a request as it leaves a process: only the leader writes."""
        if call.method in ("GET", "LIST", "WATCH") or call.resource == LEASES:
            return
        held = {lease["metadata"]["name"]: lease["spec"] for lease in self._server.look(LEASES)}
        holder = held.get("fray-operator", {}).get("holderIdentity")
        if holder != sender:
            self.tell(f"{sender} sends {call.method} {call.resource} {call.name}, and {holder} leads")

    def on_unchanged(self, call: Call) -> None:
        """Note a write that changed nothing."""
        if call.resource != LEASES:
            self.tell(f"a write of {call.resource} {call.name} changes nothing")

    @contextlib.contextmanager
    def late(self, call: Call) -> Iterator[None]:
        """Carry out a request that its sender has given up: what it makes may be one too many for a while."""
        self._carries_out_late = call.resource == JOBSETS
        try:
            yield
        finally:
            self._carries_out_late = False

    def tell(self, what: str) -> None:
        """Note that something was broken."""
        self.broken.append(f"at {self._clock():.1f} s: {what}")

    def _on_change(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> None:
        if resource == JOBSETS:
            if old is None and new is not None:
                self._on_jobset(new)
            if new is None or "deletionTimestamp" in new["metadata"]:
                self._on_deleted_jobset(old or new or {})
        elif resource == PODS:
            self._on_pod(old, new)
        elif resource == FRAYJOBS and old is not None and new is not None:
            self._on_job(old, new)
        elif resource == EVENTS and new is not None:
            self._on_event(new)

    def _on_jobset(self, jobset: Manifest) -> None:
        labels, metadata = jobset["metadata"]["labels"], jobset["metadata"]
        made = self._jobsets[labels[LABEL_JOB_UID], labels[LABEL_ATTEMPT]]
        if self._carries_out_late:
            self._late.add(metadata["uid"])
            if not is_current(self._server, jobset):
                self._obsolete[metadata["uid"]] = self._clock()
            return
        made.add(metadata["uid"])
        if len(made) > 1:
            self.tell(f"{len(made)} JobSets were made of {metadata['name']}")

    def _on_deleted_jobset(self, jobset: Manifest) -> None:
        since = self._obsolete.pop(jobset["metadata"]["uid"], None)
        if since is not None:
            self.obsolete.append(self._clock() - since)
            if self.obsolete[-1] > OBSOLETE_SECONDS:
                self.tell(f"{jobset['metadata']['name']} went on for {self.obsolete[-1]:.0f} s after its end")

    def _on_pod(self, old: Manifest | None, new: Manifest | None) -> None:
        pod = new or old
        assert pod is not None
        labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
        alive = self._alive[labels[LABEL_JOB_UID]]
        if new is None or new.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            alive.pop(name, None)
            return
        if labels[LABEL_JOBSET_UID] in self._late and not is_current(self._server, pod):
            return
        attempt = labels[LABEL_ATTEMPT]
        others = sorted(other for other, of in alive.items() if of != attempt)
        if name not in alive and others:
            self.tell(f"pod {name} lives beside {', '.join(others)}")
        alive[name] = attempt

    def _on_job(self, old: Manifest, new: Manifest) -> None:
        before, after, name = old.get("status", {}), new.get("status", {}), new["metadata"]["name"]
        if old["metadata"]["uid"] != new["metadata"]["uid"] or before == after:
            return
        for what in find_regressions(before, after):
            self.tell(f"{name}: {what}")
        for key in CHARGES.values():
            was, now = (status.get("retries", {}).get(key) or 0 for status in (before, after))
            if now > was + 1:
                self.tell(f"{name}: {key} was {was}, is {now}")

    def _on_event(self, event: Manifest) -> None:
        told = self._events[event["involvedObject"]["uid"]]
        what = f"{event['reason']}: {event['message']}"
        if what in told:
            self.tell(f"told twice: {what}")
        told.add(what)


def is_current(server: MemoryServer, body: Manifest) -> bool:
    """Return whether an object is of the attempt that its job, which goes on, is at."""
    labels = body["metadata"]["labels"]
    for job in server.look(FRAYJOBS):
        if job["metadata"]["uid"] == labels[LABEL_JOB_UID]:
            status = job.get("status", {})
            last = (status.get("attempts") or [{}])[-1]
            number = str(last.get("number"))
            return not is_finished(status) and "verdict" not in last and number == labels[LABEL_ATTEMPT]
    return False
