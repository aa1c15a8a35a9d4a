"""A volume that can't be mounted is named, while it can't: pods that only take their time explain nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.complaints import build_complaint, derive_volume_waiting, find_held
from fray.plan.lifecycle import decide
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.plan.timestamps import format_time
from fray.testing import build_frayjob, build_pod, waiting
from fray.vocabulary import ConditionType, Reason
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
CREATING = waiting()
MISSING = 'MountVolume.SetUp failed for volume "config" : configmap "absent" not found'
SUMMARY = (
    "Unable to attach or mount volumes: unmounted volumes=[config], unattached volumes=[], "
    "failed to process volumes=[]: context deadline exceeded"
)
ONCE = "Multi-Attach error for volume pvc-1"


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def pod(
    uid: str = "1", *, phase: str = "Pending", state: Any = None, init: Any = None, begun: bool = True
) -> Any:
    """Return a pod that the kubelet took at the start."""
    taken = {"startTime": format_time(START)} if begun else {}
    made = build_pod(0, phase, state or CREATING, name=f"pod-{uid}", init=init, **taken)
    made["metadata"]["uid"] = uid
    return made


def event(message: str, first: float, last: float, *, uid: str = "1") -> dict[str, Any]:
    return {
        # by the server's clock, the others by the node's
        "metadata": {"creationTimestamp": format_time(after(first + 30))},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "message": message,
        "firstTimestamp": format_time(after(first)),
        "lastTimestamp": format_time(after(last)),
    }


def explain(*events: dict[str, Any], at: float = 20.0, pods: tuple[Any, ...] = ()) -> Waiting | None:
    held = find_held(pods or (pod(),), now=after(at))
    return derive_volume_waiting(held, map(build_complaint, events), now=after(at))


@pytest.mark.parametrize(
    ("waits", "at", "held"),
    [
        (pod(), 19, False),
        (pod(), 20, True),
        (pod(init={"waiting": {"reason": "PodInitializing"}}), 20, True),
        (pod(init={"running": {}}), 20, False),
        (pod(init={"terminated": {"exitCode": 0}}), 20, False),
        (pod(state={"running": {}}), 20, False),
        (pod(phase="Failed"), 20, False),
        (pod(begun=False), 1000, False),
    ],
    ids=[
        "soon",
        "late",
        "before its init container",
        "in its init container",
        "after its init container",
        "it runs",
        "it has failed",
        "its node hasn't taken it",
    ],
)
def test_a_pod_is_held_that_has_started_nothing_for_a_while(waits: Any, at: float, *, held: bool) -> None:
    assert find_held([waits], now=after(at)) == ([waits] if held else [])


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (MISSING, "volume 'config' can't be mounted: configmap \"absent\" not found"),
        (
            'AttachVolume.Attach failed for volume "pvc-1" : rpc error:\n  no such disk',
            "volume 'pvc-1' can't be mounted: rpc error: no such disk",
        ),
        (SUMMARY, f"volumes can't be mounted: {SUMMARY}"),
        (
            MISSING + "x" * 1000,
            "volume 'config' can't be mounted: configmap \"absent\" not found" + "x" * 369 + "...",
        ),
    ],
    ids=["of one volume", "of a disk", "of all", "long"],
)
def test_a_volume_is_named_with_what_is_wrong(message: str, told: str) -> None:
    assert explain(event(message, 1, 15)) == Waiting(Reason.VOLUME_MOUNT_FAILED, told)


def test_what_is_said_of_one_volume_comes_first_and_of_several_always_the_same() -> None:
    other = 'MountVolume.SetUp failed for volume "data" : secret "gone" not found'
    events = [event(SUMMARY, 1, 19), event(other, 1, 18), event(MISSING, 1, 15)]
    told = {explain(*events), explain(*events[::-1])}
    assert told == {
        Waiting(
            Reason.VOLUME_MOUNT_FAILED, "volume 'config' can't be mounted: configmap \"absent\" not found"
        )
    }


@pytest.mark.parametrize(
    ("first", "last", "at", "told"),
    [
        (1, 1, 20, False),  # a cache that was not filled yet: said once, and mounted at the next try
        (1, 2, 20, False),
        (1, 8, 20, True),
        (1, 64, 120, True),  # the next try is about to come
        (1, 64, 150, False),
        (1, 1200, 1490, True),  # after that long the kubelet tells it every five minutes
        (1, 1200, 1600, False),
    ],
)
def test_a_complaint_holds_until_the_next_try_should_have_repeated_it(
    first: float, last: float, at: float, *, told: bool
) -> None:
    assert (explain(event(MISSING, first, last), at=at) is not None) is told


def test_a_complaint_about_another_pod_explains_nothing() -> None:
    assert explain(event(MISSING, 1, 15, uid="2")) is None
    assert explain(event(MISSING, 1, 15, uid="2"), pods=(pod(), pod("2"))) is not None


def test_an_event_of_the_newer_form_has_one_time() -> None:
    told = event(ONCE, 1, 15)
    told["metadata"]["creationTimestamp"] = format_time(after(15))
    told |= {"firstTimestamp": None, "lastTimestamp": None, "eventTime": "2026-01-31T12:00:15.000001Z"}
    assert explain(told) == Waiting(Reason.VOLUME_MOUNT_FAILED, f"volumes can't be mounted: {ONCE}")


def test_it_stands_on_running_and_tells_nothing_of_a_host_that_has_no_node_yet() -> None:
    attempt = AttemptStatus(number=1, job_set="train-a1", start_time=format_time(START))
    job = with_status(build_frayjob(replicas=2), FrayJobStatus(attempts=[attempt]))
    hosts = (
        HostObservation(0, 0, 0, "pod-0", HostPhase.PENDING, node="node-1"),
        HostObservation(0, 1, 1, "pod-1", HostPhase.PENDING),
    )
    gang = GangObservation(hosts, explain(event(MISSING, 1, 15)))
    status = decide(job, gang, now=after(20), policy=RetryPolicy()).status
    scheduled, running = (
        find_condition(status, kind) for kind in (ConditionType.SCHEDULED, ConditionType.RUNNING)
    )
    assert scheduled is not None
    assert running is not None
    assert (scheduled.reason, running.reason) == ("HostsStarting", "VolumeMountFailed")
