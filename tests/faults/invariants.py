"""What must hold at every moment, whatever happens: checked at each request that is sent and each change.

It looks at the server alone, and knows nothing of how the operator decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from fray.kube.api import Manifest
from fray.kube.resources import EVENTS, FRAYJOBS, JOBSETS, LEASES, PODS, Resource
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB_UID
from tests.unit.controller.memory_server import Call, MemoryServer

__all__ = ["Invariants"]

EVENTS_OF_AN_ATTEMPT = 6
CHARGES = ("failuresUsed", "preemptionsUsed", "misplacementsUsed")


class Invariants:
    """Collects what was broken, with the moment; `clock` returns seconds since the start."""

    def __init__(self, server: MemoryServer, *, clock: Callable[[], float]) -> None:
        self._server, self._clock = server, clock
        self._jobsets: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._alive: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._events: defaultdict[str, set[str]] = defaultdict(set)
        self.broken: list[str] = []
        server.listeners.append(self._on_change)

    def on_send(self, call: Call, *, sender: str) -> None:
        """Check a request as it leaves a process: only the leader writes."""
        if call.method in ("GET", "LIST", "WATCH") or call.resource == LEASES:
            return
        leases = self._server.look(LEASES)
        holder = leases[0]["spec"].get("holderIdentity") if leases else None
        if holder != sender:
            self.tell(f"{sender} sends {call.method} {call.resource} {call.name}, and {holder} leads")

    def on_unchanged(self, call: Call) -> None:
        """Note a write that changed nothing."""
        if call.resource != LEASES:
            self.tell(f"a write of {call.resource} {call.name} changes nothing")

    def tell(self, what: str) -> None:
        """Note that something was broken."""
        self.broken.append(f"at {self._clock():.1f} s: {what}")

    def _on_change(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> None:
        if resource == JOBSETS and old is None and new is not None:
            self._on_jobset(new)
        elif resource == PODS:
            self._on_pod(old, new)
        elif resource == FRAYJOBS and old is not None and new is not None:
            self._on_job(old, new)
        elif resource == EVENTS and new is not None:
            self._on_event(new)

    def _on_jobset(self, jobset: Manifest) -> None:
        labels, metadata = jobset["metadata"]["labels"], jobset["metadata"]
        made = self._jobsets[labels[LABEL_JOB_UID], labels[LABEL_ATTEMPT]]
        made.add(metadata["uid"])
        if len(made) > 1:
            self.tell(f"{len(made)} JobSets were made of {metadata['name']}")

    def _on_pod(self, old: Manifest | None, new: Manifest | None) -> None:
        pod = new or old
        assert pod is not None
        labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
        alive = self._alive[labels[LABEL_JOB_UID]]
        if new is None or new.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            alive.pop(name, None)
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
        if is_finished(before):
            self.tell(f"the status of {name} changes after its end")
        numbers = [attempt["number"] for attempt in after.get("attempts", [])]
        if numbers != list(range(1, len(numbers) + 1)):
            self.tell(f"{name} has the attempts {numbers}")
        if len(numbers) < len(before.get("attempts", [])):
            self.tell(f"{name} has lost an attempt")
        for was, now in zip(before.get("attempts", []), after.get("attempts", []), strict=False):
            for key in ("verdict", "endTime", "startTime", "runningTime", "jobSet"):
                if key in was and was[key] != now.get(key):
                    self.tell(f"{key} of attempt {was['number']} of {name} was {was[key]}, is {now.get(key)}")
            if "verdict" in was and was != now:
                self.tell(f"attempt {was['number']} of {name} has ended, and changes: {was}, {now}")
        for key in CHARGES:
            was_used, used = (status.get("retries", {}).get(key) or 0 for status in (before, after))
            if not was_used <= used <= was_used + 1:
                self.tell(f"{key} of {name} was {was_used}, is {used}")

    def _on_event(self, event: Manifest) -> None:
        told = self._events[event["involvedObject"]["uid"]]
        what = f"{event['reason']}: {event['message']}"
        if what in told:
            self.tell(f"told twice: {what}")
        told.add(what)


def is_finished(status: Manifest) -> bool:
    """Return whether a status says that its job has ended."""
    return any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions", []))
