"""Why pods that have a node start nothing: a volume of theirs can't be mounted, and only Events tell it.

While a Secret, ConfigMap or claim is missing, a pod's containers say `ContainerCreating` and its conditions
nothing at all. Fetching Events is the caller's, and only worth it for pods that `find_held` returns.
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
from fray.vocabulary import Reason

__all__ = [
    "VOLUME_FAILURES",
    "VolumeComplaint",
    "build_volume_complaint",
    "derive_volume_waiting",
    "find_held",
    "is_volume_missing",
]

VOLUME_FAILURES = (("Pod", "FailedMount"), ("Pod", "FailedAttachVolume"))
"""Kind and reasons of the events that are about a pod's volumes:
https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/events/event.go
"""
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
class VolumeComplaint:
    """What was said of the volumes of a pod, by its uid; `first` and `last` are when."""

    pod: str
    message: str
    first: datetime
    last: datetime

    def holds(self, now: datetime) -> bool:
        """Return whether it is still so: a pause before the next try is as long as all before together."""
        return now - self.last <= min(MEMORY, self.last - self.first + SLACK)


def build_volume_complaint(event: Manifest) -> VolumeComplaint:
    """Return what an Event about a pod's volumes says."""
    created = event["metadata"]["creationTimestamp"]
    last = parse_time(event.get("lastTimestamp") or event.get("eventTime") or created)
    first = parse_time(event.get("firstTimestamp") or created)
    pod = event["involvedObject"].get("uid", "")
    return VolumeComplaint(pod, str(event.get("message", "")), first, last)


def find_held(pods: Iterable[Manifest], *, now: datetime) -> list[Manifest]:
    """Return the pods that have been on their nodes for a while and have started no container."""
    return [pod for pod in pods if _is_held(pod, now)]


def derive_volume_waiting(
    held: Sequence[Manifest], complaints: Iterable[VolumeComplaint], *, now: datetime
) -> Waiting | None:
    """Return which volume of these pods can't be mounted, as far as it was complained about; else None."""
    uids = {pod["metadata"]["uid"] for pod in held}
    messages = {each.message for each in complaints if each.pod in uids and each.holds(now)}
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
    complaints: Iterable[VolumeComplaint],
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
        and each.pod in uids
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
