"""What controllers and kubelets complain of in Events: nothing else tells it.

Of pods that can't be created only those who try can tell. While a Secret, ConfigMap or claim is missing, a
pod's containers say `ContainerCreating` and its conditions nothing at all. Fetching Events is the caller's,
and of volumes only worth it for pods that `find_held` returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fray.plan.manifests import Manifest, list_containers
from fray.plan.observation import Waiting
from fray.plan.texts import flatten
from fray.plan.timestamps import parse_time
from fray.vocabulary import REPLICATED_JOB, Reason

__all__ = [
    "CREATE_FAILURES",
    "MEMBER_CREATE_FAILURES",
    "PATIENCE_SECONDS",
    "VOLUME_FAILURES",
    "Complaint",
    "build_complaint",
    "derive_pause",
    "derive_volume_waiting",
    "find_held",
    "is_volume_missing",
    "list_create_failures",
]

CREATE_FAILURES = (("Job", "FailedCreate"), ("JobSet", "JobCreationFailed"))
"""Kinds, and reasons of the events by which a controller says that it could not create their parts."""
MEMBER_CREATE_FAILURES = (("StatefulSet", "FailedCreate"), *CREATE_FAILURES)
"""Likewise of what may make the pods of actors."""
VOLUME_FAILURES = (("Pod", "FailedMount"), ("Pod", "FailedAttachVolume"))
"""Likewise of the events that are about a pod's volumes:
https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/events/event.go
"""
PATIENCE_SECONDS = 5.0
"""How long a controller may take to make its pods before the server is asked why; that ever more rarely."""
PATIENCE_CAP_SECONDS = 60.0
LONGEST_MESSAGE = 4096
"""Characters of an event's message that are kept: the API sets no limit for all."""
PATIENCE = timedelta(seconds=20)
"""How long a pod on a node may take to start something before Events are read: longer than most take, also
with an image to pull; and by then the kubelet has tried a volume that it can't mount six times."""
SLACK = timedelta(seconds=10)
"""How much longer than it should a try may take, and clocks of nodes differ."""
MEMORY = timedelta(minutes=6)
"""The longest time in which the kubelet, which tries every two minutes, tells of a failure again: of one that
lasts for hours it lets an event through every five minutes only."""
ONE_VOLUME = re.compile(r'^\w+Volume\.\w+ failed for volume "(?P<volume>[^"]*)" ?: ')
"""Begins what is said of one volume; what doesn't begin so only lists those that are awaited."""
NOT_FOUND = "not found"
"""What the kubelet says of a Secret that doesn't exist:
https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors#NewNotFound
"""
MESSAGE_LENGTH = 400


@dataclass(frozen=True)
class Complaint:
    """What an Event said of the object of this uid; `first` and `last` are when."""

    kind: str
    name: str
    uid: str
    message: str
    first: datetime
    last: datetime

    def holds(self, now: datetime) -> bool:
        """Return whether it is still so: a pause before the next try is as long as all before together."""
        return now - self.last <= min(MEMORY, self.last - self.first + SLACK)


def build_complaint(event: Manifest) -> Complaint:
    """Return what an Event says."""
    created, about = event["metadata"]["creationTimestamp"], event["involvedObject"]
    return Complaint(
        about.get("kind", ""),
        about.get("name", ""),
        about.get("uid", ""),
        str(event.get("message", ""))[:LONGEST_MESSAGE],
        parse_time(event.get("firstTimestamp") or created),
        parse_time(event.get("lastTimestamp") or event.get("eventTime") or created),
    )


def derive_pause(wanted: float) -> float:
    """Return after how many seconds to ask again: so many, but neither at once nor too late."""
    return min(PATIENCE_CAP_SECONDS, max(PATIENCE_SECONDS, wanted))


def list_create_failures(
    owner: Manifest, complaints: Iterable[Complaint], *, made: Iterable[Manifest] = ()
) -> list[str]:
    """Return what was said about pods and Jobs that a JobSet or StatefulSet could not make, newest first.

    `made` are pods that it could make: what was said before doesn't count.
    """
    # Events outlive what they are about: those of an earlier JobSet of this name are older.
    since = max(parse_time(each["metadata"]["creationTimestamp"]) for each in (owner, *made))
    found = [each for each in complaints if _is_part(each, owner["metadata"]) and each.last >= since]
    return [each.message for each in sorted(found, key=lambda each: each.last, reverse=True)]


def _is_part(complaint: Complaint, owner: Manifest) -> bool:
    """Return whether a complaint is about the object with this metadata, or a Job of it."""
    if complaint.kind == "StatefulSet":
        return bool(complaint.uid == owner["uid"])
    if complaint.kind == "JobSet":
        return bool(complaint.name == owner["name"])
    return complaint.name.removeprefix(f"{owner['name']}-{REPLICATED_JOB}-").isdigit()


def find_held(pods: Iterable[Manifest], *, now: datetime) -> list[Manifest]:
    """Return the pods that have been on their nodes for a while and have started no container."""
    return [pod for pod in pods if _is_held(pod, now)]


def derive_volume_waiting(
    held: Sequence[Manifest], complaints: Iterable[Complaint], *, now: datetime
) -> Waiting | None:
    """Return which volume of these pods can't be mounted, as far as it was complained about; else None."""
    uids = {pod["metadata"]["uid"] for pod in held}
    messages = {each.message for each in complaints if each.uid in uids and each.holds(now)}
    if not messages:
        return None
    # What is said of one volume says why. Of several the first by name: the message must not alternate.
    message = min(messages, key=lambda text: (ONE_VOLUME.match(text) is None, text))
    named = ONE_VOLUME.match(message)
    which, why = "volumes", message
    if named is not None:
        which, why = f"volume {named['volume']!r}", message[named.end() :]
    return Waiting(
        Reason.VOLUME_MOUNT_FAILED, f"{which} can't be mounted: {flatten(why, most=MESSAGE_LENGTH)}"
    )


def is_volume_missing(
    volume: str,
    held: Sequence[Manifest],
    complaints: Iterable[Complaint],
    *,
    seconds: float,
    now: datetime,
) -> bool:
    """Return whether the Secret or ConfigMap of a volume of these pods has been missing for so long."""
    uids = {pod["metadata"]["uid"] for pod in held}
    return any(
        (named := ONE_VOLUME.match(each.message)) is not None
        and named["volume"] == volume
        and NOT_FOUND in each.message
        and each.uid in uids
        and each.holds(now)
        and now - each.first >= timedelta(seconds=seconds)
        for each in complaints
    )


def _is_held(pod: Manifest, now: datetime) -> bool:
    status = pod.get("status", {})
    # When the kubelet took the pod; it mounts volumes next.
    since = status.get("startTime")
    if since is None or status.get("phase") != "Pending" or now - parse_time(since) < PATIENCE:
        return False
    states = [container.get("state", {}) for container in list_containers(pod)]
    return not any("running" in state or "terminated" in state for state in states)
